"""What /proc says of processes, with `os` alone: the shim imports this and must stay small.

A process is (boot id, PID namespace, pid, start time in ticks). Source: proc(5).
"""

# ruff: noqa: PTH115, PTH123, PTH208
# pathlib would double the shim's memory.
from __future__ import annotations

import os

# Indices into the fields that follow the command's closing parenthesis.
_STATE, _PPID, _PGID, _SID, _THREADS, _START = 0, 1, 2, 3, 17, 19


class ProcessStat:
    """One line of /proc/PID/stat."""

    __slots__ = ("comm", "pgid", "pid", "ppid", "sid", "start_ticks", "state", "threads")

    def __init__(self, pid: int, comm: str, fields: list[str]) -> None:
        self.pid = pid
        self.comm = comm
        self.state = fields[_STATE]
        self.ppid = int(fields[_PPID])
        self.pgid = int(fields[_PGID])
        self.sid = int(fields[_SID])
        self.threads = int(fields[_THREADS])
        self.start_ticks = int(fields[_START])

    @property
    def is_dead(self) -> bool:
        """Z or X with no other thread. A main thread that ended while another is stuck in a driver also shows Z."""
        return self.state in ("Z", "X", "x") and self.threads <= 1


def parse_stat(text: str) -> ProcessStat:
    """The process of one line of /proc/PID/stat.

    Line: `4711 (ev) R 1 2 (x) S 1 4711 4711 0 -1 …`: the command may hold anything, so it ends at the last `)`.

    Raises:
        ValueError: it is no such line.
    """
    head, closed, tail = text.rpartition(")")
    pid, opened, comm = head.partition("(")
    fields = tail.split()
    if not closed or not opened or len(fields) <= _START:
        raise ValueError(f"not a stat line: {text[:80]!r}")
    return ProcessStat(int(pid), comm, fields)


def read_stat(pid: int) -> ProcessStat | None:
    """The process of that pid; None when there is none, or it may not be seen."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # half the cost of open()
    except OSError:
        return None
    try:
        return parse_stat(os.read(fd, 4096).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None  # it ended between the two calls
    finally:
        os.close(fd)


def read_all_stats() -> dict[int, ProcessStat]:
    """Every process that may be seen, by pid, in one pass."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None:
                found[stat.pid] = stat
    return found


def is_alive(pid: int, start_ticks: int) -> bool:
    """Whether that very process lives: not gone, not another of the same pid, not dead and unreaped."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and not stat.is_dead


def read_boot_id() -> str:
    """The kernel's boot id, e.g. `5f9bca67-…`; "unknown" where it is hidden."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def read_namespace(kind: str) -> str:
    """Identity of this process's namespace, e.g. `pid:[4026531836]`; "unknown" where it is hidden."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return "unknown"
