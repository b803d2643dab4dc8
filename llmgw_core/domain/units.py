"""Small conversions that several layers share."""

import re
from typing import List, Sequence, Tuple, Union

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


def format_indices(indices: Sequence[int]) -> str:
    """`0-3,6`: runs of ascending indices as ranges."""
    runs: List[List[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
