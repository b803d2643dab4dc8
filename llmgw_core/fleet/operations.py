"""What an operator does with a fleet: plan a launch, carry it out, find an engine, stop it."""

import asyncio
import difflib
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from uuid import uuid4

from llmgw_core.domain.engine import EngineStatus
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.domain.model import LaunchFacts
from llmgw_core.errors import (
    AgentTimeout,
    EngineNotFound,
    LlmgwError,
    PlanRefused,
    SpecError,
    Unreachable,
    UsageError,
)
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.planning.launch import is_launchable, plan
from llmgw_core.planning.overrides import add_findings

MAX_PORT_TRIES = 16
RETRY_S = 30.0  # for a node that goes away between the question and its answer
RETRY_PAUSE_S = 0.5


async def plan_launch(fleet: Fleet, request: LaunchRequest, launch_id: str) -> LaunchPlan:
    """Return the plan with what its nodes say of it. Nothing is started; findings are in the plan.

    A port that the planner chose and a stranger holds is chosen anew.
    """
    nodes = [view.node for view in fleet.snapshot().nodes]
    venvs = {target.name: target.venv for target in fleet.targets if target.venv}
    avoid: set[int] = set()
    facts: dict[str, LaunchFacts] = {}
    while True:
        made = plan(request, nodes, launch_id, venvs, avoid, facts=facts)
        if await _learn_facts(fleet, made, facts):
            made = plan(request, nodes, launch_id, venvs, avoid, facts=facts)
        found = [finding for rank in made.ranks for finding in await _preflight(fleet, rank)]
        taken = [item for item in found if item.code == "port-taken"]
        port = made.ranks[0].port if made.ranks else None
        if request.port is None and taken and port is not None and len(avoid) < MAX_PORT_TRIES:
            avoid.add(port)
            continue
        return add_findings(made, found)


async def launch_plan(
    fleet: Fleet, plan_: LaunchPlan, environ: Mapping[str, str]
) -> tuple[EngineStatus, ...]:
    """Start every rank of the plan; all or none. The same plan again gives the same engines.

    Args:
        environ: the operator's environment, where the plan's secrets come from.

    Raises:
        PlanRefused: a finding stops it, or it has no rank.
        SpecError: a variable of env_from is not set here.
        LaunchError, NodeError: a node refused; ranks that had started were told to stop.
    """
    if not is_launchable(plan_):
        raise refuse(plan_)
    secrets = take_secrets(plan_.request.env_from, environ)
    started: list[tuple[RankPlan, EngineStatus]] = []
    for rank in plan_.ranks:
        key = f"{plan_.launch_id}-{rank.rank}"
        try:
            status = await _start_rank(fleet, key, rank, secrets)
        except LlmgwError:
            await _withdraw(fleet, plan_, (done for done, _ in started))
            raise
        started.append((rank, status))
    return tuple(status for _, status in started)


async def _start_rank(
    fleet: Fleet, key: str, rank: RankPlan, secrets: Mapping[str, str]
) -> EngineStatus:
    """Start one rank. When the connection went in between, ask again: by its key the node knows it started already."""
    end = time.monotonic() + RETRY_S
    is_asked = False
    while True:
        try:
            client = fleet.client(rank.node)
            is_asked = True
            return await client.launch(key, rank, secrets)
        except (Unreachable, AgentTimeout):
            if not is_asked or time.monotonic() > end:
                raise
        await asyncio.sleep(RETRY_PAUSE_S)


async def stop_engine(
    fleet: Fleet, node: str, engine_id: str, grace_seconds: float | None
) -> EngineStatus:
    """Begin to stop an engine, whatever state is shown. The node finishes it alone."""
    # A key of its own for each time: a second stop may shorten the first one's grace.
    return await fleet.client(node).stop(uuid4().hex, engine_id, grace_seconds)


def refuse(plan_: LaunchPlan) -> PlanRefused:
    """Return the error that says what stops the plan."""
    errors = [item for item in plan_.findings if item.severity is Severity.ERROR]
    if not errors:
        return PlanRefused("the plan has no rank to start", "", "plan it again")
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return PlanRefused(f"{first.subject}: {first.what}{more}", first.code, first.fix, first.node)


def take_secrets(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the named variables.

    Raises:
        SpecError: one is not set; only its name is told.
    """
    missing = [name for name in names if not environ.get(name)]
    if missing:
        raise SpecError(
            f"{missing[0]} is not set in your environment",
            "env_from names it",
            f"set it before the launch: export {missing[0]}=…",
        )
    return {name: environ[name] for name in names}


def find_engine(
    snapshot: FleetSnapshot, name_or_id: str, node: str | None = None
) -> tuple[str, EngineStatus]:
    """Return the node and the engine of that id or name.

    Of several with one name, the one that is not over; of those that are over, the one started last.

    Raises:
        EngineNotFound: there is none among the nodes that answered.
        UsageError: several nodes have one.
    """
    everything = [
        (view.node.name, engine)
        for view in snapshot.nodes
        for engine in view.node.engines
        if node in (None, view.node.name)
    ]
    found = [item for item in everything if item[1].id == name_or_id]
    found = found or [item for item in everything if item[1].name == name_or_id]
    if not found:
        raise _not_found(snapshot, name_or_id, node, [item[1].name for item in everything])
    living = [item for item in found if not item[1].state.is_over]
    choice = living or found
    nodes = sorted({name for name, _ in choice})
    if len(nodes) > 1:
        raise UsageError(
            f"{name_or_id} is on several nodes", ", ".join(nodes), "say which with --node, or by id"
        )
    return max(choice, key=lambda item: item[1].started_at or "")


def _not_found(
    snapshot: FleetSnapshot, name_or_id: str, node: str | None, names: list[str]
) -> EngineNotFound:
    silent = [
        view.node.name
        for view in snapshot.nodes
        if not view.node.reachable and node in (None, view.node.name)
    ]
    near = difflib.get_close_matches(name_or_id, names, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return EngineNotFound(
        f"there is no engine {name_or_id}",
        f"{', '.join(silent)} did not answer and may have it" if silent else "",
        f"{hint}llmgw status lists them",
        node,
    )


async def _learn_facts(fleet: Fleet, plan_: LaunchPlan, facts: dict[str, LaunchFacts]) -> bool:
    """Ask the plan's nodes what they know of model and engine. Returns whether there is anything new.

    An older agent, or one that does not answer, leaves its node unknown: its preflight says why.
    """
    asked = [rank for rank in plan_.ranks if rank.node not in facts]

    async def ask(rank: RankPlan) -> None:
        with suppress(LlmgwError):
            facts[rank.node] = await fleet.client(rank.node).launch_facts(rank)

    await asyncio.gather(*(ask(rank) for rank in asked))
    return any(rank.node in facts for rank in asked)


async def _preflight(fleet: Fleet, rank: RankPlan) -> tuple[Finding, ...]:
    try:
        return await fleet.client(rank.node).preflight(rank)
    except LlmgwError as error:
        return (
            Finding(error.code, Severity.ERROR, rank.node, error.message, error.fix, rank.node),
        )


async def _withdraw(fleet: Fleet, plan_: LaunchPlan, ranks: Iterable[RankPlan]) -> None:
    """Stop what had started of a launch that failed."""
    for rank in ranks:
        # The first error is the one to tell; a node that went away meanwhile shows its engine when it is back.
        with suppress(LlmgwError):
            key = f"withdraw-{plan_.launch_id}-{rank.rank}"
            await fleet.client(rank.node).stop(key, rank.engine_id, None)
