"""The proxy: bytes both ways without waiting for either, no longer than both ends are there, and a word when it cannot."""

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from llmgw_core.agent.proxy import copy_both_ways
from llmgw_core.agent.start import parse_version, wants_handover
from llmgw_core.fleet.bundle import collect_files, pack_files
from tests.support.agents import (
    AgentHome,
    PipeClient,
    agent_home,
    hello_params,
    make_rank,
    unpack_bundle,
    wait_for,
)

PACKAGE = Path(__file__).parents[3] / "llmgw_core"
MEGABYTES = 8 << 20


def run_copy(near: socket.socket, source: int, sink: int) -> threading.Thread:
    thread = threading.Thread(target=copy_both_ways, args=(near, source, sink), daemon=True)
    thread.start()
    return thread


def test_large_streams_both_ways_at_once_do_not_block_each_other() -> None:
    near, far = socket.socketpair()
    source, console_in = os.pipe()
    console_out, sink = os.pipe()
    copier = run_copy(near, source, sink)
    got: dict[str, int] = {}

    def write_all(send: object, name: str) -> None:
        data = b"x" * MEGABYTES
        if send is far:
            far.sendall(data)
        else:
            view = memoryview(data)
            while view:
                view = view[os.write(console_in, view) :]
        got[name] = len(data)

    writers = [
        threading.Thread(target=write_all, args=(far, "down"), daemon=True),
        threading.Thread(target=write_all, args=(None, "up"), daemon=True),
    ]
    for thread in writers:
        thread.start()
    # Nobody reads until both directions are full; then one after the other.
    received = 0
    while received < MEGABYTES:
        received += len(far.recv(1 << 16))
    back = 0
    while back < MEGABYTES:
        back += len(os.read(console_out, 1 << 16))
    for thread in writers:
        thread.join(10)
    far.close()
    copier.join(10)

    assert not copier.is_alive()
    assert got == {"down": MEGABYTES, "up": MEGABYTES}
    near.close()
    for fd in (source, console_in, console_out, sink):
        os.close(fd)


@pytest.mark.parametrize("gone", ["connection", "sink", "both ends of the console"])
def test_copy_ends_when_one_side_is_gone(gone: str) -> None:
    near, far = socket.socketpair()
    source, console_in = os.pipe()
    console_out, sink = os.pipe()
    copier = run_copy(near, source, sink)

    if gone == "connection":
        far.close()
    else:
        os.close(console_out)
    if gone == "both ends of the console":
        os.close(console_in)
    copier.join(10)

    assert not copier.is_alive()
    near.close()
    far.close()
    for fd in (source, sink):
        os.close(fd)
    if gone == "connection":
        os.close(console_out)
    if gone != "both ends of the console":
        os.close(console_in)


@pytest.mark.slow
def test_request_of_a_console_that_only_sends_is_still_answered(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        process = home.start("proxy")
        request = b'{"jsonrpc":"2.0","id":1,"method":"engine.list"}'

        output, errors = process.communicate(len(request).to_bytes(4, "big") + request, timeout=20)

        assert errors == b""
        assert json.loads(output[4:])["result"] == []


@pytest.mark.slow
def test_proxy_that_finds_no_place_says_it_to_person_and_console(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        blocked = tmp_path / "file"
        blocked.write_text("in the way")
        command = ["env", f"LLMGW_STATE_DIR={blocked}/x"]
        process = home.start("proxy", command=[*command, *agent_argv()])

        output, errors = process.communicate(timeout=20)

        assert process.returncode == 1
        assert errors.decode().count("\n") == 1
        assert errors.startswith(b"llmgw agent: there is no place for llmgw's records")
        frame = json.loads(output[4:])
        assert frame["id"] is None
        assert frame["error"]["data"]["code"] == "home-unwritable"


def agent_argv() -> list[str]:
    from llmgw_core.agent.identity import agent_command

    return agent_command()


@pytest.mark.slow
def test_daemon_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmgw_core.agent import start
    from llmgw_core.errors import AgentTimeout

    monkeypatch.setattr(start, "HELLO_TIMEOUT_S", 0.2)
    with agent_home(tmp_path) as home:
        pid = home.start_daemon()
        os.kill(pid, signal.SIGSTOP)

        with pytest.raises(AgentTimeout, match="does not answer"):
            start.reach_daemon(home.instance, home.whole_env)

        os.kill(pid, signal.SIGCONT)


def other_bundle(home: AgentHome, mark: str) -> tuple[list[str], str]:
    """A bundle of the same version and other content, in its place. Returns its command and hash."""
    files = {**collect_files(PACKAGE), "llmgw_core/mark.py": f"MARK = {mark!r}\n"}
    bundle = pack_files(files)
    return unpack_bundle(bundle, files, Path(home.env["LLMGW_CACHE_DIR"])), bundle.hash


@pytest.mark.slow
@pytest.mark.faults
def test_other_bundle_of_the_same_version_takes_over_and_engines_do_not_notice(
    tmp_path: Path,
) -> None:
    from llmgw_core.domain.wire import to_jsonable

    with agent_home(tmp_path) as home:
        first, _ = other_bundle(home, "first")
        second, second_hash = other_bundle(home, "second")
        old = home.start_daemon("--min-reign-s", "0", command=first)
        client = home.connect()
        engine = client.result("engine.launch", key="k", rank=to_jsonable(make_rank()), secrets={})[
            "pid"
        ]

        newer = PipeClient(home.start("proxy", command=second))
        hello = newer.result("hello", **hello_params())

        assert (hello["bundle"], hello["pid"] != old) == (second_hash, True)
        (status,) = newer.result("engine.list")
        assert (status["pid"], status["adopted"]) == (engine, True)
        assert client.receive() is None
        wait_for(lambda: home.processes[0].poll() == 0, "the old daemon has ended")
        client.close()


@pytest.mark.slow
def test_daemon_that_has_just_begun_is_used_as_it_is(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        first, first_hash = other_bundle(home, "first")
        second, _ = other_bundle(home, "second")
        home.start_daemon(command=first)

        client = PipeClient(home.start("proxy", command=second))

        assert client.result("hello", **hello_params())["bundle"] == first_hash


@pytest.mark.parametrize(
    ("running", "ours", "expected"),
    [
        (("0.1.0", "a"), ("0.1.0", "a"), False),
        (("0.1.0", "a"), ("0.1.0", "b"), True),
        (("0.1.0", "a"), ("0.2.0", "b"), True),
        (("0.10.0", "a"), ("0.9.0", "b"), False),
        (("1.0.0", ""), ("0.9.0", "b"), False),
    ],
)
@pytest.mark.faults
def test_older_version_never_replaces_a_newer_one(
    running: tuple[str, str], ours: tuple[str, str], expected: bool
) -> None:
    hello = {"version": running[0], "bundle": running[1]}

    assert wants_handover(hello, *ours) is expected


def test_version_is_read_as_numbers_up_to_what_is_none() -> None:
    assert [parse_version(text) for text in ("0.10.2", "1.0rc1", "", "x")] == [
        (0, 10, 2),
        (1, 0),
        (),
        (),
    ]


@pytest.mark.slow
def test_daemon_that_cannot_start_leaves_its_reason(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        files = {
            **collect_files(PACKAGE),
            "llmgw_core/agent/daemon.py": "raise RuntimeError('broken on purpose')\n",
        }
        bundle = pack_files(files)
        command = unpack_bundle(bundle, files, Path(home.env["LLMGW_CACHE_DIR"]))
        process: subprocess.Popen[bytes] = home.start("proxy", command=command)

        _, errors = process.communicate(timeout=30)

        assert process.returncode == 1
        assert b"the agent's daemon ends as soon as it is started" in errors
        assert b"broken on purpose" in errors
