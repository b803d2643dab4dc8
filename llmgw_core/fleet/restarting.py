"""An engine started again as it was: its own plan, under a new launch id."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.launch import PLAN_SCHEMA, LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.errors import EngineNotFound, StopIncomplete
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.operations import launch_plan, stop_engine, take_secrets

POLL_S = 0.3
KILL_S = 60.0  # after the grace: SIGKILL, the rest of the set, and the node's own patience


async def restart_engine(
    fleet: Fleet,
    ranks: Sequence[tuple[str, str]],
    launch_id: str,
    environ: Mapping[str, str],
) -> tuple[EngineStatus, ...]:
    """Stop every rank of an engine, wait until nothing of it is left, and launch the same again, with its API key.

    Args:
        ranks: (node, engine id) of each rank.
        launch_id: 32 hex digits, a new one.
        environ: the operator's environment, where the plan's secrets come from.

    Raises:
        SpecError: a variable that it needs is not set here; nothing was stopped.
        StopIncomplete: something of it is left; nothing was started.
        LaunchError, NodeError: a node refused; what had started was told to stop.
    """
    plans = await asyncio.gather(*(fleet.client(node).read_plan(name) for node, name in ranks))
    keys = [
        await fleet.client(node).read_api_key(name)
        for (node, name), plan in zip(ranks, plans, strict=True)
        if plan.api_key is not None
    ]
    take_secrets(sorted({name for plan in plans for name in plan.env_from}), environ)
    await asyncio.gather(
        *(
            _end(fleet, node, name, plan.grace_seconds)
            for (node, name), plan in zip(ranks, plans, strict=True)
        )
    )
    # Its callers have the key already.
    key = next((key for key in keys if key), None)
    return await launch_plan(fleet, plan_again(list(plans), ranks, launch_id), environ, key)


def plan_again(
    plans: Sequence[RankPlan], ranks: Sequence[tuple[str, str]], launch_id: str
) -> LaunchPlan:
    """The same ranks under ids of another launch."""
    first = plans[0]
    again = tuple(
        replace(plan, node=node, engine_id=engine_id_of(plan, launch_id))
        for plan, (node, _) in sorted(zip(plans, ranks, strict=True), key=lambda pair: pair[0].rank)
    )
    env_from = tuple(sorted({name for plan in plans for name in plan.env_from}))
    request = LaunchRequest(first.name, first.engine, first.model, env_from=env_from)
    return LaunchPlan(PLAN_SCHEMA, launch_id, request, again)


def engine_id_of(plan: RankPlan, launch_id: str) -> str:
    """`chat-2daf10d7`; `-r1` behind it in a gang."""
    tail = f"-r{plan.rank}" if plan.ranks > 1 else ""
    return f"{plan.name}-{launch_id[:8]}{tail}"


async def _end(fleet: Fleet, node: str, engine_id: str, grace_seconds: float) -> None:
    """Stop it, and wait until it is over."""
    status = await stop_engine(fleet, node, engine_id, None)
    deadline = time.monotonic() + grace_seconds + KILL_S
    while not status.state.is_over:
        if status.state is EngineState.STUCK or time.monotonic() > deadline:
            found = status.diagnosis
            raise StopIncomplete(
                f"{engine_id} was not started again",
                found.message if found else f"it is still {status.state.value}",
                found.hint if found else "stop it first, then launch it",
                node,
            )
        await asyncio.sleep(POLL_S)
        status = await _find(fleet, node, engine_id)


async def _find(fleet: Fleet, node: str, engine_id: str) -> EngineStatus:
    for status in await fleet.client(node).engines():
        if status.id == engine_id:
            return status
    raise EngineNotFound(
        f"{engine_id} went away while it was stopped", "it was forgotten", "launch it anew", node
    )
