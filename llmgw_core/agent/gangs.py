"""The gangs of one instance: what each rank is told by the others, and what becomes of it then.

A rank that ended ends the others, by the node's own decision: no console need be there. One that is silent makes the
gang unready and nothing more: its node may be cut off, and its engine may live.
"""

import contextlib
from typing import Dict, Optional

from llmgw_core.agent.gang_link import (
    FAILED,
    LOADING,
    READY,
    STOPPED,
    GangLink,
    GangView,
    is_gang,
)
from llmgw_core.agent.observation import Engine
from llmgw_core.domain.engine import Diagnosis, EngineState
from llmgw_core.domain.launch import RankPlan

GANG_GRACE_S = 3.0  # a gang without one of its ranks has nothing to drain
TELL_ENDED_S = 3600.0  # how long a rank that is over says so to nodes that come back
OPERATOR, LOST, TOO_LATE = "operator", "gang-lost", "load-deadline"


class Gangs:
    """A link for each engine that is one rank of several. Not thread-safe: its supervisor holds the lock."""

    def __init__(self) -> None:
        self._links: Dict[str, GangLink] = {}
        self._over_at: Dict[str, float] = {}

    def step(self, engine: Engine, now: float) -> Optional[str]:
        """Tell the others of this rank, and set its state by what they say. Returns why it is to be stopped, if it is.

        Args:
            now: seconds since boot.
        """
        rank = engine.spec.rank if engine.spec else None
        if rank is None or rank.gang is None or engine.state is EngineState.UNKNOWN:
            return None
        link = self._find_link(engine, rank, now)
        if link is None:
            return None
        link.tell(*_describe(engine))
        if engine.wants_stop:
            if engine.diagnosis is None:
                engine.diagnosis = engine.kept_diagnosis
            return None
        if engine.state is EngineState.ORPHANS:
            return LOST  # with its first process the gang is over: what it left is ended with the others
        if engine.is_over or engine.leader_gone_at is not None:
            return None
        return self._judge(engine, rank, link.view(), now)

    def leave(self, engine_id: str) -> None:
        """Say and hear nothing more for it."""
        link = self._links.pop(engine_id, None)
        if link is not None:
            link.close()
        self._over_at.pop(engine_id, None)

    def close(self, wait_s: float = 0.0) -> None:
        """End all links."""
        for link in self._links.values():
            link.close(wait_s)
        self._links.clear()

    def _find_link(self, engine: Engine, rank: RankPlan, now: float) -> Optional[GangLink]:
        link = self._links.get(engine.id)
        if engine.is_over:
            began = self._over_at.setdefault(engine.id, now)
            if now - began > TELL_ENDED_S:
                if link is not None:
                    link.close()
                    del self._links[engine.id]
                return None
        if link is None:
            key = _read_key(engine)
            if not is_gang(rank, key):
                return None
            link = self._links[engine.id] = GangLink(rank, bytes.fromhex(key))
        return link

    def _judge(self, engine: Engine, rank: RankPlan, view: GangView, now: float) -> Optional[str]:
        if view.ended is not None:
            number, state, why = view.ended
            if state == STOPPED:
                return OPERATOR
            engine.keep_diagnosis(_tell_lost(rank, number, why))
            return LOST
        if engine.state is not EngineState.READY:
            return None
        whole = engine.directory.gang_ready
        if view.all_ready:
            if not whole.exists():
                with contextlib.suppress(OSError):  # a full disk: the next daemon is less patient
                    whole.touch(0o600)
            return None
        was_whole = whole.exists()
        if was_whole and view.is_new and not view.silent and not view.trouble:
            return None  # this daemon has just begun, and the engine serves
        if was_whole or view.silent:
            engine.state = EngineState.UNREADY
        else:
            engine.state = EngineState.LOADING
            if engine.run and now - engine.run.started_boottime > rank.load_deadline_seconds:
                return TOO_LATE
        engine.diagnosis = _tell_incomplete(rank, view)
        return None


def _describe(engine: Engine) -> "tuple[str, str]":
    """(state, why) of this rank as the others are told."""
    if engine.state is EngineState.FAILED:
        found = engine.diagnosis
        return FAILED, f"{found.code}: {found.message}" if found else "it failed"
    if engine.state is EngineState.STOPPED:
        return STOPPED, "it was stopped"
    if engine.wants_stop:
        cause = engine.intent.cause if engine.intent else OPERATOR
        if cause == OPERATOR:
            return STOPPED, "it is being stopped"
        found = engine.diagnosis
        return FAILED, f"{found.code}: {found.message}" if found else f"it is stopped: {cause}"
    if engine.leader_gone_at is not None:
        ended = engine.ended.reason if engine.ended else "not known how"
        return FAILED, f"its first process is gone ({ended})"
    return (READY, "") if engine.state is EngineState.READY else (LOADING, "")


def _name(rank: RankPlan, number: int) -> str:
    return f"rank {number} on {rank.gang.members[number].node}" if rank.gang else f"rank {number}"


def _tell_lost(rank: RankPlan, number: int, why: str) -> Diagnosis:
    return Diagnosis(
        "gang-rank-lost",
        f"{_name(rank, number)} ended, and all {rank.ranks} end with it: {why}",
        f"look at that rank first: llmgw diagnose {rank.name}",
    )


def _tell_incomplete(rank: RankPlan, view: GangView) -> Optional[Diagnosis]:
    if view.trouble:
        return Diagnosis(
            "gang-deaf",
            f"nothing can be heard of the other ranks here: {view.trouble}",
            "is that still this node's address, and is the port free?",
        )
    names = ", ".join(_name(rank, number) for number in view.silent or view.missing)
    if view.silent:
        return Diagnosis(
            "gang-rank-silent",
            f"{names} is not heard of any more: unreachable, which is not dead",
            "bring its node or its network back; relaunch elsewhere only once that node is fenced",
        )
    if view.missing:
        return Diagnosis(
            "gang-rank-missing",
            f"{names} was not heard of yet",
            f"UDP port {rank.gang.port if rank.gang else '?'} must be open between the nodes",
        )
    return None


def _read_key(engine: Engine) -> str:
    try:
        return engine.directory.gang_key.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
