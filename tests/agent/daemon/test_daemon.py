"""The daemon as a process: one per instance, reachable, hard to hurt, and no loss when it ends."""

import os
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.agent.protocol import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_FRAME_BYTES,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
)
from llmgw_core.domain.wire import to_jsonable
from tests.support.agents import (
    AgentHome,
    PipeClient,
    agent_home,
    hello_params,
    make_rank,
    wait_for,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AgentHome]:
    with agent_home(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHome]:
    """A home with a daemon, for tests that must not be able to hurt it."""
    with agent_home(tmp_path_factory.mktemp("serving")) as made:
        made.start_daemon()
        yield made


def launch(home: AgentHome, name: str = "counter") -> int:
    client = home.connect()
    rank = to_jsonable(make_rank(name))
    status = client.result(
        "engine.launch", key="k-" + name, rank=rank, secrets={"TOKEN": "s3cret-value"}
    )
    client.close()
    pid = status["pid"]
    assert isinstance(pid, int)
    return pid


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_proxy_starts_the_daemon_that_then_outlives_it(home: AgentHome) -> None:
    client = PipeClient(home.start("proxy"))

    hello = client.result("hello", **hello_params())

    assert hello["pid"] == home.daemon_pid
    assert hello["state_dir"] == str(home.instance.root)
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert client.process.wait(10) == 0
    assert home.daemon_pid == hello["pid"]


def test_daemon_is_in_a_session_of_its_own_with_no_terminal_or_pipe_of_ours(
    home: AgentHome,
) -> None:
    client = PipeClient(home.start("proxy"))

    pid = client.result("hello", **hello_params())["pid"]

    assert os.getsid(pid) not in (os.getsid(0), os.getsid(client.process.pid))
    assert str(Path(f"/proc/{pid}/fd/0").readlink()) == "/dev/null"
    assert str(Path(f"/proc/{pid}/fd/1").readlink()) == str(home.instance.log)
    assert str(Path(f"/proc/{pid}/fd/2").readlink()) == str(home.instance.log)


@pytest.mark.faults
def test_twenty_proxies_at_once_start_one_daemon(home: AgentHome) -> None:
    clients = [PipeClient(home.start("proxy")) for _ in range(20)]

    pids = {client.result("hello", **hello_params())["pid"] for client in clients}

    assert pids == {home.daemon_pid}
    assert home.instance.log.read_text("utf-8").count(" started ") == 1


def test_second_daemon_says_that_one_runs(home: AgentHome) -> None:
    home.start_daemon()

    second = home.start("daemon")
    _, stderr = second.communicate(timeout=10)

    assert second.returncode == 1
    assert stderr == b"llmgw agent: a daemon runs already; `agent proxy` connects to it\n"


def test_socket_and_its_directory_are_private(serving: AgentHome) -> None:

    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (serving.instance.socket, serving.instance.root)
    ]

    assert modes == [0o600, 0o700]


def test_state_directory_whose_path_is_too_long_for_a_socket_works(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 20) / ("longer" * 10)
    with agent_home(deep) as home:
        client = PipeClient(home.start("proxy"))

        hello = client.result("hello", **hello_params())

        assert hello["state_dir"].startswith(str(deep))
        assert len(os.fsencode(home.instance.socket)) <= 107
        assert (home.instance.root / "socket").read_text("utf-8") == str(home.instance.socket)


@pytest.mark.parametrize(
    ("rubbish", "code"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", PARSE_ERROR, id="another protocol"),
        pytest.param((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), PARSE_ERROR, id="too long"),
        pytest.param(b"\0\0\0\x03{]}", PARSE_ERROR, id="not JSON"),
        pytest.param(b"\0\0\0\x02[]", PARSE_ERROR, id="no object"),
        pytest.param(b"\0\0\0\x02{}", INVALID_REQUEST, id="no JSON-RPC"),
        pytest.param(b"\0\0\x40\0" + b"[" * 0x4000, PARSE_ERROR, id="deep"),
    ],
)
@pytest.mark.faults
def test_rubbish_ends_its_own_connection_with_a_word(
    serving: AgentHome, rubbish: bytes, code: int
) -> None:
    good, bad = serving.connect(), serving.connect()

    bad.send(rubbish)
    said = bad.receive()

    assert said is not None
    assert said["id"] is None
    assert said["error"]["code"] == code
    assert said["error"]["data"]["code"] == "protocol"
    assert bad.receive() is None
    assert good.result("engine.list") == []
    for client in (good, bad):
        client.close()


@pytest.mark.faults
def test_frame_torn_by_a_client_that_goes_hurts_nobody(serving: AgentHome) -> None:
    good, torn = serving.connect(), serving.connect()

    torn.send(b'\0\0\1\0{"jsonrpc"')
    torn.close()

    assert good.result("engine.list") == []
    good.close()


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("inventory", {"max_age_s": "soon"}, "params.max_age_s: expected float"),
        ("watch", {}, "params: missing interval_s"),
        ("watch", {"interval_s": float("nan")}, "params.interval_s: expected a finite number"),
        ("engine.stop", {"key": "k", "engine": "x", "grace_seconds": 10**400}, ""),
        ("engine.list", {"extra": 1}, "params.extra: no such key"),
        ("engine.launch", {"key": "k", "rank": {"argv": [1]}, "secrets": {}}, "params.rank.argv.0"),
        ("engine.launch", {"key": "k", "rank": {}, "secrets": {"A": 5}}, "params.rank: missing"),
    ],
)
def test_parameters_that_do_not_fit_are_named_by_path(
    serving: AgentHome, method: str, params: dict[str, object], path: str
) -> None:
    client = serving.connect()

    answer = client.call(method, **params)

    assert answer["error"]["code"] == INVALID_PARAMS
    assert path in answer["error"]["data"]["why"]
    assert client.result("engine.list") == []
    client.close()


def test_unknown_method_is_an_answer_not_an_end(serving: AgentHome) -> None:
    client = serving.connect()

    answer = client.call("engine.explode")

    assert answer["error"]["code"] == METHOD_NOT_FOUND
    assert client.result("engine.list") == []
    client.close()


def test_requests_beyond_the_limit_wait_their_turn(serving: AgentHome) -> None:
    client = serving.connect()
    request = b'{"jsonrpc":"2.0","id":%d,"method":"engine.list"}'
    frames = [request % number for number in range(1, 301)]

    sender = threading.Thread(
        target=client.send, args=(b"".join(len(f).to_bytes(4, "big") + f for f in frames),)
    )
    sender.start()
    answers = [client.receive() for _ in frames]
    sender.join()

    assert sorted(answer["id"] for answer in answers if answer) == list(range(1, 301))
    client.close()


def test_engine_outlives_sigterm_of_the_daemon_and_the_next_one_adopts_it(home: AgentHome) -> None:
    pid = home.start_daemon()
    engine = launch(home)

    os.kill(pid, signal.SIGTERM)
    home.processes[0].wait(10)
    assert not home.instance.socket.exists()
    assert is_running(engine)
    client = PipeClient(home.start("proxy"))
    (status,) = client.result("engine.list")

    assert (status["pid"], status["adopted"]) == (engine, True)


@pytest.mark.faults
def test_daemon_that_was_killed_is_replaced_over_its_stale_socket(home: AgentHome) -> None:
    first = home.start_daemon()
    engine = launch(home)

    os.kill(first, signal.SIGKILL)
    home.processes[0].wait(10)
    client = PipeClient(home.start("proxy"))
    (status,) = client.result("engine.list")

    assert (status["pid"], status["adopted"]) == (engine, True)
    assert home.daemon_pid != first


def test_daemon_without_engine_and_client_ends(home: AgentHome) -> None:
    process = home.start("daemon", "--idle-exit-s", "0.3")

    assert process.wait(10) == 0
    assert "ended reason=idle" in home.instance.log.read_text("utf-8")


def test_daemon_with_an_engine_or_a_client_stays(home: AgentHome) -> None:
    process = home.start("daemon", "--idle-exit-s", "0.3")
    wait_for(home.daemon_listens, "the daemon listens")
    client = home.connect()
    client.result("hello", **hello_params())
    log = home.instance.log

    launch(home)
    client.close()
    launch(home, "second")

    assert process.poll() is None
    assert "idle" not in log.read_text("utf-8")


@pytest.mark.faults
def test_daemon_whose_directory_was_removed_ends_instead_of_hiding(home: AgentHome) -> None:
    process = home.start("daemon", "--idle-exit-s", "300")
    wait_for(home.daemon_listens, "the daemon listens")

    home.instance.socket.unlink()

    assert process.wait(10) == 0
    assert "ended reason=files-gone" in home.instance.log.read_text("utf-8")


def test_daemon_stop_leaves_engines_running(home: AgentHome) -> None:
    home.start_daemon()
    engine = launch(home)
    client = home.connect()

    assert client.result("daemon.stop") == {}

    assert home.processes[0].wait(10) == 0
    assert is_running(engine)
    client.close()


def test_no_secret_is_in_the_daemons_log_or_answers(home: AgentHome) -> None:
    home.start_daemon()
    launch(home)
    client = home.connect()

    answers = [client.call("engine.list"), client.call("inventory", max_age_s=0.0)]

    assert "s3cret-value" not in repr(answers)
    assert "s3cret-value" not in home.instance.log.read_text("utf-8")
    client.close()


def test_daemon_stays_within_its_memory(home: AgentHome) -> None:
    pid = home.start_daemon()
    launch(home)
    client = home.connect()
    client.result("inventory", max_age_s=0.0)

    status = Path(f"/proc/{pid}/status").read_text("ascii")

    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    assert int(line.split()[1]) <= 40 * 1024
    client.close()
