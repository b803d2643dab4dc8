"""The small parts under the daemon: lock, event log, and a node seen without any daemon."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_core.agent.event_log import EventLog
from llmgw_core.agent.identity import agent_command
from llmgw_core.agent.instance_lock import is_same_file, note_holder, read_holder, try_lock
from llmgw_core.agent.local import list_engines_here, read_node_here
from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.wire import to_jsonable
from tests.support.agents import agent_home, make_rank, wait_for


def test_lock_has_one_holder_and_is_free_once_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = try_lock(path)
    assert first is not None

    second = try_lock(path)
    os.close(first)
    third = try_lock(path)

    assert second is None
    assert third is not None
    os.close(third)


def test_lock_is_not_inherited_by_children(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = try_lock(path)
    assert fd is not None
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "input()"], stdin=-1, close_fds=False
    ) as child:
        os.close(fd)

        # A child that has just been started closes it a moment after we are told of the start.
        again = wait_for(lambda: try_lock(path) or 0, "the lock is free")

        os.close(again)
        child.communicate(b"\n")


def test_holder_is_noted_for_people(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = try_lock(path)
    assert fd is not None

    note_holder(fd, 4711)

    assert read_holder(path) == 4711
    assert is_same_file(fd, path)
    path.unlink()
    assert not is_same_file(fd, path)
    assert read_holder(path) is None
    os.close(fd)


def test_event_log_quotes_what_has_blanks_and_keeps_two_files(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log", max_bytes=200)
    for number in range(20):
        log.write("came", client=number, reason='a b\n="', plain="x")

    lines = (tmp_path / "log").read_text("utf-8").splitlines()

    assert lines[-1].endswith('Z came client=19 reason="a b\\n=\\"" plain=x')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
    assert all(path.stat().st_size <= 200 for path in tmp_path.iterdir())


def test_event_log_that_cannot_be_written_costs_lines_alone(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "missing" / "log")

    log.write("came", client=1)

    assert not (tmp_path / "missing").exists()


@pytest.mark.slow
def test_engines_are_seen_with_a_daemon_and_without(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        before = list_engines_here(home.whole_env)
        pid = home.start_daemon()
        client = home.connect()
        rank = to_jsonable(make_rank(gpus=[]))
        started = client.result("engine.launch", key="k", rank=rank, secrets={})
        client.close()

        by_daemon = list_engines_here(home.whole_env)
        os.kill(pid, signal.SIGKILL)
        home.processes[0].wait(10)
        by_records = list_engines_here(home.whole_env)
        node = read_node_here(home.whole_env)

        assert before == ()
        assert [engine.pid for engine in by_daemon] == [started["pid"]]
        assert [engine.pid for engine in by_records] == [started["pid"]]
        assert [engine.pid for engine in node.engines] == [started["pid"]]
        assert home.daemon_pid is None


@pytest.mark.slow
def test_engine_that_ended_unwatched_is_seen_as_failed(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        pid = home.start_daemon()
        client = home.connect()
        rank = to_jsonable(make_rank())
        started = client.result("engine.launch", key="k", rank=rank, secrets={})
        client.close()
        os.kill(pid, signal.SIGKILL)
        home.processes[0].wait(10)

        os.kill(started["pid"], signal.SIGKILL)
        ended = home.instance.engine(started["id"]).exit
        wait_for(ended.exists, "the shim has recorded the end")
        (engine,) = wait_for(
            lambda: [item for item in list_engines_here(home.whole_env) if item.state.is_over],
            "the engine is over",
        )

        assert engine.state is EngineState.FAILED
        assert engine.exit is not None
        assert engine.exit.signal == signal.SIGKILL


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        ([], 2, "usage: agent inventory"),
        (["dance"], 2, "usage: agent inventory"),
        (["version"], 0, "0."),
    ],
)
def test_commands(args: list[str], status: int, text: str) -> None:
    ran = subprocess.run(
        [*agent_command(), *args], capture_output=True, text=True, check=False, timeout=20
    )

    assert ran.returncode == status
    assert (ran.stdout + ran.stderr).startswith(text)


@pytest.mark.slow
def test_inventory_for_people_names_what_is_not_there(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        ran = subprocess.run(
            [*agent_command(), "inventory"],
            env=home.whole_env,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )

        assert "GPUs: none" in ran.stdout
        assert "RDMA ports: none" in ran.stdout
        assert ran.stdout.endswith("engines: none\n")
