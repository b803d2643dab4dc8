"""InfiniBand partitions: which key lets all nodes of a launch hear one another. Pure.

A key's low 15 bits name the partition, bit 15 says full member. Two limited members do not hear one another; one limited and
one full do. NCCL takes the key at one index for all ports of a node.

Source: InfiniBand Architecture Specification, volume 1, 10.9; NCCL src/transport/net_ib/connect.cc.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from llmgw_core.domain.hardware import Port

FULL_MEMBER = 0x8000
_PARTITION = 0x7FFF
_KEY = re.compile(r"0x[0-9a-fA-F]{1,4}")


@lru_cache(maxsize=1024)  # the same few keys, for each pair of nodes
def read_pkey(text: str) -> int:
    """`0xffff` → 65535; what is no key is 0, an empty place of the table."""
    return int(text, 16) if _KEY.fullmatch(text) else 0


def find_pkey_indices(ports: Mapping[str, Sequence[Port]]) -> Mapping[str, int] | None:
    """The index of one partition's key on each node, 0 everywhere where that serves; None: no partition joins them all.

    Tables that could not be read disprove nothing: then it is 0.

    Args:
        ports: by node, at least one each.
    """
    tables = {
        name: [tuple(map(read_pkey, port.pkeys)) for port in own] for name, own in ports.items()
    }
    if not all(table for own in tables.values() for table in own):
        return dict.fromkeys(ports, 0)
    first = next(iter(tables.values()))[0]
    partitions = dict.fromkeys(key & _PARTITION for key in first if key & _PARTITION)
    fitting = [
        found for partition in partitions if (found := _find_indices(tables, partition)) is not None
    ]
    return min(fitting, key=lambda found: any(found.values()), default=None)


def _find_indices(
    tables: Mapping[str, Sequence[Sequence[int]]], partition: int
) -> dict[str, int] | None:
    """The partition's index by node; None where a node has none, or more than one node is a limited member."""
    indices: dict[str, int] = {}
    limited = 0
    for name, own in tables.items():
        common = [
            place
            for place in range(min(map(len, own)))
            if all(table[place] & _PARTITION == partition for table in own)
        ]
        full = [place for place in common if all(table[place] & FULL_MEMBER for table in own)]
        if not common:
            return None
        limited += not full
        indices[name] = min(full or common)
    return indices if limited <= 1 else None
