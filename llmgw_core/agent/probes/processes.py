"""Who a process is: its user, and whether a pid the driver names is one of ours to see. /proc and the stdlib alone."""

import pwd
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Dict, Iterable, Optional, Tuple

from llmgw_core.agent.probes.files import read_link_name, read_text

# The kernel gives the first PID namespace this number. Source: include/linux/proc_ns.h, PROC_PID_INIT_INO.
_HOST_PID_NAMESPACE = "pid:[4026531836]"
_COMM_CHARS = 15  # what the kernel keeps of a command's name


@dataclass(frozen=True)
class ProcessFacts:
    """What is known of one pid that the driver named. The driver names pids of the host's namespace."""

    user: Optional[str] = None
    is_gone: bool = False  # surely: the pid is of our namespace and no process has it


def read_processes(
    named: Iterable[Tuple[int, Optional[str]]], proc_root: str = "/proc"
) -> Dict[int, ProcessFacts]:
    """The facts of each (pid, name as the driver says it). Never fails; what may not be seen stays unknown."""
    is_host = is_host_pid_namespace(proc_root)
    return {pid: _read_process(pid, name, is_host, proc_root) for pid, name in named}


def _read_process(pid: int, name: Optional[str], is_host: bool, proc_root: str) -> ProcessFacts:
    folder = Path(proc_root) / str(pid)
    try:
        uid = folder.stat().st_uid
    except FileNotFoundError:
        return ProcessFacts(is_gone=is_host)
    except OSError:
        return ProcessFacts()
    # In a container the pid is the host's, and a process here that has the same is another, unless it looks alike.
    if not is_host and not _has_name(folder, name):
        return ProcessFacts()
    return ProcessFacts(user=_user_name(uid))


def _has_name(folder: Path, name: Optional[str]) -> bool:
    words = (name or "").split()
    if not words:
        return False
    wanted = PurePath(words[0]).name
    comm = read_text(folder / "comm") or ""
    command = (read_text(folder / "cmdline") or "").split("\0")[0]
    return wanted == PurePath(command).name or (comm != "" and wanted[:_COMM_CHARS] == comm)


def is_host_pid_namespace(proc_root: str = "/proc") -> bool:
    """Whether pids here are the host's: False in a container, and where it cannot be told."""
    return read_link_name(f"{proc_root}/self/ns/pid") == _HOST_PID_NAMESPACE


@lru_cache(maxsize=256)
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return str(uid)
