"""What nvidia-smi prints, read cell by cell. Pure: text in, values out, never an exception, never an invented zero.

A cell is a value, absent (the card has no such thing), or failed (it should have one, and reading it went wrong).
Messages come on stdout with an exit status that follows NVML's error codes.
Source: nvidia-smi(1), `nvidia-smi --help-query-gpu`, outputs of drivers 470 to 610.
"""

import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.probes.smi_fields import APP_FIELDS

_ABSENT = frozenset(
    {
        "",
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "[Requested functionality has been deprecated]",
        "[Function Not Found]",
    }
)
# Fewer cells than this, and a line is a sentence rather than a row cut short.
_MIN_ROW_CELLS = 2
_NUMBER = re.compile(r"(-?\d{1,15}(?:\.\d{1,6})?)(?:\s+\S+)?")  # "81559", "81559 MiB", "71.22"
_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.IGNORECASE)
_LOST = re.compile(
    r"device handle for\s+gpu\s*(\d{0,4}):?\s*([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Cell:
    """One cell. Neither text nor failure: absent."""

    text: Optional[str] = None
    failure: Optional[str] = None  # the token in its place, e.g. "[GPU requires reset]"


@dataclass(frozen=True)
class GpuRow:
    """One line about one GPU; a field that was not asked for, or was cut off, is an absent cell."""

    cells: Mapping[str, Cell]
    is_cut: bool = False  # the line ended early

    def text(self, name: str) -> Optional[str]:
        """The value as printed; None when absent or failed."""
        return self._cell(name).text

    def number(self, name: str) -> Optional[float]:
        """The value as a number that is not negative; None when absent, failed or no number."""
        match = _NUMBER.fullmatch(self._cell(name).text or "")
        if match is None or float(match.group(1)) < 0:
            return None
        return float(match.group(1))

    def signed(self, name: str) -> Optional[float]:
        """The value as a number that may be negative."""
        match = _NUMBER.fullmatch(self._cell(name).text or "")
        return None if match is None else float(match.group(1))

    def whole(self, name: str) -> Optional[int]:
        """The same, rounded."""
        value = self.number(name)
        return None if value is None else round(value)

    @property
    def failures(self) -> Dict[str, str]:
        """Token by field, of all cells that failed."""
        return {name: cell.failure for name, cell in self.cells.items() if cell.failure}

    def _cell(self, name: str) -> Cell:
        return self.cells.get(name, Cell())


@dataclass(frozen=True)
class AppRow:
    """One process that computes on a GPU. Under MIG the uuid is the whole GPU's."""

    gpu_uuid: str
    pid: int
    name: Optional[str]  # None: the driver does not know; often the process is gone
    memory_mib: Optional[int]


def parse_cell(text: str) -> Cell:
    """`[N/A]` and its relatives are absent; other bracketed words are the error text of a failed read."""
    text = text.strip()
    if text in _ABSENT:
        return Cell()
    if (text.startswith("[") and text.endswith("]")) or text == "ERR!":
        return Cell(failure=text)
    return Cell(text=text)


def parse_gpu_rows(text: str, fields: Sequence[str], *, is_sure: bool = True) -> List[GpuRow]:
    """The rows of `--query-gpu=<fields> --format=csv,noheader,nounits`, in order.

    Line: `0, GPU-6c1f…, NVIDIA H100 80GB HBM3, 00000000:18:00.0, 81559, 0, [N/A], …`. Messages between rows are left
    out. A line that was cut short is kept, and marked, with the cells that are surely whole.

    Args:
        is_sure: the command succeeded. If not, only lines that begin with an index count.
    """
    rows = []
    for line in _lines(text):
        if line.strip():
            row = _parse_gpu_row(line, fields, is_sure)
            if row is not None:
                rows.append(row)
    return rows


def _lines(text: str) -> List[str]:
    # Not splitlines(): a process name may hold what Unicode calls a line break.
    return [line.rstrip("\r") for line in text.split("\n")]


def _parse_gpu_row(line: str, fields: Sequence[str], is_sure: bool) -> Optional[GpuRow]:
    cells = line.split(", ")
    if cells[0].strip() == fields[0]:
        return None  # a header that was not asked for
    has_index = fields[0] == "index" and cells[0].strip().isdecimal()
    if len(cells) < len(fields):
        if not has_index or len(cells) < _MIN_ROW_CELLS:
            return None
        # The last cell may have lost its end.
        whole = {name: parse_cell(cell) for name, cell in zip(fields, cells[:-1])}
        return GpuRow(whole, is_cut=True)
    if not has_index and (not is_sure or _LOST.search(line)):
        return None
    if len(cells) > len(fields):
        cells = _join_surplus(cells, fields)
    return GpuRow({name: parse_cell(cell) for name, cell in zip(fields, cells)})


def _join_surplus(cells: List[str], fields: Sequence[str]) -> List[str]:
    """A comma too many can only be in the product's name."""
    surplus = len(cells) - len(fields)
    at = fields.index("name") if "name" in fields else len(fields) - 1
    return [*cells[:at], ", ".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]


def merge_rows(rows: Sequence[GpuRow], more: Sequence[GpuRow]) -> List[GpuRow]:
    """The rows, each with the cells that a second query gave for the same GPU.

    The same GPU has the same uuid, or the same index where one of the two has no uuid. Rows that nothing tells apart
    are taken in order, if there are as many.
    """
    by_key = {key: row for row in more for key in _keys(row)}
    if not by_key and len(rows) == len(more):
        return [_join(row, other) for row, other in zip(rows, more)]
    merged = []
    for row in rows:
        other = next((by_key[key] for key in _keys(row) if key in by_key), None)
        merged.append(row if other is None or _differ(row, other) else _join(row, other))
    return merged


def _keys(row: GpuRow) -> List[Tuple[str, str]]:
    found = ((name, row.text(name)) for name in ("uuid", "index"))
    return [(name, text) for name, text in found if text is not None]


def _differ(row: GpuRow, other: GpuRow) -> bool:
    first, second = row.text("uuid"), other.text("uuid")
    return first is not None and second is not None and first != second


def _join(row: GpuRow, other: GpuRow) -> GpuRow:
    return GpuRow({**other.cells, **row.cells}, is_cut=row.is_cut)


def parse_app_rows(text: str) -> List[AppRow]:
    """The rows of `--query-compute-apps=<APP_FIELDS> --format=csv,noheader,nounits`.

    Line: `GPU-6c1f…, 22249, /opt/app/serve --a=1,b=2, 2194`: the name may hold commas. Lines without a pid, as a
    container without rights gets, are left out.
    """
    rows = []
    for line in _lines(text):
        parts = line.split(", ", 2)
        if len(parts) != len(APP_FIELDS) - 1 or not parts[0].strip():
            continue
        name, comma, memory = parts[2].rpartition(", ")
        row = GpuRow({"pid": parse_cell(parts[1]), "memory": parse_cell(memory)})
        pid = row.whole("pid")
        if comma and pid:
            uuid = parts[0].strip()
            rows.append(AppRow(uuid, pid, _app_name(name), row.whole("memory")))
    return rows


def _app_name(text: str) -> Optional[str]:
    name = parse_cell(text).text
    return None if name in (None, "-", "Unknown Error") else name


def parse_lost_gpus(text: str) -> List[Tuple[Optional[int], str]]:
    """(index if it says one, bus id) of each GPU that the driver has no handle for.

    Lines: `Unable to determine the device handle for GPU1: 0000:3B:00.0: Unknown Error`,
    `… for GPU 0000:0B:00.0: GPU is lost.  Reboot the system to recover this GPU`, wrapped anywhere.
    """
    joined = " ".join(text.split())
    found: Dict[str, Optional[int]] = {}
    for index, bus_id in _LOST.findall(joined):
        normal = normalize_bus_id(bus_id)
        if normal:
            found.setdefault(normal, int(index) if index else None)
    return [(index, bus_id) for bus_id, index in found.items()]


def parse_corrupt_inforoms(text: str) -> List[str]:
    """Bus ids of the GPUs whose infoROM is corrupt: exit status 14, and the rows are valid all the same.

    Line: `WARNING: infoROM is corrupted at gpu 0000:B3:00.0`.
    """
    found = re.findall(r"infoROM is corrupted at gpu\s+(\S+)", text, re.IGNORECASE)
    return [bus_id for bus_id in map(normalize_bus_id, found) if bus_id]


def normalize_bus_id(text: Optional[str]) -> Optional[str]:
    """`00000000:18:00.0` as sysfs and the kernel's messages write it: `0000:18:00.0`; None when it is no address."""
    match = _BUS_ID.fullmatch((text or "").strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def parse_cuda_version(text: str) -> Optional[str]:
    """The newest CUDA the driver serves, from `nvidia-smi --version`, e.g. "12.4"; None when it does not say.

    Lines: `CUDA Version        : 12.4`; from driver 610 on `CUDA UMD Version    : 13.3`.
    """
    match = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d{1,3}\.\d{1,3})", text)
    return match.group(1) if match else None


def parse_driver_version(text: str) -> Optional[str]:
    """The loaded driver, from `nvidia-smi --version`, e.g. "550.54.15"; None when it does not say."""
    match = re.search(r"(?:DRIVER|KMD|Driver) [Vv]ersion\s*:\s*(\d{1,4}(?:\.\d{1,4}){1,3})", text)
    return match.group(1) if match else None
