"""What `nvidia-smi -lms` prints without end, cut into sweeps over all GPUs, and laid over the last full reading. Pure.

Rows of one sweep share no mark: a sweep ends with the last GPU's row, or where the index starts again. One that lacks a
row, or has a torn one, counts for nothing: the next comes soon.
"""

from dataclasses import dataclass, replace
from typing import Callable, List, Optional, Sequence, Tuple, TypeVar

from llmgw_core.agent.probes.gpu_holders import HELD_ABOVE_MIB
from llmgw_core.agent.probes.nvidia_smi import GpuRow, parse_cell
from llmgw_core.domain.hardware import Gpu

# Asked for in this order, as far as nvidia-smi knows them. All are old.
LIVE_FIELDS: Tuple[str, ...] = (
    "index",
    "uuid",
    "memory.used",
    "memory.free",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "clocks.sm",
    "clocks.mem",
)
LIVE_KEYS = ("index", "uuid")  # without both, a row cannot be told to be whole, or whose it is
_MAX_LINE_BYTES = 4096
_SHOWN_CHARS = 200

Sweep = Tuple[GpuRow, ...]
T = TypeVar("T")


class SweepParser:
    """Takes what comes, piece by piece, and gives whole sweeps.

    Args:
        fields: as they were asked for, `index` first.
        expected: how many GPUs there are, by the last full reading.
    """

    def __init__(self, fields: Sequence[str], expected: int) -> None:
        self.expected = expected
        self.misfits = 0  # sweeps that had another number of rows, or a torn one
        self.last_words = ""  # the last line that was no row
        self._fields = tuple(fields)
        self._rest = b""
        self._rows: List[GpuRow] = []
        self._last = -1  # index of the last row
        self._is_torn = False

    def feed(self, data: bytes) -> List[Sweep]:
        """The sweeps that are complete by now, oldest first."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        found = []
        for line in lines:
            sweep = self._take(line.decode("utf-8", "replace").strip())
            if sweep is not None:
                found.append(sweep)
        if len(self._rest) > _MAX_LINE_BYTES:  # no row is as long
            self._rest, self._is_torn = b"", True
        return found

    def _take(self, line: str) -> Optional[Sweep]:
        cells = line.split(", ")
        if not cells[0].isdecimal() or len(cells) == 1:
            if line:
                self.last_words = line[:_SHOWN_CHARS]
            return None
        index = int(cells[0][:9])
        if index <= self._last:
            self._begin()
        self._last = index
        if len(cells) != len(self._fields):
            self._is_torn = True
            return None
        row = GpuRow({name: parse_cell(cell) for name, cell in zip(self._fields, cells)})
        self._rows.append(row)
        is_whole = len(self._rows) == self.expected and not self._is_torn
        return tuple(self._rows) if is_whole else None

    def _begin(self) -> None:
        """Another sweep: was the last one as it should be?"""
        if self._is_torn or len(self._rows) != self.expected:
            self.misfits += 1
        self._rows = []
        self._is_torn = False


@dataclass(frozen=True)
class Overlay:
    """GPUs with the readings of a sweep, and whether the sweep tells of something that a full reading has to judge."""

    gpus: Tuple[Gpu, ...]
    is_doubtful: bool = False


def lay_over(gpus: Sequence[Gpu], sweep: Sweep) -> Overlay:
    """The GPUs with the sweep's readings in place of older ones. Health, owners and availability stay as judged.

    What a GPU did not tell in the full reading it is not believed to tell now: a dead one reads as empty and idle. A cell
    that failed is unknown. NVIDIA's alone; other makers' GPUs pass unchanged.
    """
    rows = {row.text("uuid") or row.text("index"): row for row in sweep}
    nvidia = {gpu.uuid or str(gpu.index) for gpu in gpus if gpu.vendor == "nvidia"}
    is_doubtful = nvidia != set(rows)
    laid = []
    for gpu in gpus:
        row = rows.get(gpu.uuid or str(gpu.index)) if gpu.vendor == "nvidia" else None
        if row is not None:
            now = _lay_row(gpu, row)
            is_doubtful = is_doubtful or _is_doubtful(gpu, now)
            gpu = now  # noqa: PLW2901 - the same GPU, later
        laid.append(gpu)
    return Overlay(tuple(laid), is_doubtful)


def _lay_row(gpu: Gpu, row: GpuRow) -> Gpu:
    return replace(
        gpu,
        memory_used_mib=_update(gpu.memory_used_mib, row, "memory.used", row.whole),
        memory_free_mib=_update(gpu.memory_free_mib, row, "memory.free", row.whole),
        utilization_percent=_update(gpu.utilization_percent, row, "utilization.gpu", row.whole),
        temperature_celsius=_update(gpu.temperature_celsius, row, "temperature.gpu", row.whole),
        power_watts=_update(gpu.power_watts, row, "power.draw", row.number),
        clock_sm_mhz=_update(gpu.clock_sm_mhz, row, "clocks.sm", row.whole),
        clock_memory_mhz=_update(gpu.clock_memory_mhz, row, "clocks.mem", row.whole),
    )


def _update(
    old: Optional[T], row: GpuRow, name: str, read: Callable[[str], Optional[T]]
) -> Optional[T]:
    """The reading of a sweep that was asked for it, where the full reading had one."""
    return old if old is None or name not in row.cells else read(name)


def _is_doubtful(judged: Gpu, now: Gpu) -> bool:
    """A reading that fails now, or memory that came or went: health and processes may be other ones."""
    used, before = now.memory_used_mib, judged.memory_used_mib
    if used is not None and before is not None and abs(used - before) > HELD_ABOVE_MIB:
        return True
    return _count_unknown(now) > _count_unknown(judged)


def _count_unknown(gpu: Gpu) -> int:
    readings = (gpu.memory_used_mib, gpu.utilization_percent, gpu.temperature_celsius)
    return (*readings, gpu.power_watts, gpu.clock_sm_mhz).count(None)
