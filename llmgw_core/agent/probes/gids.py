"""A port's GID table: which addresses it has, and which of them traffic would use."""

from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Sequence

from llmgw_core.agent.probes.files import list_names, read_text
from llmgw_core.domain.fabric import ROCE_V2, ipv4_of, is_routable, parse_gid

MAX_GIDS = 256  # the largest table seen


@dataclass(frozen=True)
class Gid:
    """One filled slot."""

    index: int
    text: str
    kind: Optional[str]  # "IB/RoCE v1", "RoCE v2"
    netdev: Optional[str]  # None on InfiniBand, and in another network namespace


def read_gids(port: Path, *, only_first: bool) -> List[Gid]:
    """The filled slots in order. Empty ones read as zero; their type and netdev end in EINVAL."""
    names = [name for name in list_names(port / "gids") or [] if name.isdecimal()]
    found = []
    for name in sorted(names, key=int)[: 1 if only_first else MAX_GIDS]:
        text = read_text(port / "gids" / name)
        address = parse_gid(text or "")
        if text and address is not None and int(address) != 0:
            kind = read_text(port / "gid_attrs/types" / name)
            netdev = read_text(port / "gid_attrs/ndevs" / name)
            found.append(Gid(int(name), text, kind or None, netdev or None))
    return found


def choose_gid(gids: Sequence[Gid], *, is_infiniband: bool) -> Optional[Gid]:
    """The GID that traffic would use: on InfiniBand the first; on RoCE a routable v2 one, IPv4 first, else the first.

    One whose netdev is seen goes before one of another network namespace.
    """
    if is_infiniband:
        return next((gid for gid in gids if gid.index == 0), None)
    ranked = sorted(gids, key=lambda gid: (not _is_v2(gid), gid.netdev is None, not _is_ipv4(gid)))
    return ranked[0] if ranked else None


def _is_v2(gid: Gid) -> bool:
    address = parse_gid(gid.text)
    return gid.kind == ROCE_V2 and address is not None and is_routable(address)


def _is_ipv4(gid: Gid) -> bool:
    return ipv4_of(gid.text) is not None
