"""Ending an engine: SIGTERM, a grace period, SIGKILL to everything of it, and no claim that it is over before it is.

Each step is taken by a tick, from records on disk and the time since boot: a new daemon goes on where the old one was.
"""

import signal
from typing import AbstractSet, Callable, Optional, Sequence

from llmgw_core.agent.cgroups import kill_cgroup
from llmgw_core.agent.members import Census, describe, identify, send_signal, send_signal_to_group
from llmgw_core.agent.observation import Engine
from llmgw_core.agent.ports import find_listener
from llmgw_core.agent.procfs import ProcessStat
from llmgw_core.domain.engine import Diagnosis, EngineState

SECOND_TERM_AFTER_S = 6.0  # a first one is swallowed while vLLM's processes shake hands
STUCK_AFTER_KILL_S = 20.0
EMPTY_SCANS_NEEDED = 2
ORPHAN_GRACE_S = 5.0  # of members whose leader is gone: nobody is left to shut them down in order
PORT_PATIENCE_S = 5.0
GPU_PATIENCE_S = 12.0  # for an nvidia-smi that does not answer: then nobody can tell

# Pids that hold GPU memory by a reading begun at most so many seconds ago; None: there is none (yet). Never blocks.
ListGpuPids = Callable[[float], Optional[AbstractSet[int]]]


class Stopper:
    """Carries one engine's stop forward. Holds nothing that the records do not, but for what was sent."""

    def __init__(self, engine: Engine, list_gpu_pids: Optional[ListGpuPids] = None) -> None:
        self._engine = engine
        self._list_gpu_pids = list_gpu_pids
        self._terms = 0
        self._empty_since: Optional[float] = None

    def step(self, now: float, census: Census) -> bool:
        """One step. True: nothing of the engine is left, its port is free, its GPUs' memory is back.

        Args:
            now: seconds since boot.
            census: every process there is.
        """
        engine = self._engine
        members = engine.scan(census, with_markers=True)
        if not members:
            return self._settle(now)
        engine.empty_scans = 0
        self._empty_since = None
        intent = engine.intent
        kill_at = intent.kill_at_boottime if intent and intent.kill_at_boottime else now
        if now >= kill_at:
            self._kill(members)
        else:
            term_at = intent.term_at_boottime if intent and intent.term_at_boottime else now
            self._terminate(now - term_at, members)
        stuck = now >= kill_at + STUCK_AFTER_KILL_S
        engine.state = EngineState.STUCK if stuck else EngineState.STOPPING
        engine.diagnosis = _tell_stuck(members) if stuck else None
        return False

    def _terminate(self, since_s: float, members: Sequence[ProcessStat]) -> None:
        """SIGTERM once; again when the first may have fallen into a start-up. A serving engine that drains is let be."""
        again = self._terms == 1 and since_s >= SECOND_TERM_AFTER_S and self._engine.ready is None
        if self._terms and not again:
            return
        self._terms += 1
        run = self._engine.run
        if run is None or not send_signal_to_group(run, signal.SIGTERM):
            for process in identify(members):
                send_signal(process, signal.SIGTERM)

    def _kill(self, members: Sequence[ProcessStat]) -> None:
        if self._engine.cgroup:
            kill_cgroup(self._engine.cgroup)
        run = self._engine.run
        if run is not None:
            send_signal_to_group(run, signal.SIGKILL, members)
        for process in identify(members):
            send_signal(process, signal.SIGKILL)

    def _settle(self, now: float) -> bool:
        engine = self._engine
        engine.empty_scans += 1
        self._empty_since = now if self._empty_since is None else self._empty_since
        if engine.empty_scans < EMPTY_SCANS_NEEDED:
            return False
        if engine.shim_lives and now < self._empty_since + PORT_PATIENCE_S:
            return False  # it is about to record how the leader ended
        return self._is_port_free(now) and self._is_memory_back(now - self._empty_since)

    def _is_port_free(self, now: float) -> bool:
        engine = self._engine
        since = now if self._empty_since is None else self._empty_since
        port = engine.spec.rank.port if engine.spec else None
        holder = find_listener(port) if port is not None else None
        if holder is None or now >= since + STUCK_AFTER_KILL_S:
            return True  # by then whoever listens is somebody else
        if now >= since + PORT_PATIENCE_S:
            engine.diagnosis = Diagnosis(
                "port-held",
                f"its processes are gone, and port {port} is still held by {holder}",
                "stop that process, or wait: it may be a stranger that took the port",
            )
        return False

    def _is_memory_back(self, waited_s: float) -> bool:
        """Whether the driver lists none of its processes any more: it gives memory back after their end, or never."""
        engine = self._engine
        gpus = engine.spec.rank.gpus if engine.spec else ()
        if self._list_gpu_pids is None or not gpus:
            return True
        listed = self._list_gpu_pids(waited_s)
        if listed is None:
            return waited_s >= GPU_PATIENCE_S
        holders = sorted(listed & engine.pids_seen)
        if holders and waited_s >= STUCK_AFTER_KILL_S:
            engine.state = EngineState.STUCK
            engine.diagnosis = _tell_held(gpus, holders)
        return not holders


def _tell_held(gpus: Sequence[int], pids: Sequence[int]) -> Diagnosis:
    return Diagnosis(
        "gpu-memory-held",
        f"its processes are gone, and the driver still lists {', '.join(map(str, pids))} on GPU"
        f" {', '.join(map(str, gpus))}",
        "wait; if it stays, `nvidia-smi --gpu-reset` with nothing else on that GPU, or a reboot, frees it",
    )


def _tell_stuck(members: Sequence[ProcessStat]) -> Diagnosis:
    names = ", ".join(describe(stat) for stat in members)
    return Diagnosis(
        "stuck",
        f"still there {STUCK_AFTER_KILL_S:g} s after SIGKILL: {names}",
        "a process in state D waits for a driver or a file system: look at dmesg; a reboot may be the only way",
    )
