"""What a process that the agent starts is allowed, and what kind of machine it runs on."""

import os
import re
import resource
from pathlib import Path
from typing import Mapping, Optional, Set, Tuple

from llmgw_core.agent.probes.files import exists, list_names, read_text
from llmgw_core.domain.network import UNLIMITED, Limit, SharedMemory

_CAP_IPC_LOCK = 14  # Source: include/uapi/linux/capability.h
_MOST_PROCESSES = 4096
_RUNTIMES = ("kubepods", "docker", "libpod", "containerd", "lxc")


def read_limits() -> Tuple[Limit, Limit]:
    """(memlock in bytes, open files) of this process, which its children take over.

    A shim raises the soft limit of open files to the hard one; of memlock it changes nothing.
    """
    memlock, nofile = (
        Limit(*(UNLIMITED if value == resource.RLIM_INFINITY else value for value in pair))
        for pair in (
            resource.getrlimit(resource.RLIMIT_MEMLOCK),
            resource.getrlimit(resource.RLIMIT_NOFILE),
        )
    )
    return memlock, nofile


def may_lock(status: str) -> Optional[bool]:
    """Whether CAP_IPC_LOCK is in force, by a line of /proc/self/status: `CapEff:\t000001ffffffffff`. None: no such line."""
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", status, re.MULTILINE)
    return None if match is None else bool(int(match.group(1), 16) >> _CAP_IPC_LOCK & 1)


def read_shared_memory(folder: str = "/dev/shm", proc_root: str = "/proc") -> SharedMemory:  # noqa: S108 - it is read
    """How much there is, and which of this user's NCCL segments nobody uses any more. OSError: it is not there."""
    facts = os.statvfs(folder)
    own = {name for name in list_names(folder) or () if name.startswith("nccl-")}
    own = {name for name in own if _is_own(f"{folder}/{name}")}
    stale = own - _find_mapped(proc_root) if own else own
    return SharedMemory(
        facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize, len(stale)
    )


def find_container(env: Mapping[str, str], root: str = "/") -> Optional[str]:
    """The container runtime around this process; None where nothing shows one."""
    base = root.rstrip("/")
    if exists(f"{base}/.dockerenv"):
        return "docker"
    if exists(f"{base}/run/.containerenv"):
        return "podman"
    groups = read_text(f"{base}/proc/1/cgroup") or ""
    named = next((name for name in _RUNTIMES if name in groups), None)
    return named or env.get("container") or None


def is_virtual_machine(cpuinfo: str) -> Optional[bool]:
    """Whether the processor says that a hypervisor runs it. None: it has no such line, as on Arm."""
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), None)
    return None if line is None else "hypervisor" in line.split()


def _is_own(path: str) -> bool:
    try:
        return Path(path).lstat().st_uid == os.getuid()
    except OSError:
        return False


def _find_mapped(proc_root: str) -> Set[str]:
    """NCCL segments that a process of this user has mapped; of others' they cannot be this user's files."""
    found: Set[str] = set()
    pids = [name for name in list_names(proc_root) or () if name.isdecimal()]
    for pid in pids[:_MOST_PROCESSES]:
        if _is_own(f"{proc_root}/{pid}"):
            text = read_text(f"{proc_root}/{pid}/maps") or ""
            found.update(part.split()[0] for part in text.split("/dev/shm/")[1:] if part.split())  # noqa: S108
    return found
