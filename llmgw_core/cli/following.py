"""Ranks that load, told as they go: until all are ready, or one will not be."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from llmgw_core.cli.output import print_note
from llmgw_core.cli.session import POLL_S
from llmgw_core.domain.deployment import find_failing_rank
from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.launch import RankPlan
from llmgw_core.errors import AgentTimeout, LaunchError, NodeError
from llmgw_core.fleet.fleet import Fleet

# The node itself calls an engine failed at the deadline; this is for one we cannot hear.
AWAY_S = 120.0
GANG_END_S = 60.0  # for the other ranks to end with the one that did
_LOADING = (EngineState.PENDING, EngineState.STARTING, EngineState.LOADING)
_ENDED = (
    EngineState.FAILED,
    EngineState.STOPPED,
    EngineState.ORPHANS,
    EngineState.STUCK,
    EngineState.UNKNOWN,
)


async def follow_ranks(
    fleet: Fleet, ranks: Sequence[RankPlan], statuses: Sequence[EngineStatus]
) -> tuple[EngineStatus, ...]:
    """Tell each change until every rank is ready, or one will not be. Returns their last statuses.

    Raises:
        AgentTimeout: a node has been away for so long that nobody knows.
    """
    shown: dict[int, str] = {}
    now = tuple(statuses)
    end = time.monotonic() + ranks[0].load_deadline_seconds + AWAY_S
    failed_at: float | None = None
    try:
        while True:
            _tell_changes(ranks, now, shown)
            if all(status.ready for status in now):
                return now
            if any(status.state in _ENDED for status in now):
                failed_at = failed_at or time.monotonic()
                # Nodes end the others by themselves: wait for it, so that nothing is left when this command returns.
                if (
                    all(status.state in _ENDED for status in now)
                    or time.monotonic() > failed_at + GANG_END_S
                ):
                    return now
            if time.monotonic() > end:
                raise _not_seen_ready(ranks, now)
            await asyncio.sleep(POLL_S)
            now = tuple(
                await asyncio.gather(
                    *(
                        _read_status(fleet, rank, status)
                        for rank, status in zip(ranks, now, strict=True)
                    )
                )
            )
    except asyncio.CancelledError:
        name = ranks[0].name
        print_note(
            f"{now[0].id} goes on without this command: watch it with `llmgw status`, "
            f"`llmgw logs {name} -f`; stop it with `llmgw stop {name}`"
        )
        raise


def explain_failure(ranks: Sequence[RankPlan], statuses: Sequence[EngineStatus]) -> LaunchError:
    """Why the launch failed: by the rank that is the cause, not by those that ended with it."""
    located = [(rank.node, status) for rank, status in zip(ranks, statuses, strict=True)]
    node, status = find_failing_rank(located)
    found = status.diagnosis
    rank = next(rank for rank in ranks if rank.rank == status.rank)
    ended = describe_exit(status)
    at = f" --node {node}" if len(ranks) > 1 else ""
    look = f"read its log: llmgw logs {rank.name}{at}"
    if found is None:
        return LaunchError(f"{status.id} is {status.state.value}", ended, look, node)
    hint = f"{found.hint}; {look}" if found.hint else look
    return LaunchError(f"{status.id} {found.code}: {found.message}", ended, hint, node)


def describe_progress(status: EngineStatus) -> str:
    """State, phase and progress in words: `loading weights 42 %`."""
    words = [status.state.value]
    if status.state in _LOADING and status.phase:
        words.append(status.phase)
        if status.progress is not None:
            words.append(f"{status.progress * 100:.0f} %")
    return " ".join(words)


def describe_exit(status: EngineStatus) -> str:
    """How it ended, in words; "" while it lives."""
    if status.exit is None:
        return ""
    if status.exit.signal is not None:
        return f"{status.exit.reason}, signal {status.exit.signal}"
    if status.exit.code is not None:
        return f"{status.exit.reason}, exit code {status.exit.code}"
    return status.exit.reason


def _tell_changes(
    ranks: Sequence[RankPlan], statuses: Sequence[EngineStatus], shown: dict[int, str]
) -> None:
    for rank, status in zip(ranks, statuses, strict=True):
        text = describe_progress(status)
        if text != shown.get(rank.rank):
            print_note(f"{rank.node} {status.id}: {text}")
            shown[rank.rank] = text


def _not_seen_ready(ranks: Sequence[RankPlan], statuses: Sequence[EngineStatus]) -> AgentTimeout:
    rank, late = next(pair for pair in zip(ranks, statuses, strict=True) if not pair[1].ready)
    return AgentTimeout(
        f"{late.id} was not seen ready",
        f"it was {describe_progress(late)} when last heard of",
        f"it goes on without this command: llmgw status, llmgw logs {rank.name}",
        rank.node,
    )


async def _read_status(fleet: Fleet, rank: RankPlan, last: EngineStatus) -> EngineStatus:
    """The engine now; the last known while the node is away, for the engine goes on without us."""
    try:
        engines = await fleet.client(rank.node).engines()
    except NodeError:
        return last
    found = next((engine for engine in engines if engine.id == rank.engine_id), None)
    # Somebody stopped and forgot it meanwhile.
    return found or replace(last, state=EngineState.STOPPED, ready=False)
