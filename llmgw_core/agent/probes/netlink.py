"""Interfaces, addresses and routes by rtnetlink: what `ip` shows, in this network namespace, without /sys and without tools.

Source: include/uapi/linux/{netlink,rtnetlink,if_link,if_addr}.h.
"""

import os
import socket
import struct
import sys
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=8BI")
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_NOOP, _ERROR, _DONE = 1, 2, 3
_GET_LINK, _GET_ADDRESS, _GET_ROUTE = 18, 22, 26
_TYPE_MASK = 0x3FFF
_UNICAST = 1
_MAIN_TABLE = 254
_TIMEOUT_S = 2.0
_MOST_MESSAGES = 20_000  # a router's table is no reason to grow
_READ_BYTES = 1 << 18


class Link(NamedTuple):
    """An interface as the kernel names it."""

    number: int
    name: str
    hardware: int  # ARPHRD_*: 1 Ethernet, 32 InfiniBand, 772 loopback
    flags: int  # IFF_*
    mtu: Optional[int]
    master: Optional[int]
    kind: Optional[str]  # "veth", "bridge", "bond", "vlan", …; None: hardware


class Address(NamedTuple):
    """An address of the interface of that number."""

    link: int
    text: str
    prefix: int


class RouteEntry(NamedTuple):
    """A unicast route of the main table."""

    destination: str  # "0.0.0.0/0" for a default route
    link: Optional[int]
    gateway: Optional[str]


def read_links() -> List[Link]:
    """Every interface. OSError: the kernel or a sandbox refuses."""
    return [parse_link(body) for body in _dump(_GET_LINK, socket.AF_UNSPEC)]


def read_addresses() -> List[Address]:
    """Every IP address, IPv4 first. OSError as of `read_links`."""
    found = [
        parse_address(body)
        for family in (socket.AF_INET, socket.AF_INET6)
        for body in _dump(_GET_ADDRESS, family)
    ]
    return [item for item in found if item is not None]


def read_routes() -> List[RouteEntry]:
    """The main table's unicast routes. OSError as of `read_links`."""
    found = [
        parse_route(body)
        for family in (socket.AF_INET, socket.AF_INET6)
        for body in _dump(_GET_ROUTE, family)
    ]
    return [item for item in found if item is not None]


def parse_link(body: bytes) -> Link:
    """A link of an RTM_NEWLINK message."""
    _, hardware, index, flags, _ = _LINK.unpack_from(body)
    values = _attributes(body[_LINK.size :])
    information = _attributes(values.get(18, b""))  # IFLA_LINKINFO
    kind = information.get(1)  # IFLA_INFO_KIND
    return Link(
        index,
        _text(values.get(3, b"")),
        hardware,
        flags,
        _number(values.get(4)),
        _number(values.get(10)),
        _text(kind) if kind else None,
    )


def parse_address(body: bytes) -> Optional[Address]:
    """An address of an RTM_NEWADDR message; None: it is of no IP family."""
    family, prefix, _, _, index = _ADDRESS.unpack_from(body)
    values = _attributes(body[_ADDRESS.size :])
    # IFA_LOCAL, then IFA_ADDRESS: on a point-to-point link the latter is the peer's.
    text = _ip(family, values.get(2) or values.get(1))
    return None if text is None else Address(index, text, prefix)


def parse_route(body: bytes) -> Optional[RouteEntry]:
    """A route of an RTM_NEWROUTE message; None: it is of another table, or no unicast route to a network."""
    family, length, _, _, table, _, _, kind, _ = _ROUTE.unpack_from(body)
    values = _attributes(body[_ROUTE.size :])
    if kind != _UNICAST or (_number(values.get(15)) or table) != _MAIN_TABLE:
        return None
    zero = "0.0.0.0" if family == socket.AF_INET else "::"  # noqa: S104 - it is bound nowhere
    target = _ip(family, values.get(1)) or zero
    several = values.get(9, b"")  # RTA_MULTIPATH: the first of its next hops stands for all
    index = several[4:8] or values.get(4)
    return RouteEntry(f"{target}/{length}", _number(index), _ip(family, values.get(5)))


def _dump(kind: int, family: int) -> Iterator[bytes]:
    request = struct.pack("=B", family).ljust(_LINK.size, b"\0")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(_TIMEOUT_S)
        sock.bind((0, 0))
        sock.sendto(_HEADER.pack(_HEADER.size + len(request), kind, _DUMP, 1, 0) + request, (0, 0))
        for _ in range(_MOST_MESSAGES):
            for code, body in _split(sock.recv(_READ_BYTES)):
                if code == _DONE:
                    return
                if code == _ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, os.strerror(number))
                if code != _NOOP:
                    yield body
    raise OSError("too many messages")


def _split(data: bytes) -> Iterator[Tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, code, _, _, _ = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            return
        yield code, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _attributes(data: bytes) -> Dict[int, bytes]:
    found: Dict[int, bytes] = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if not _ATTRIBUTE.size <= length <= len(data):
            break
        found[kind & _TYPE_MASK] = data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _number(data: Optional[bytes]) -> Optional[int]:
    return None if data is None else int.from_bytes(data, sys.byteorder)


def _text(data: bytes) -> str:
    return os.fsdecode(data.rstrip(b"\0")).encode("utf-8", "replace").decode()


def _ip(family: int, data: Optional[bytes]) -> Optional[str]:
    try:
        return None if data is None else socket.inet_ntop(family, data)
    except (OSError, ValueError):
        return None
