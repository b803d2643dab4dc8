"""/proc is parsed as the kernel writes it, whatever a process calls itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_core.agent.procfs import is_alive, parse_stat, read_stat
from tests.support.engines import wait_until

TAIL = "1 4711 4711 0 -1 4194304 90 0 0 0 0 0 0 0 20 0 {threads} 0 269934 2 3 4\n"


def line(comm: str, state: str = "S", threads: int = 1) -> str:
    return f"4711 ({comm}) {state} " + TAIL.format(threads=threads)


@pytest.mark.parametrize("comm", ["vllm", "ev) R 1 2 (x", "a b", ")", "(", ""])
def test_command_ends_at_the_last_parenthesis(comm: str) -> None:
    stat = parse_stat(line(comm))

    assert (stat.comm, stat.state, stat.sid, stat.start_ticks) == (comm, "S", 4711, 269934)


def test_zombie_is_dead() -> None:
    assert parse_stat(line("x", "Z")).is_dead


def test_zombie_leader_with_a_living_thread_is_not_dead() -> None:
    assert not parse_stat(line("x", "Z", threads=2)).is_dead


def test_torn_line_is_refused() -> None:
    with pytest.raises(ValueError, match="not a stat line"):
        parse_stat("4711 (x) S 1")


@pytest.mark.faults
def test_process_named_like_a_state_is_read_right(tmp_path: Path) -> None:
    program = tmp_path / "ev) R 1 2 (x"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        wait_until(lambda: comm_of(process.pid) == "ev) R 1 2 (x", "exec")

        stat = read_stat(process.pid)
        process.kill()

    assert stat is not None
    assert stat.ppid == os.getpid()


def comm_of(pid: int) -> str:
    stat = read_stat(pid)
    return stat.comm if stat else ""


def test_unreaped_child_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    stat = read_stat(process.pid)
    assert stat is not None

    wait_until(lambda: not is_alive(process.pid, stat.start_ticks), "the child is a zombie")

    assert read_stat(process.pid) is not None, "and still in the table"
    process.wait()


def test_reused_pid_is_another_process() -> None:
    own = read_stat(os.getpid())
    assert own is not None

    assert is_alive(own.pid, own.start_ticks)
    assert not is_alive(own.pid, own.start_ticks + 1)


def test_main_thread_that_ended_before_another_is_alive() -> None:
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "ctypes.CDLL(None).syscall(60, 0)"  # exit of this thread alone
    )
    process = subprocess.Popen([sys.executable, "-S", "-c", code])
    stat = read_stat(process.pid)
    assert stat is not None

    def is_zombie() -> bool:
        now = read_stat(process.pid)
        return now is not None and now.state == "Z"

    wait_until(is_zombie, "the main thread has ended")

    assert is_alive(process.pid, stat.start_ticks)
    process.kill()
    process.wait()
