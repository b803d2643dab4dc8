"""A cgroup per engine, where one can be made: what is in it belongs to the engine, wherever it forked to.

Below the shim's own group, so that limits which hold for it go on to hold; no controller is switched on. Usually root's
alone; elsewhere the other evidence must do. cgroup v2, also beside v1. Source: cgroups(7).

`os` alone: the shim imports this and must stay small.
"""

# ruff: noqa: PTH102, PTH106, PTH110, PTH118, PTH123
# pathlib would double the shim's memory.
from __future__ import annotations

import os

MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def make_cgroup(engine_id: str) -> str:
    """The path of a new group for that engine; "" where none can be made.

    Named after this process too: agents that share a machine may each have an engine of that id.
    """
    own = _find_own_cgroup()
    path = os.path.join(own, f"llmgw-{engine_id}-{os.getpid()}")
    try:
        if own:
            os.mkdir(path)
            return path
    except OSError:
        pass  # not ours to write to, not this kernel's, or somebody else's already
    return ""


def enter_cgroup(path: str) -> None:
    """Move this process there, if it can be."""
    try:
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write("0")
    except OSError:
        return  # a group that takes no processes: the other evidence must do


def list_cgroup(path: str) -> list[int]:
    """Pids in the group; none where there is no group."""
    try:
        with open(os.path.join(path, "cgroup.procs"), encoding="ascii") as file:
            return [int(line) for line in file if line.strip().isdecimal()]
    except OSError:
        return []


def kill_cgroup(path: str) -> None:
    """SIGKILL everything in the group at once, so that no fork slips through. Linux 5.14; before, nothing happens."""
    try:
        # Not created where the kernel has none, which open() for writing would try.
        fd = os.open(os.path.join(path, "cgroup.kill"), os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, b"1")
    except OSError:
        return
    finally:
        os.close(fd)


def remove_cgroup(path: str) -> None:
    """Remove the group if it is empty."""
    try:
        os.rmdir(path)
    except OSError:
        return


def _find_own_cgroup() -> str:
    """Directory of this process's v2 group; "" where there is none. Line: `0::/user.slice/session-4.scope`."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            own = [line.rstrip("\n")[3:] for line in file if line.startswith("0::/")]
    except OSError:
        return ""
    for mount in MOUNTS:
        if own and os.path.exists(mount + "/cgroup.procs"):
            return mount + own[0]
    return ""
