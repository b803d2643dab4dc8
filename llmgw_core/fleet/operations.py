"""What an operator does with a fleet: plan a launch, carry it out, find an engine, stop it."""

import asyncio
import difflib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import uuid4

from llmgw_core.domain.deployment import Located, deployment_id, group_ranks
from llmgw_core.domain.engine import EngineStatus
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.domain.model import LaunchFacts
from llmgw_core.errors import (
    AgentTimeout,
    EngineNotFound,
    LaunchError,
    LlmgwError,
    PlanRefused,
    SpecError,
    Unreachable,
    UsageError,
)
from llmgw_core.fleet.between import look_between
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.network_preflight import check_network
from llmgw_core.planning.launch import is_launchable, plan
from llmgw_core.planning.overrides import add_findings
from llmgw_core.planning.ranks import Between

MAX_PORT_TRIES = 16
RETRY_S = 30.0  # for a node that goes away between the question and its answer
RETRY_PAUSE_S = 0.5
GANG_KEY_BYTES = 32
API_KEY_BYTES = 24


async def plan_launch(fleet: Fleet, request: LaunchRequest, launch_id: str) -> LaunchPlan:
    """Return the plan with what its nodes say of it. Nothing is started; findings are in the plan.

    Ports that the planner chose and a stranger holds are chosen anew.
    """
    snapshot = fleet.snapshot()
    nodes = [view.node for view in snapshot.nodes]
    venvs = {target.name: target.venv for target in fleet.targets if target.venv}
    between = Between(snapshot.fabrics)
    avoid: set[int] = set()
    facts: dict[str, LaunchFacts] = {}
    while True:
        made = plan(request, nodes, launch_id, venvs, avoid, facts=facts, between=between)
        if await _learn_facts(fleet, made, facts):
            continue
        if len(made.ranks) > 1 and between.facts is None:
            names = [rank.node for rank in made.ranks]
            between = await look_between(fleet, names, request.venv, between)
            continue
        asked = await asyncio.gather(*(_preflight(fleet, rank) for rank in made.ranks))
        found = [finding for findings in asked for finding in findings]
        taken = {_port_of(item, made) for item in found if item.code == "port-taken"}
        fresh = taken - avoid - {request.port, None}
        if fresh and len(avoid) < MAX_PORT_TRIES:
            avoid |= {port for port in fresh if port is not None}
            continue
        found += await check_network(fleet, made, nodes, between)
        return add_findings(made, found)


def _port_of(finding: Finding, made: LaunchPlan) -> int | None:
    """The port that a node's finding is about: `port 8000`; an older agent knows of the engine's own alone."""
    number = finding.subject.rpartition(" ")[2]
    if number.isdecimal():
        return int(number)
    return next((rank.port for rank in made.ranks if rank.node == finding.node), None)


async def launch_plan(
    fleet: Fleet, plan_: LaunchPlan, environ: Mapping[str, str], api_key: str | None = None
) -> tuple[EngineStatus, ...]:
    """Start every rank of the plan, all at once; all or none. The same plan again gives the same engines.

    Args:
        environ: the operator's environment, where the plan's secrets come from.
        api_key: of the engine, where its plan gives it one; None: a new one is made.

    Raises:
        PlanRefused: a finding stops it, or it has no rank.
        SpecError: a variable of env_from is not set here.
        LaunchError, NodeError: a node refused; ranks that had started were told to stop.
    """
    if not is_launchable(plan_):
        raise refuse(plan_)
    given = take_secrets(plan_.request.env_from, environ)
    key = api_key or secrets.token_urlsafe(API_KEY_BYTES)
    gang_key = secrets.token_hex(GANG_KEY_BYTES) if len(plan_.ranks) > 1 else ""
    starts = [
        asyncio.ensure_future(
            _start_rank(
                fleet, f"{plan_.launch_id}-{rank.rank}", rank, _add_key(given, rank, key), gang_key
            )
        )
        for rank in plan_.ranks
    ]
    try:
        # Each is waited for: one that goes on in the background could start what nobody stops.
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
    except asyncio.CancelledError:
        await asyncio.gather(*starts, return_exceptions=True)
        await asyncio.shield(_withdraw(fleet, plan_.ranks, plan_.launch_id))
        raise
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures:
        # Whose answer was lost may run; who refused does not.
        doubtful = [
            rank
            for rank, outcome in zip(plan_.ranks, outcomes, strict=True)
            if not isinstance(outcome, LaunchError)
        ]
        if len(plan_.ranks) > 1:
            await _withdraw(fleet, doubtful, plan_.launch_id)
        raise next((item for item in failures if isinstance(item, LaunchError)), failures[0])
    return tuple(outcome for outcome in outcomes if isinstance(outcome, EngineStatus))


def _add_key(given: Mapping[str, str], rank: RankPlan, key: str) -> Mapping[str, str]:
    """What goes with that rank: the API key to the one that serves, and to no other."""
    return {**given, rank.api_key: key} if rank.api_key else given


async def _start_rank(
    fleet: Fleet, key: str, rank: RankPlan, given: Mapping[str, str], gang_key: str
) -> EngineStatus:
    """Start one rank. When the connection went in between, ask again: by its key the node knows it started already."""
    end = time.monotonic() + RETRY_S
    is_asked = False
    while True:
        try:
            client = fleet.client(rank.node)
            is_asked = True
            return await client.launch(key, rank, given, gang_key)
        except (Unreachable, AgentTimeout):
            if not is_asked or time.monotonic() > end:
                raise
        await asyncio.sleep(RETRY_PAUSE_S)


async def stop_ranks(
    fleet: Fleet, ranks: Sequence[Located], grace_seconds: float | None
) -> tuple[Located, ...]:
    """Begin to stop the ranks of a deployment, whatever state is shown: the first first, for it tells the others to end.

    Returns those that their nodes have taken up. A node that is away hears of it from its peers when it is back.

    Raises:
        NodeError: none of the nodes could be asked.
    """
    taken: list[Located] = []
    failures: list[LlmgwError] = []
    for node, engine in ranks:
        try:
            taken.append((node, await stop_engine(fleet, node, engine.id, grace_seconds)))
        except LlmgwError as error:
            failures.append(error)
    if not taken and failures:
        raise failures[0]
    return tuple(taken)


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


def find_engine(snapshot: FleetSnapshot, name_or_id: str, node: str | None = None) -> Located:
    """Return the node and the engine of that id or name; of several ranks, the first.

    Raises:
        EngineNotFound: there is none among the nodes that answered.
        UsageError: several nodes have one.
    """
    return find_ranks(snapshot, name_or_id, node)[0]


def find_ranks(
    snapshot: FleetSnapshot, name_or_id: str, node: str | None = None
) -> tuple[Located, ...]:
    """Return the ranks of the deployment of that id or name, by rank; of an engine on one node, that alone.

    Of several with one name, the one that is not over; of those that are over, the one started last. A rank's own id,
    or a node, choose that rank alone.

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
    found = found or [item for item in everything if deployment_id(item[1]) == name_or_id]
    found = found or [item for item in everything if item[1].name == name_or_id]
    if not found:
        raise _not_found(snapshot, name_or_id, node, [item[1].name for item in everything])
    groups = list(group_ranks(found).values())
    # A deployment lives while any of its ranks does: those that ended already belong to it.
    living = [group for group in groups if not all(item.state.is_over for _, item in group)]
    choice = living or groups
    nodes = sorted({"+".join(name for name, _ in group) for group in choice})
    if len(nodes) > 1:
        raise UsageError(
            f"{name_or_id} is on several nodes", ", ".join(nodes), "say which with --node, or by id"
        )
    latest: list[Located] = max(choice, key=lambda group: str(group[0][1].started_at or ""))
    return tuple(latest)


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


async def _withdraw(fleet: Fleet, ranks: Iterable[RankPlan], launch_id: str) -> None:
    """Stop what may have started of a launch that failed: also a rank whose answer was lost."""

    async def end(rank: RankPlan) -> None:
        # The first error is the one to tell. A node that went away hears of the end from its peers when it is back.
        with suppress(LlmgwError):
            key = f"withdraw-{launch_id}-{rank.rank}"
            await fleet.client(rank.node).stop(key, rank.engine_id, None)

    await asyncio.gather(*(end(rank) for rank in ranks))
