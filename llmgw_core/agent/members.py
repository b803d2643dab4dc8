"""Which processes are an engine's, and signals that never reach a stranger.

A process is (pid, start time) within one boot and PID namespace. A pid whose start time differs is somebody else's.
"""

import os
import signal
from functools import cached_property
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from llmgw_core.agent.procfs import ProcessStat, read_all_stats, read_stat
from llmgw_core.agent.records import ProcessId, RunRecord
from llmgw_core.domain.engine import Diagnosis

MARKER = "LLMGW_ENGINE"
_NAMED = 8  # of processes, before the rest is a number
Snapshot = Mapping[int, ProcessStat]


class Census:
    """All processes at one instant; read when first asked for, and once."""

    @cached_property
    def processes(self) -> Dict[int, ProcessStat]:
        """Every process that may be seen, by pid."""
        return read_all_stats()

    @cached_property
    def marked(self) -> Dict[int, str]:
        """pid → engine id; see `find_marked`."""
        return find_marked(self.processes)


def find_members(
    processes: Snapshot,
    run: RunRecord,
    shim_lives: bool,
    known: Iterable[ProcessId] = (),
    marked: Iterable[int] = (),
) -> Tuple[ProcessStat, ...]:
    """The engine's living processes in order of pid: a union of evidence, so that no escape hides one.

    Evidence: the session and group of the leader; children of the shim, to which orphans of any session fall; the
    environment marker; processes that were members before; descendants of all of these. Never this process or the shim.

    Args:
        processes: every process there is.
        known: members of earlier scans; one whose pid was reused does not count.
        marked: pids whose environment carries the engine's marker.
    """
    found: Set[int] = {pid for pid in marked if pid in processes}
    for member in known:
        stat = processes.get(member.pid)
        if stat is not None and stat.start_ticks == member.start_ticks:
            found.add(member.pid)
    own_numbers = _owns_its_number(processes, run)
    for stat in processes.values():
        in_session = own_numbers and run.sid in (stat.sid, stat.pgid)
        if in_session or (shim_lives and stat.ppid == run.shim.pid):
            found.add(stat.pid)
    _add_descendants(processes, found)
    strangers = {os.getpid(), run.shim.pid if shim_lives else -1}
    return tuple(processes[pid] for pid in sorted(found - strangers) if not processes[pid].is_dead)


def find_marked(processes: Snapshot) -> Dict[int, str]:
    """pid → engine id of each process whose environment can be read and carries a marker.

    Costs a read per process: for stops and leftovers, not for every second. vLLM's workers overwrite theirs unless
    SPT_NOENV is set; another user's cannot be read; both are normal.
    """
    prefix = MARKER.encode("ascii") + b"="
    found: Dict[int, str] = {}
    for pid in processes:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        for item in environ.split(b"\0"):
            if item.startswith(prefix):
                found[pid] = item[len(prefix) :].decode("utf-8", "replace")
                break
    return found


def identify(stats: Iterable[ProcessStat]) -> Tuple[ProcessId, ...]:
    """Their identities, in the same order."""
    return tuple(ProcessId(stat.pid, stat.start_ticks) for stat in stats)


def is_living(process: ProcessId) -> bool:
    """Whether that very process lives."""
    stat = read_stat(process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks and not stat.is_dead


def send_signal(process: ProcessId, number: int) -> bool:
    """Signal that very process, never another that got its pid. False: it is gone, or may not be signalled."""
    opener = getattr(os, "pidfd_open", None)  # Linux 5.3; a build against older headers lacks it
    fd = _open_pidfd(opener, process.pid) if opener is not None else None
    if fd is None:
        return _is_that(process) and _kill(process.pid, number)
    try:
        # Opened first: from here on the descriptor is this process, whatever happens to its pid.
        return _is_that(process) and _send_to_pidfd(fd, number)
    finally:
        os.close(fd)


def send_signal_to_group(run: RunRecord, number: int, members: Iterable[ProcessStat] = ()) -> bool:
    """Signal the leader's process group at once, so that no fork of it slips through.

    Only while the leader, or one of these members of its group, is there to keep the number from being reused.
    """
    holders = [run.leader, *identify(stat for stat in members if stat.pgid == run.pgid)]
    if not any(_is_that(holder) for holder in holders):
        return False
    try:
        os.killpg(run.pgid, number)
    except OSError:
        return False
    return True


def describe(stat: ProcessStat) -> str:
    """The process as a person would look for it, e.g. `4711 (VLLM::Worker_TP, state D in nv_close)`."""
    waiting = _read_wait_channel(stat.pid) if stat.state == "D" else None
    place = f" in {waiting}" if waiting else ""
    return f"{stat.pid} ({stat.comm}, state {stat.state}{place})"


def _owns_its_number(processes: Snapshot, run: RunRecord) -> bool:
    """Whether the session id is still the engine's: the kernel reuses a number only when no session has it."""
    holder = processes.get(run.pid)
    return holder is None or holder.start_ticks == run.start_ticks


def _add_descendants(processes: Snapshot, found: Set[int]) -> None:
    children: Dict[int, List[int]] = {}
    for stat in processes.values():
        children.setdefault(stat.ppid, []).append(stat.pid)
    waiting = list(found)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)


def _is_that(process: ProcessId) -> bool:
    stat = read_stat(process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks


def _open_pidfd(opener: "object", pid: int) -> Optional[int]:
    assert callable(opener)  # noqa: S101 - the caller looked it up
    try:
        return int(opener(pid))
    except OSError:
        return None  # gone, or a kernel before 5.3


def _send_to_pidfd(fd: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    return True


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _read_wait_channel(pid: int) -> Optional[str]:
    try:
        text = Path(f"/proc/{pid}/wchan").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if text and text != "0" else None


def tell_orphans(name: str, members: Sequence[ProcessStat]) -> Diagnosis:
    """What lives on of the engine of that name, whose first process is gone."""
    names = ", ".join(describe(stat) for stat in members[:_NAMED])
    more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
    return Diagnosis(
        "orphans",
        f"its first process is gone, and these live on: {names}{more}",
        f"they hold its GPUs: llmgw stop {name}",
    )
