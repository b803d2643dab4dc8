"""Which fields nvidia-smi is asked for, and what an nvidia-smi that does not know them all is asked instead. Pure.

One field that it does not know voids the whole query, so old fields and young ones are asked for apart.
Source: `nvidia-smi --help-query-gpu` of drivers 470 to 610.
"""

import re
from typing import FrozenSet, Mapping, Optional, Sequence, Tuple

# Every driver since 2017 knows these.
CORE_FIELDS: Tuple[str, ...] = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "memory.total",
    "memory.used",
    "memory.free",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "ecc.errors.uncorrected.volatile.total",
    "compute_mode",
    "display_active",
    "driver_version",
)
APP_FIELDS: Tuple[str, ...] = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")
# What a row of the second query is told by.
KEY_FIELDS: Tuple[str, ...] = ("index", "uuid")
THROTTLE_FIELD = "clocks_throttle_reasons.active"
# Younger, or of some products only.
EXTRA_FIELDS: Tuple[str, ...] = (
    "fan.speed",
    "persistence_mode",
    "ecc.mode.current",
    "ecc.errors.uncorrected.aggregate.total",
    "retired_pages.pending",
    "retired_pages.sbe",
    "retired_pages.dbe",
    "pci.device_id",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    THROTTLE_FIELD,
    "mig.mode.current",
    "remapped_rows.pending",
    "remapped_rows.failure",
    "remapped_rows.uncorrectable",
    "compute_cap",
    "temperature.gpu.tlimit",
    "addressing_mode",
    "fabric.state",
    "fabric.status",
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
    "gpu_recovery_action",
)
# The same reading under a name that other drivers know it by.
_OTHER_NAME: Mapping[str, str] = {
    THROTTLE_FIELD: "clocks_event_reasons.active",
    "clocks_event_reasons.active": THROTTLE_FIELD,
}
_MOST_HELP_FIELDS = 1000


def parse_help_fields(text: str) -> FrozenSet[str]:
    """The fields that `--help-query-gpu` lists, aliases too; empty when it lists none.

    Lines: `"memory.total"`, `"index" or "gpu_index"`; a value that a field can have also stands in quotation marks
    (`"0: Default"`), and is none.
    """
    found = set()
    for line in text.split("\n"):
        if line.startswith('"'):
            found.update(re.findall(r'"([a-z][A-Za-z0-9_.]{0,80})"', line))
            if len(found) > _MOST_HELP_FIELDS:
                break
    return frozenset(found)


def parse_rejected_field(text: str) -> Optional[str]:
    """The field this nvidia-smi does not know; None when that is not what it says.

    Line: `Field "compute_cap" is not a valid field to query.`
    """
    match = re.search(r'Field "([^"\n]{1,100})" is not a valid field to query', text)
    return match.group(1) if match else None


def keep_known(fields: Sequence[str], known: FrozenSet[str]) -> Tuple[str, ...]:
    """Those of the fields that are known, each under the name that is."""
    names = ((name, _OTHER_NAME.get(name, name)) for name in fields)
    return tuple(name if name in known else other for name, other in names if {name, other} & known)


def drop_field(
    fields: Sequence[str], rejected: str, known: FrozenSet[str] = frozenset()
) -> Tuple[str, ...]:
    """The fields to ask for after one was rejected.

    Those that the help lists, if that excludes it; else the same without it, or with its other name.
    """
    if rejected not in fields:
        return tuple(fields)
    by_help = keep_known(fields, known)
    if by_help and rejected not in by_help:
        return by_help
    other = _OTHER_NAME[rejected] if rejected == THROTTLE_FIELD else None
    renamed = (other if name == rejected else name for name in fields)
    return tuple(name for name in renamed if name is not None)


def canonical_name(field: str) -> str:
    """The name a reading goes by here, whatever it was asked for as."""
    return THROTTLE_FIELD if _OTHER_NAME.get(field) == THROTTLE_FIELD else field
