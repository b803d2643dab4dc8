"""NCCL_IB_HCA as NCCL itself reads it. Pure.

Source: NCCL src/misc/utils.cc (parseStringList, matchIfList), src/transport/net_ib/init.cc.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from llmgw_core.domain.hardware import Port
from llmgw_core.planning.fabric_verdicts import label

MAX_ENTRIES = 32  # NCCL parses no more, and keeps no more devices
_LEADING_INT = re.compile(r"\s*([+-]?\d+)")


@dataclass(frozen=True)
class HcaFilter:
    """A parsed value: which ports it selects."""

    is_exact: bool  # names are compared whole; else they are prefixes
    is_negated: bool  # what matches is left out
    entries: tuple[tuple[str, int | None], ...]  # (name, port); None: every port

    def selects(self, hca: str, port: int) -> bool:
        """Whether NCCL would use that port. A list without entries matches everything."""
        is_match = not self.entries or any(
            (hca == name if self.is_exact else hca.startswith(name)) and wanted in (None, port)
            for name, wanted in self.entries
        )
        return is_match != self.is_negated


def parse_hca_filter(text: str) -> HcaFilter:
    """`[^][=]name[:port[:rail[:plane]]],…`. One prefix governs the whole list; blanks are not trimmed; a port that is no number is 0."""
    is_negated = text.startswith("^")
    rest = text[1:] if is_negated else text
    is_exact = rest.startswith("=")
    rest = rest[1:] if is_exact else rest
    entries = [_parse_entry(word) for word in rest.split(",") if word]
    return HcaFilter(is_exact, is_negated, tuple(entries[:MAX_ENTRIES]))


def format_hca_filter(ports: Iterable[Port]) -> str:
    """The value that selects exactly these ports, whatever others the node has: `=mlx5_0:1,mlx5_1:1`."""
    return "=" + ",".join(label(port) for port in ports)


def _parse_entry(word: str) -> tuple[str, int | None]:
    name, *fields = word.split(":")
    if not fields or fields[0] == "":
        return name, None
    number = _LEADING_INT.match(fields[0])
    return name, int(number.group(1)) if number else 0
