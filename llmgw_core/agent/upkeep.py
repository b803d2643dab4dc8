"""Keeps an engine's log being read: a shim that was killed gets a successor before the pipe is full."""

import signal
from typing import Dict, Mapping, Optional

from llmgw_core.agent.members import is_living, send_signal
from llmgw_core.agent.observation import Engine
from llmgw_core.agent.procfs import read_stat
from llmgw_core.agent.records import ProcessId, TornRecord, read_record
from llmgw_core.agent.spawn import start_pump

RETRY_AFTER_S = 2.0  # a new pump has recorded itself long before


class Upkeep:
    """Watches over the processes that store logs."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._tried_at: Dict[str, float] = {}

    def keep_pump(self, engine: Engine, now: float) -> None:
        """Start a pump where the shim is gone and the leader lives; wake one that somebody stopped.

        Raises:
            OSError: no process could be started.
        """
        if engine.run is None:
            return
        pump = self._find_pump(engine, engine.run.shim)
        if pump is not None:
            stat = read_stat(pump.pid)
            if stat is not None and stat.state == "T":
                send_signal(pump, signal.SIGCONT)
            return
        if not engine.leader_lives or now - self._tried_at.get(engine.id, -1e9) < RETRY_AFTER_S:
            return
        self._tried_at[engine.id] = now
        start_pump(engine.directory, self._env)

    def _find_pump(self, engine: Engine, shim: ProcessId) -> Optional[ProcessId]:
        if is_living(shim):
            return shim
        try:
            pump = read_record(engine.directory.pump, ProcessId)
        except TornRecord:
            return None  # the successor writes it anew
        return pump if pump is not None and is_living(pump) else None
