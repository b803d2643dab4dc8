"""The networks that this machine is connected to, which any user may read."""

import re
import sys
from typing import FrozenSet, List, NamedTuple, Optional, Sequence

_MAX_PREFIX = 32
_MASK = 7  # its column


class Route(NamedTuple):
    """One directly connected IPv4 network."""

    netdev: str
    network: int
    mask: int


def parse_routes(text: str) -> List[Route]:
    """The connected networks of /proc/net/route. Source: net/ipv4/fib_trie.c.

    Line: `ens1  0000010A  00000000  0001  0  0  100  00FFFFFF  0  0  0`: addresses in the machine's byte order.
    """
    found = []
    for line in text.splitlines()[1:]:
        match = re.match(
            r"(\S+)\s+([0-9A-F]{8})\s+0{8}\s+\S+\s+\S+\s+\S+\s+\S+\s+([0-9A-F]{8})\s", line
        )
        if match:
            netdev, network, mask = match.groups()
            found.append(Route(netdev, _address(network), _address(mask)))
    return found


def find_default_netdevs(text: str) -> FrozenSet[str]:
    """The netdevs of default routes in /proc/net/route: destination and mask are zero."""
    cells = [line.split() for line in text.splitlines()[1:]]
    return frozenset(
        row[0] for row in cells if len(row) > _MASK and row[1] == row[_MASK] == "00000000"
    )


def find_ipv4_prefix(
    address: Optional[int], netdev: Optional[str], routes: Sequence[Route]
) -> Optional[int]:
    """Length of the prefix of the network that the address is in; None when no route of its netdev tells."""
    if address is None:
        return None
    lengths = [
        bin(route.mask).count("1")
        for route in routes
        if route.netdev == netdev and route.mask and address & route.mask == route.network
    ]
    return max((length for length in lengths if length <= _MAX_PREFIX), default=None)


def _address(digits: str) -> int:
    return int.from_bytes(bytes.fromhex(digits), "little" if sys.byteorder == "little" else "big")
