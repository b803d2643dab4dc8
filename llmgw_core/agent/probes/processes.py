"""Who a process is: its user, its command, its container; and whether a pid the driver names can be seen from here."""

import pwd
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Dict, Iterable, Optional, Tuple

from llmgw_core.agent.probes.files import list_names, read_link_name, read_text
from llmgw_core.domain.secret_names import hide_secret_args

# The kernel gives the first PID namespace this number. Source: include/linux/proc_ns.h, PROC_PID_INIT_INO.
_HOST_PID_NAMESPACE = "pid:[4026531836]"
_COMM_CHARS = 15  # what the kernel keeps of a command's name
_COMMAND_CHARS = 200
_DEAD_STATES = ("Z", "X", "x")
# As Docker, containerd, CRI-O, Podman and Kubernetes name the cgroups of their containers.
_CONTAINER = re.compile(
    r"(?:docker|containerd|crio|libpod|kubepods|lxc|machine|podman)[^\n]*?[/:-]([0-9a-f]{64})(?:\.scope)?(?:/|$)",
    re.MULTILINE,
)
_SHOWN_ID_CHARS = 12


@dataclass(frozen=True)
class ProcessFacts:
    """What is known of one pid that the driver named. The driver names pids of the host's namespace."""

    user: Optional[str] = None
    is_gone: bool = False  # surely: the pid is of our namespace and no living process has it
    command: Optional[str] = None  # its command line, cut, without secrets
    container: Optional[str] = None  # the first characters of its id


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
    if is_host and _is_dead(folder):
        return ProcessFacts(is_gone=True)
    return ProcessFacts(
        user=_user_name(uid),
        command=_read_command(folder),
        container=parse_container_id(read_text(folder / "cgroup") or "") if is_host else None,
    )


def parse_container_id(text: str) -> Optional[str]:
    """The short id of the container a process is in, from its cgroup file; None when it is in none.

    Lines: `0::/system.slice/docker-6c1f….scope`, `0::/kubepods.slice/…/cri-containerd-6c1f….scope`.
    """
    match = _CONTAINER.search(text)
    return match.group(1)[:_SHOWN_ID_CHARS] if match else None


def _is_dead(folder: Path) -> bool:
    """Ended and not yet reaped: nothing but the parent or a reboot removes it."""
    state = (read_text(folder / "stat") or "").rpartition(")")[2].split()
    return bool(state) and state[0] in _DEAD_STATES


def _read_command(folder: Path) -> Optional[str]:
    raw = read_text(folder / "cmdline")
    words = hide_secret_args((raw or "").rstrip("\0").split("\0"))
    text = "".join(char if char.isprintable() else "?" for char in " ".join(words)).strip()
    if not text:
        return None
    return text if len(text) <= _COMMAND_CHARS else text[: _COMMAND_CHARS - 1] + "…"


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


def has_process_named(name: str, proc_root: str = "/proc") -> bool:
    """Whether a process that may be seen has that name, as far as the kernel keeps it."""
    wanted = name[:_COMM_CHARS]
    pids = (entry for entry in list_names(proc_root) or () if entry.isdecimal())
    return any(read_text(f"{proc_root}/{pid}/comm") == wanted for pid in pids)
