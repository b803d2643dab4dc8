"""RDMA pings by a tool that is a stand-in here: it meets by TCP as ibv_rc_pingpong does, and moves no bytes by RDMA."""

import sys
import threading
from pathlib import Path

import pytest

from llmgw_core.agent.fabric_pingpong import PingpongPort, answer_pingpong, call_pingpong

PORT = PingpongPort("mlx5_0", 1, 3)
TOOL = """
import socket, sys
args = sys.argv[1:]
port = int(args[args.index("-p") + 1])
if args[-2] == "-p":
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(5)
        peer, _ = server.accept()
        peer.sendall(" ".join(args[:8]).encode())
        peer.close()
    sys.exit(0)
try:
    peer = socket.create_connection((args[-1], port), 2)
except OSError:
    sys.exit("Couldn't connect to %s:%d" % (args[-1], port))
if peer.recv(100).decode() != " ".join(args[:8]):
    sys.exit("Failed to modify QP to RTR")
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    tool = tmp_path / "ibv_rc_pingpong"
    tool.write_text(f"#!{sys.executable} -IS\n{TOOL}", encoding="utf-8")
    tool.chmod(0o755)
    return {"PATH": str(tmp_path)}


def end_servers(before: set[threading.Thread]) -> None:
    for thread in set(threading.enumerate()) - before:
        thread.join(10.0)


@pytest.mark.slow
def test_ports_that_reach_each_other_connect(env: dict[str, str]) -> None:
    before = set(threading.enumerate())
    heard = answer_pingpong(PORT, env)
    assert heard.port is not None

    came = call_pingpong(PORT, "127.0.0.1", heard.port, env)

    end_servers(before)
    assert (came.connected, came.error) == (True, None)


@pytest.mark.slow
def test_what_the_tool_says_is_told(env: dict[str, str]) -> None:
    before = set(threading.enumerate())
    heard = answer_pingpong(PORT, env)
    assert heard.port is not None

    came = call_pingpong(PORT._replace(hca="mlx5_9"), "127.0.0.1", heard.port, env)

    end_servers(before)
    assert (came.connected, came.error) == (False, "ibv_rc_pingpong: Failed to modify QP to RTR")


def test_without_the_tool_nothing_is_tried(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)}

    assert answer_pingpong(PORT, env).error == "not-installed"
    assert call_pingpong(PORT, "127.0.0.1", 1, env).error == "not-installed"


@pytest.mark.parametrize("peer", ["-h", "", "a b", "$(x)", "a\n"])
def test_a_peer_that_is_no_name_is_refused(env: dict[str, str], peer: str) -> None:
    assert call_pingpong(PORT, peer, 1, env).error == "EINVAL"
