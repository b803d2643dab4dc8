"""The last minutes of a node's readings, as the console that watches saw them. Pure: times come in.

Kept on the operator's side alone, so that a node which nobody watches does nothing for it. A console that has just come
has no past, and says so: a history begins with its first reading.

Bound: a slot of five seconds holds the mean of what came in it, 132 of them are kept (eleven minutes), as floats of four
bytes. A node of eight GPUs and ten ports has 54 series in about 45 kB; no node gets more than MAX_SERIES.
"""

import math
from array import array
from collections.abc import Iterator

from llmgw_core.domain.hardware import Host
from llmgw_core.domain.inventory import Node

SLOT_S = 5.0
SLOTS = 132
MAX_SERIES = 512
GPU_READINGS = ("utilization_percent", "memory_used_mib", "power_watts", "temperature_celsius")
PORT_READINGS = ("rx_gbps", "tx_gbps")
HOST_READINGS = ("cpu_percent", "memory_used_percent")
_NAN = math.nan

SeriesKey = tuple[str, str, str]  # kind, which one, reading


class Series:
    """One reading over time: the mean of each slot, nothing where none came."""

    __slots__ = ("_count", "_values", "last_slot")

    def __init__(self) -> None:
        self._values = array("f", [_NAN]) * SLOTS
        self._count = 0  # of values in the last slot
        self.last_slot = -1

    def add(self, slot: int, value: float) -> None:
        """Take a value; one for a slot that has passed is left out."""
        if slot < self.last_slot:
            return
        place = slot % SLOTS
        if slot > self.last_slot:
            first = max(self.last_slot + 1, slot - SLOTS + 1) if self.last_slot >= 0 else slot
            for skipped in range(first, slot + 1):
                self._values[skipped % SLOTS] = _NAN
            self.last_slot, self._count = slot, 0
        self._count += 1
        before = 0.0 if self._count == 1 else self._values[place]
        self._values[place] = before + (value - before) / self._count

    def values(self, first: int, last: int) -> Iterator[float | None]:
        """The means of these slots, at most as many as are kept before `last`."""
        for slot in range(first, last + 1):
            is_kept = self.last_slot - SLOTS < slot <= self.last_slot
            value = self._values[slot % SLOTS] if is_kept else _NAN
            yield None if math.isnan(value) else value


class NodeHistory:
    """All series of one node."""

    slot_s = SLOT_S

    def __init__(self) -> None:
        self._series: dict[SeriesKey, Series] = {}
        self._first = self._last = -1

    def record(self, node: Node, at_s: float) -> None:
        """Take a reading of the node.

        Args:
            at_s: seconds on a clock that never goes back.
        """
        slot = max(int(at_s / SLOT_S), self._last)
        self._first = slot if self._first < 0 else self._first
        if slot > self._last:
            self._last = slot
            self._forget_old()
        for key, value in _list_readings(node):
            series = self._series.get(key)
            if series is None:
                if value is None or len(self._series) >= MAX_SERIES:
                    continue
                series = self._series[key] = Series()
            if value is not None and math.isfinite(value):
                series.add(slot, value)

    def values(self, kind: str, name: str, reading: str) -> tuple[float | None, ...]:
        """The reading, oldest first, one value a slot up to the last reading of the node; None: not known then.

        Begins with the console's first reading of the node. Empty when that reading never came.
        """
        series = self._series.get((kind, name, reading))
        if series is None:
            return ()
        first = max(self._first, self._last - SLOTS + 1)
        return tuple(series.values(first, self._last))

    def _forget_old(self) -> None:
        """A GPU that was exchanged, an adapter that went: their past ends with the window."""
        gone = [key for key, item in self._series.items() if item.last_slot <= self._last - SLOTS]
        for key in gone:
            del self._series[key]


def _list_readings(node: Node) -> Iterator[tuple[SeriesKey, float | None]]:
    for gpu in node.gpus:
        for reading in GPU_READINGS:
            yield ("gpu", gpu.uuid or str(gpu.index), reading), getattr(gpu, reading)
    for port in node.ports:
        for reading in PORT_READINGS:
            yield ("port", f"{port.hca}:{port.port}", reading), getattr(port, reading)
    yield ("host", "", "cpu_percent"), node.host.cpu_percent
    yield ("host", "", "memory_used_percent"), _memory_used_percent(node.host)


def _memory_used_percent(host: Host) -> float | None:
    total, available = host.memory_total_bytes, host.memory_available_bytes
    return None if not total or available is None else 100 * (total - available) / total
