"""Small conversions that several layers share."""

import re
from typing import Tuple, Union

MIB_PER_GIB = 1024


def natural_key(name: str) -> Tuple[Tuple[int, Union[int, str]], ...]:
    """Sort key that counts numbers as numbers: n2 before n10."""
    return tuple(
        (0, int(part)) if part[0] in "0123456789" else (1, part)
        for part in re.split(r"([0-9]+)", name)
        if part
    )


def round_gib(memory_mib: int) -> int:
    """MiB as the driver reports it, rounded to whole GiB, half up (46068 → 45)."""
    return (memory_mib + MIB_PER_GIB // 2) // MIB_PER_GIB
