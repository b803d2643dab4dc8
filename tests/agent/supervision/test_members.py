"""The processes of an engine are found by a union of evidence, and strangers never are."""

import os
import signal
import subprocess
import sys

from llmgw_core.agent.members import find_members, send_signal
from llmgw_core.agent.procfs import ProcessStat, read_stat
from llmgw_core.agent.records import ProcessId, RunRecord


def process(
    pid: int, ppid: int = 1, sid: int = 1, start: int = 100, state: str = "S"
) -> ProcessStat:
    fields = [state, str(ppid), str(sid), str(sid), *["0"] * 13, "1", "0", str(start)]
    return ProcessStat(pid, "x", fields)


RUN = RunRecord(
    1, 500, 50, 500, 500, ProcessId(400, 40), "boot", "ns", "", "2026-01-01T00:00:00Z", 1.0
)


def members(*stats: ProcessStat, shim_lives: bool = True, **more: object) -> list[int]:
    table = {stat.pid: stat for stat in stats}
    found = find_members(table, RUN, shim_lives, **more)  # type: ignore[arg-type]  # a test's own mix
    return [stat.pid for stat in found]


def test_session_of_the_leader_belongs() -> None:
    assert members(process(500, sid=500, start=50), process(501, sid=500)) == [500, 501]


def test_orphan_in_a_session_of_its_own_belongs_when_it_fell_to_the_shim() -> None:
    assert members(process(700, ppid=400, sid=700)) == [700]


def test_child_of_whoever_got_the_dead_shims_pid_does_not_belong() -> None:
    assert members(process(700, ppid=400, sid=700), shim_lives=False) == []


def test_marked_process_and_its_descendants_belong() -> None:
    stats = (
        process(700, sid=700),
        process(701, ppid=700, sid=701),
        process(702, ppid=701, sid=702),
    )

    assert members(*stats, marked=[700]) == [700, 701, 702]


def test_session_whose_number_was_reused_does_not_belong() -> None:
    stranger = process(500, sid=500, start=99)

    assert members(stranger, process(501, ppid=500, sid=500)) == []


def test_former_member_belongs_wherever_it_went() -> None:
    assert members(process(700, sid=700, start=70), known=[ProcessId(700, 70)]) == [700]


def test_stranger_with_a_former_members_pid_does_not_belong() -> None:
    assert members(process(700, sid=700, start=71), known=[ProcessId(700, 70)]) == []


def test_dead_process_does_not_count() -> None:
    assert members(process(501, sid=500, state="Z")) == []


def test_shim_and_this_process_never_belong() -> None:
    shim, own = process(400, sid=500), process(os.getpid(), sid=500)

    assert members(shim, own) == []


def test_process_with_a_reused_pid_is_not_signalled() -> None:
    victim = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    stat = read_stat(victim.pid)
    assert stat is not None

    sent = send_signal(ProcessId(victim.pid, stat.start_ticks - 1), signal.SIGKILL)

    assert not sent
    assert victim.poll() is None
    assert send_signal(ProcessId(victim.pid, stat.start_ticks), signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
