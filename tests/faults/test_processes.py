"""Processes that are killed, copied, hidden or multiplied: the engine's are all found, and nobody else's is touched."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.agent.procfs import is_alive, read_stat
from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.wire import to_jsonable
from tests.support.agents import AgentHome, agent_home, make_rank, wait_for
from tests.support.engines import Bench, open_bench, status_of, wait_for_state, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow]

# Its first process ends by pthread_exit while another thread goes on: state Z, and not dead.
LEADERLESS_THREADS = """
import ctypes, signal, threading, time
def go_on():
    print("a thread goes on", flush=True)
    time.sleep(600)
threading.Thread(target=go_on).start()
time.sleep(0.2)
ctypes.CDLL(None).pthread_exit(None)
"""
# As py-setproctitle does to itself without SPT_NOENV: title and environment are one piece of memory, and it is overwritten.
TITLE_OVERWRITER = """
import ctypes, os, sys, time
def overwrite():
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    arg_start, env_end = int(fields[45]), int(fields[48])
    ctypes.memset(arg_start, 0, env_end - arg_start)
    ctypes.memmove(arg_start, b"VLLM::Worker", 12)
for _ in range(2):
    if os.fork():
        break
    os.setsid()
else:
    overwrite()
    print("hidden %d" % os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""
FORKER = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("forks", flush=True)
for _ in range(2000):
    if os.fork() == 0:
        if os.getpid() % 3 == 0:
            os.setsid()
        time.sleep(0.05)
        if os.fork():
            os._exit(0)
        time.sleep(600)
    time.sleep(0.01)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AgentHome]:
    with agent_home(tmp_path) as made:
        yield made


def python_plan(bench: Bench, code: str, **changes: Any) -> Any:
    return bench.plan(argv=(sys.executable, "-I", "-S", "-c", code), port=None, **changes)


def read_text(bench: Bench, engine_id: str) -> str:
    return bench.supervisors[-1].read_log(engine_id, 0, 1 << 20).data


def test_killed_daemon_loses_no_line_and_no_exit_code(home: AgentHome) -> None:
    daemon = home.start_daemon()
    code = "import sys, time\nfor n in range(400): print('line %06d' % n, flush=True); time.sleep(0.002)\nsys.exit(7)"
    client = home.connect()
    rank = make_rank(code=code)
    client.result("engine.launch", key="k", rank=to_jsonable(rank), secrets={})
    client.close()

    os.kill(daemon, signal.SIGKILL)
    wait_for(lambda: not home.daemon_listens(), "the daemon is gone")
    wait_for((home.instance.engine(rank.engine_id).exit).exists, "the engine ends unwatched")
    home.start_daemon()
    client = home.connect()

    (status,) = client.result("engine.list")
    log = client.result("log.read", engine=rank.engine_id, offset=0, max_bytes=65536)["data"]
    client.close()
    assert status["exit"]["code"] == 7
    assert log == "".join(f"line {number:06d}\n" for number in range(400))


def test_daemon_killed_at_any_moment_of_a_launch_leaves_one_engine(home: AgentHome) -> None:
    ranks = [make_rank(f"e{number}") for number in range(12)]
    for delay_ms, rank in enumerate(ranks):
        daemon = home.start_daemon()
        client = home.connect()
        client.result("engine.list")
        timer = threading.Timer(3 * delay_ms / 1000, os.kill, (daemon, signal.SIGKILL))
        timer.start()
        with suppress(AssertionError, OSError):  # the connection ends: that is the fault
            client.call("engine.launch", key=rank.name, rank=to_jsonable(rank), secrets={})
        timer.join()
        client.close()
        wait_for(lambda: not home.daemon_listens(), "the daemon is gone")

    home.start_daemon()
    client = home.connect()
    running = {}
    for rank in ranks:
        wanted = {"key": rank.name, "rank": to_jsonable(rank), "secrets": {}}
        running[rank.engine_id] = [client.result("engine.launch", **wanted)["pid"]]
    client.close()
    assert {rank.engine_id: find_marked_pids(rank.engine_id, home) for rank in ranks} == running


def find_marked_pids(engine_id: str, home: AgentHome) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if has_marker(pid, engine_id, home)]


def has_marker(pid: int, engine_id: str, home: AgentHome) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        fifo = str(Path(f"/proc/{pid}/fd/1").readlink())
    except OSError:
        return False
    return f"LLMGW_ENGINE={engine_id}".encode() in environ and fifo.startswith(str(home.root))


def test_launches_of_one_key_at_once_start_one_engine(home: AgentHome) -> None:
    home.start_daemon()
    rank = to_jsonable(make_rank())
    pids = []

    def launch() -> None:
        client = home.connect()
        pids.append(client.result("engine.launch", key="k", rank=rank, secrets={})["pid"])
        client.close()

    threads = [threading.Thread(target=launch) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(pids) == 12
    assert len(set(pids)) == 1


def test_killed_worker_is_no_member_any_more_and_the_stop_leaves_nothing(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--worker")
    status = supervisor.launch("k", plan, {})
    wait_for_state(supervisor, plan.engine_id, EngineState.READY)
    (worker,) = set(owned(bench)) - {status.pid}

    os.kill(worker, signal.SIGKILL)

    # The leader does not reap it: it stays as a zombie.
    wait_until(lambda: owned(bench) == [status.pid], "it no longer counts")
    assert status_of(supervisor, plan.engine_id).pid == status.pid
    supervisor.stop("s", plan.engine_id, 0.2)
    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)
    assert bench.processes() == []


def owned(bench: Bench) -> list[int]:
    supervisor = bench.supervisors[-1]
    supervisor._owners_until = 0.0
    return sorted(supervisor.owners())


def test_unrelated_process_of_the_same_command_line_is_left_alone(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")
    twin = subprocess.Popen(plan.argv, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        status = supervisor.launch("k", plan, {})
        assert owned(bench) == [status.pid]
        supervisor.stop("s", plan.engine_id, 0.0)
        wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)

        assert twin.poll() is None
    finally:
        twin.kill()
        twin.wait()


def test_zombie_leader_with_a_live_thread_is_not_over_until_it_is_killed(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), python_plan(bench, LEADERLESS_THREADS, gpus=(1,))
    status = supervisor.launch("k", plan, {})
    assert status.pid is not None
    pid = status.pid
    wait_until(lambda: (stat := read_stat(pid)) is not None and stat.state == "Z", "it shows Z")

    seen = {status_of(supervisor, plan.engine_id).state.is_over for _ in range(10)}
    taken = dict(supervisor.taken_gpus())
    supervisor.stop("s", plan.engine_id, 0.2)
    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)

    assert (seen, taken) == ({False}, {1: plan.engine_id})
    assert supervisor.taken_gpus() == {}


def test_forks_during_a_stop_do_not_outlive_it(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), python_plan(bench, FORKER)
    supervisor.launch("k", plan, {})
    wait_until(lambda: len(owned(bench)) > 10, "it multiplies")

    supervisor.stop("s", plan.engine_id, 0.1)
    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED, EngineState.FAILED)

    assert bench.processes() == []


def test_worker_with_erased_environment_in_a_session_of_its_own_is_killed(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), python_plan(bench, TITLE_OVERWRITER)
    status = supervisor.launch("k", plan, {})
    wait_until(lambda: "hidden" in read_text(bench, plan.engine_id), "it hides")
    hidden = int(read_text(bench, plan.engine_id).split()[-1])
    stat = read_stat(hidden)
    assert stat is not None
    assert Path(f"/proc/{hidden}/cmdline").read_bytes().startswith(b"VLLM::Worker\0")
    assert b"LLMGW_ENGINE" not in Path(f"/proc/{hidden}/environ").read_bytes()
    assert stat.sid != status.pid

    supervisor.stop("s", plan.engine_id, 0.0)
    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)

    assert not is_alive(hidden, stat.start_ticks)


def test_cgroup_finds_what_no_other_evidence_does_and_is_gone_afterwards(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), python_plan(bench, TITLE_OVERWRITER)
    status = supervisor.launch("k", plan, {})
    wait_until(lambda: "hidden" in read_text(bench, plan.engine_id), "it hides")
    note = bench.instance.engine(plan.engine_id).cgroup
    if not note.exists():
        pytest.skip("no cgroup can be made here")
    group = Path(note.read_text("utf-8"))
    hidden = int(read_text(bench, plan.engine_id).split()[-1])
    stat, leader = read_stat(hidden), read_stat(status.pid or 0)
    assert stat is not None
    assert leader is not None

    # Shim and leader gone, a new daemon: neither parent, session, marker nor memory leads to it.
    os.kill(leader.ppid, signal.SIGKILL)
    os.kill(leader.pid, signal.SIGKILL)
    successor = bench.supervisor()
    orphans = wait_for_state(successor, plan.engine_id, EngineState.ORPHANS)
    successor.stop("s", plan.engine_id, 0.0)
    wait_for_state(successor, plan.engine_id, EngineState.STOPPED, EngineState.FAILED)

    assert orphans.diagnosis is not None
    assert str(hidden) in orphans.diagnosis.message
    assert not is_alive(hidden, stat.start_ticks)
    assert not group.exists()
