"""What amd-smi and rocm-smi print as JSON. Pure: text in, values out, never an exception, never an invented zero.

Keys drift from release to release, numbers are bare, in strings, or `{"value": 192, "unit": "MB"}`; so keys are found
by their words. Source: ROCm 5 to 7.
"""

import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

_ABSENT = frozenset({"", "N/A", "n/a", "None", "none", "Unknown", "unknown"})
_MIB_BY_UNIT = {
    "B": 1 / (1 << 20),
    "KB": 1 / 1024,
    "KIB": 1 / 1024,
    "MB": 1.0,
    "MIB": 1.0,
    "GB": 1024.0,
    "GIB": 1024.0,
}
_NUMBER = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z%]*)\s*")
_CARD = re.compile(r"card(\d{1,4})")
_MAX_DEPTH = 8
_MOST_BITS = 64
_FULL_PERCENT = 100
_MAX_GPUS = 64

Json = Any  # a tree of what json.loads gives


@dataclass(frozen=True)
class AmdRow:
    """What a tool or sysfs says of one AMD GPU."""

    index: int
    name: Optional[str] = None
    uuid: Optional[str] = None
    bus_id: Optional[str] = None  # "0000:05:00.0"
    architecture: Optional[str] = None  # "gfx942"
    memory_total_mib: Optional[int] = None
    memory_used_mib: Optional[int] = None
    utilization_percent: Optional[int] = None
    temperature_celsius: Optional[int] = None
    power_watts: Optional[float] = None
    power_limit_watts: Optional[float] = None
    ecc_uncorrected: Optional[int] = None


@dataclass(frozen=True)
class AmdProcess:
    """One process on an AMD GPU."""

    index: int
    pid: int
    name: Optional[str] = None
    memory_mib: Optional[int] = None


def parse_amd_smi(static: str, metric: str) -> List[AmdRow]:
    """The GPUs of `amd-smi static --json` and `amd-smi metric --json`, in order of index."""
    moving = dict(_list_gpus(metric))
    return [_build_row(index, item, moving.get(index, {})) for index, item in _list_gpus(static)]


def parse_rocm_smi(text: str) -> List[AmdRow]:
    """The GPUs of `rocm-smi --json`: `{"card0": {"VRAM Total Memory (B)": "206141652992", …}}`; numbers are strings."""
    data = _load(text)
    rows = []
    for key, item in data.items() if isinstance(data, dict) else ():
        match = _CARD.fullmatch(key)
        if match is not None and isinstance(item, dict):
            rows.append(_build_card(int(match.group(1)), item))
    return sorted(rows[:_MAX_GPUS], key=lambda row: row.index)


def parse_amd_processes(text: str) -> List[AmdProcess]:
    """The processes of `amd-smi process --json`; none where it says there are none."""
    found = []
    for index, item in _list_gpus(text):
        for node in _walk(item):
            pid = _whole(node.get("pid"))
            if pid:
                memory = _find(node, ("vram_mem",), ("memory_usage", "vram"), ("mem_usage",))
                name = _text(node.get("name"))
                found.append(AmdProcess(index, pid, name, _mib(memory, default_unit="B")))
    return found


def fill_gaps(rows: Sequence[AmdRow], others: Sequence[AmdRow]) -> List[AmdRow]:
    """The rows, with what another source knows of the same GPU: the same address, else the same index."""
    by_bus = {row.bus_id: row for row in others if row.bus_id is not None}
    by_index = {row.index: row for row in others}
    filled = []
    for row in rows:
        other = by_bus.get(row.bus_id) if row.bus_id is not None else by_index.get(row.index)
        missing = (
            {name: value for name, value in vars(other).items() if getattr(row, name) is None}
            if other is not None
            else {}
        )
        filled.append(replace(row, **missing))
    return filled


def _build_row(index: int, static: Mapping[str, Json], metric: Mapping[str, Json]) -> AmdRow:
    name = _find(static, ("asic", "market_name"), ("board", "product_name"), ("market_name",))
    temperature = _find(metric, ("temperature", "hotspot"), ("temperature", "edge"))
    return AmdRow(
        index=index,
        name=_text(name),
        uuid=_text(_find(static, ("uuid",), ("asic", "asic_serial"))),
        bus_id=_bus_id(_find(static, ("bus", "bdf"), ("bdf",))),
        architecture=_architecture(_find(static, ("asic", "target_graphics_version"))),
        memory_total_mib=_positive(
            _mib(_find(static, ("vram", "size")))
            or _mib(_find(metric, ("mem_usage", "total_vram"), ("vram", "total")))
        ),
        memory_used_mib=_mib(_find(metric, ("mem_usage", "used_vram"), ("vram", "used"))),
        utilization_percent=_percent(_find(metric, ("usage", "gfx_activity"))),
        temperature_celsius=_whole(temperature),
        power_watts=_number(_find(metric, ("power", "socket_power"), ("power", "average_socket"))),
        power_limit_watts=_number(_find(static, ("limit", "max_power"), ("limit", "power"))),
        ecc_uncorrected=_whole(
            _find(metric, ("ecc", "total_uncorrectable"), ("ecc", "uncorrectable"))
        ),
    )


def _build_card(index: int, card: Mapping[str, Json]) -> AmdRow:
    def pick(*words: str, not_: str = "\0") -> Json:
        """The first value whose key has all the words, and not the other."""
        names = {key: key.lower() for key in card}
        keys = (
            key
            for key, name in names.items()
            if all(word in name for word in words) and not_ not in name
        )
        return next((card[key] for key in keys), None)

    gfx = _architecture(pick("gfx", "version"))
    return AmdRow(
        index=index,
        name=_text(pick("market", "name")) or _text(pick("card", "series")),
        uuid=_text(pick("unique", "id")),
        bus_id=_bus_id(pick("pci", "bus")),
        architecture=gfx,
        memory_total_mib=_positive(
            _mib(pick("vram", "total", "memory", not_="used"), default_unit="B")
        ),
        memory_used_mib=_mib(pick("vram", "used"), default_unit="B"),
        utilization_percent=_percent(pick("gpu use")),
        temperature_celsius=_whole(pick("temperature", "junction"))
        or _whole(pick("temperature", "edge")),
        power_watts=_number(pick("power", "(w)")),
    )


def _list_gpus(text: str) -> List[Tuple[int, Dict[str, Json]]]:
    """(index, what is said of it) of each GPU of an amd-smi document: a list, or an object around one."""
    data = _load(text)
    if isinstance(data, dict):
        data = next((value for value in data.values() if isinstance(value, list)), [data])
    found: Dict[int, Dict[str, Json]] = {}
    for item in data if isinstance(data, list) else ():
        index = _whole(item.get("gpu")) if isinstance(item, dict) else None
        if index is not None and len(found) < _MAX_GPUS:
            found.setdefault(index, item)
    return sorted(found.items())


def _load(text: str) -> Json:
    """The JSON document in the text, with warnings before it left out; None when there is none."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    if not starts:
        return None
    try:
        # Of what follows the document nothing is expected; a second one is not read.
        return json.JSONDecoder().raw_decode(text[min(starts) :])[0]
    except (ValueError, RecursionError):
        return None


def _walk(item: Json, depth: int = 0) -> Iterator[Dict[str, Json]]:
    """Every object in a tree."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(item, dict):
        yield item
    children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    for child in children:
        yield from _walk(child, depth + 1)


def _find(item: Mapping[str, Json], *paths: Tuple[str, ...]) -> Json:
    """The value at the first path there is; each step is a key that has those words in it."""
    for path in paths:
        value: Json = item
        for step in path:
            value = _step(value, step)
        if value is not None:
            return value
    return None


def _step(value: Json, word: str) -> Json:
    if not isinstance(value, dict):
        return None
    if word in value:
        return value[word]
    return next((value[key] for key in value if word in key.lower()), None)


def _split(value: Json) -> Tuple[Optional[float], str]:
    """(number, unit) of `192`, `"192 MB"` or `{"value": 192, "unit": "MB"}`."""
    unit = ""
    if isinstance(value, dict):
        unit = str(value.get("unit") or "")
        value = value.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None, unit
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        return (None, unit) if match is None else (float(match.group(1)), match.group(2) or unit)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return None, unit
    return (float(value), unit) if math.isfinite(value) and value >= 0 else (None, unit)


def _number(value: Json) -> Optional[float]:
    return _split(value)[0]


def _whole(value: Json) -> Optional[int]:
    number = _split(value)[0]
    return None if number is None else round(number)


def _percent(value: Json) -> Optional[int]:
    number = _whole(value)
    return number if number is not None and number <= _FULL_PERCENT else None


def _mib(value: Json, default_unit: str = "MB") -> Optional[int]:
    number, unit = _split(value)
    factor = _MIB_BY_UNIT.get((unit or default_unit).upper())
    return None if number is None or factor is None else int(number * factor)


def _positive(value: Optional[int]) -> Optional[int]:
    return value or None  # a card without memory is a failed read


def _text(value: Json) -> Optional[str]:
    if isinstance(value, str) and value.strip() not in _ABSENT:
        return "".join(char if char.isprintable() else "?" for char in value.strip())[:120]
    return None


def _architecture(value: Json) -> Optional[str]:
    match = re.search(r"gfx[0-9a-f]{3,6}", value) if isinstance(value, str) else None
    return match.group(0) if match else None


def _bus_id(value: Json) -> Optional[str]:
    pattern = r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])"
    match = re.fullmatch(pattern, value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()
