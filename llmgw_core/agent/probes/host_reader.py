"""The host read again and again: what needs two readings, and a disk that may not answer."""

import time
from dataclasses import replace
from typing import Mapping, Optional, Tuple

from llmgw_core.agent.aside import Aside
from llmgw_core.agent.probes.files import read_text
from llmgw_core.agent.probes.host import parse_cpu_ticks, read_host
from llmgw_core.agent.probes.model_cache import Room, find_hub_cache, read_room
from llmgw_core.domain.hardware import Host

ROOM_AGE_S = 30.0
ROOM_WAIT_S = 0.2
CPU_INTERVAL_S = 60.0  # the use over more says nothing of now


class HostReader:
    """One reading at a time. Never fails; takes at most `ROOM_WAIT_S`, once, where the disk of the models hangs."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._cache = find_hub_cache(env)
        self._aside = Aside()
        self._room = Room()
        self._room_until = float("-inf")  # monotonic
        self._ticks: Optional[Tuple[int, int]] = None  # busy, all
        self._ticks_at = float("-inf")  # monotonic

    def read(self) -> Host:
        """The host now; its CPU use since the last reading, unless that is long ago."""
        room = self._read_room()
        return replace(
            read_host(),
            cpu_percent=self._read_cpu(),
            model_cache=self._cache,
            model_cache_total_bytes=room.total_bytes,
            model_cache_free_bytes=room.free_bytes,
        )

    def _read_cpu(self) -> Optional[float]:
        now, ticks = time.monotonic(), parse_cpu_ticks(read_text("/proc/stat") or "")
        before, is_old = self._ticks, now - self._ticks_at > CPU_INTERVAL_S
        self._ticks, self._ticks_at = ticks, now
        if before is None or ticks is None or is_old:
            return None
        busy, total = ticks[0] - before[0], ticks[1] - before[1]
        return round(100 * busy / total, 1) if 0 <= busy <= total and total > 0 else None

    def _read_room(self) -> Room:
        """What is not there in time is unknown, and not asked for again before it has come."""
        if time.monotonic() < self._room_until:
            return self._room
        self._room = Room()
        if self._aside.run(self._keep_room, ROOM_WAIT_S):
            self._room_until = time.monotonic() + ROOM_AGE_S
            return self._room
        return Room()

    def _keep_room(self) -> None:
        self._room = read_room(self._cache)
