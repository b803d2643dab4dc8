"""Whether a TCP port is free to be bound, and who has it."""

import os
import socket
from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Set

from llmgw_core.agent.procfs import read_stat

_LISTEN = "0A"


class TcpEntry(NamedTuple):
    """One line of /proc/net/tcp that concerns us."""

    port: int
    state: str  # two hex digits, e.g. 0A: listening
    inode: int


def parse_tcp_table(text: str) -> Iterator[TcpEntry]:
    """The sockets of /proc/net/tcp or tcp6, by local port.

    Line: `   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 4711 1 …`. Source: proc(5).
    """
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            yield TcpEntry(int(fields[1].rpartition(":")[2], 16), fields[3], int(fields[9]))
        except (IndexError, ValueError):
            continue


def find_port_trouble(host: str, port: int) -> Optional[str]:
    """Why the port cannot be bound there, with the holder's pid where it can be told; None: it can.

    Bound without SO_REUSEADDR: with it, the test passes while a vLLM that still loads has the port but does not listen.
    Old connections that only wait to expire do not count.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE
        )[0]
    except OSError as error:
        return f"{host}: {error.strerror or error}"
    try:
        _bind(family, address, reuse=False)
    except OSError as error:
        return _explain(family, address, port, error)
    return None


def find_udp_trouble(address: str, port: int) -> Optional[str]:
    """Why the UDP port cannot be bound at that address of this node; None: it can."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, port))
    except OSError as error:
        return error.strerror or str(error)
    return None


def find_listener(port: int) -> Optional[str]:
    """Who listens on that port of this node, e.g. `pid 4711 (vllm)`; None: nobody."""
    inodes = {entry.inode for entry in _read_entries(port) if entry.state == _LISTEN}
    if not inodes:
        return None
    pid = _find_socket_owner(inodes)
    if pid is None:
        return "a process of another user"
    stat = read_stat(pid)
    return f"pid {pid} ({stat.comm})" if stat else f"pid {pid}"


def _bind(family: int, address: object, reuse: bool) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if reuse:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(address)  # type: ignore[arg-type]  # as getaddrinfo gave it


def _explain(family: int, address: object, port: int, error: OSError) -> Optional[str]:
    listener = find_listener(port)
    if listener is not None:
        return f"{listener} listens on it"
    try:
        _bind(family, address, reuse=True)
    except OSError:
        return error.strerror or str(error)
    if any(True for _ in _read_entries(port)):
        return None  # connections of an engine that ended, waiting to expire: every engine sets SO_REUSEADDR
    return "a process has bound it and does not listen yet: an engine that still loads?"


def _read_entries(port: int) -> Iterator[TcpEntry]:
    for name in ("tcp", "tcp6"):
        try:
            text = Path("/proc/net", name).read_text("ascii")
        except OSError:
            continue
        yield from (entry for entry in parse_tcp_table(text) if entry.port == port)


def _find_socket_owner(inodes: Set[int]) -> Optional[int]:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and wanted.intersection(_read_links(process / "fd")):
            return int(process.name)
    return None


def _read_links(directory: Path) -> Iterator[str]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 - thousands of them
    except OSError:
        return  # another user's, or gone
    for name in names:
        try:
            yield os.readlink(directory / name)  # noqa: PTH115 - text, not a path
        except OSError:
            continue  # closed meanwhile
