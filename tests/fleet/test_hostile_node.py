"""A node that means harm, behind a real sshd: `llmgw` ends with clear words, in time, in bounded memory, and obeys nothing."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from llmgw_core.domain.engine import EngineStatus, LogChunk
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.network import NodeNetwork
from llmgw_core.domain.wire import to_jsonable
from tests.support import hostile_agent
from tests.support.hostile_values import (
    ESCAPES,
    control_characters,
    hostile_node,
)
from tests.support.sshd import MakeSshd, Sshd, ssh_environ, write_ssh_config

pytestmark = [pytest.mark.slow, pytest.mark.faults]
TIMEOUT_S = 5
ENDS_WITHIN_S = 30.0
MAX_MESSAGE_CHARS = 4200  # what and why
MAX_RSS_KIB = 300 << 10  # 90 MiB of it are Python, asyncssh and pydantic
PROGRAM = Path(hostile_agent.__file__)
# `llmgw` that tells its peak at its end: what wait4() says of a child begins with the memory of these tests at the fork.
MEASURED = """
import atexit, sys
from pathlib import Path
from llmgw_core.cli.main import run
peak = Path(sys.argv.pop(1))
def tell():
    words = Path("/proc/self/status").read_text().split()
    peak.write_text(words[words.index("VmHWM:") + 1])
atexit.register(tell)
run()
"""
# The code of what is told of each; what each does is in hostile_agent.
MODES = {
    "garbage": "bootstrap",
    "endless-line": "bootstrap",
    "drip": "timeout",
    "stderr": "timeout",
    "garbage-frames": "protocol",
    "endless-frame": "protocol",
    "largest-frame": "timeout",
    "empty-frames": "protocol",
    "drip-frames": "timeout",
    "wrong-ids": "protocol",
    "text-ids": "protocol",
    "deep": "protocol",
    "numbers": "protocol",
    "exponents": "protocol",
    "long-error": "node",
    "long-keys": "protocol",
    "silent": "timeout",
}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str
    rss_kib: int
    took_s: float


def make_hostile(make_sshd: MakeSshd, mode: str, replies: Path | None = None) -> Sshd:
    words = [sys.executable, "-I", "-S", str(PROGRAM), mode, *([str(replies)] if replies else [])]
    sshd: Sshd = make_sshd(alias="bad", lines=[f"ForceCommand {' '.join(words)}"])
    return sshd


def llmgw(config: Path, *words: str, nodes: str = "bad") -> Ended:
    """Run it to its end, with what it needed."""
    peak = config.with_name("peak")
    peak.unlink(missing_ok=True)
    argv = [sys.executable, "-c", MEASURED, str(peak), *words, "--nodes", nodes]
    environ = {**os.environ, **ssh_environ(config), "XDG_CONFIG_HOME": "/nonexistent"}
    began = time.monotonic()
    process = subprocess.Popen(
        [*argv, "--timeout", str(TIMEOUT_S)],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    guard = threading.Timer(ENDS_WITHIN_S, process.kill)
    guard.start()
    assert process.stderr is not None
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.append(process.stderr.read()))  # type: ignore[union-attr] # asserted
    reader.start()
    assert process.stdout is not None
    out = process.stdout.read()
    reader.join()
    process.wait()
    guard.cancel()
    process.stdout.close()
    process.stderr.close()
    return Ended(
        process.returncode,
        out.decode("utf-8", "surrogateescape"),
        b"".join(said).decode("utf-8", "surrogateescape"),
        int(peak.read_text("ascii")) if peak.exists() else sys.maxsize,
        time.monotonic() - began,
    )


def assert_calm(ended: Ended) -> None:
    """It ended by itself, with words of ours, and gave the terminal nothing to obey."""
    assert ended.status >= 0, f"it was killed after {ended.took_s} s: {ended.err[-2000:]}"
    assert "an error of llmgw itself" not in ended.err
    assert "this is a bug" not in ended.err + ended.out
    assert "Traceback" not in ended.err
    assert control_characters(ended.out + ended.err) == []
    assert ended.rss_kib < MAX_RSS_KIB


@pytest.mark.parametrize(("mode", "code"), MODES.items())
def test_hostile_node_costs_its_own_row_and_no_more(
    make_sshd: MakeSshd, mode: str, code: str
) -> None:
    good, bad = make_sshd(alias="good"), make_hostile(make_sshd, mode)
    config = write_ssh_config(bad.root / "both", good, bad)

    ended = llmgw(config, "inventory", "--json", nodes="good,bad")

    assert_calm(ended)
    nodes = {node["name"]: node for node in json.loads(ended.out)["nodes"]}
    assert nodes["good"]["reachable"]
    assert (ended.status, nodes["bad"]["reachable"]) == (3, False)
    fault = nodes["bad"]["error"]
    assert fault["code"] == code
    assert fault["message"]
    assert len(fault["message"]) < MAX_MESSAGE_CHARS


@pytest.mark.parametrize("words", [("status",), ("logs", "chat"), ("stop", "-y", "chat")])
@pytest.mark.parametrize("mode", ["garbage-frames", "long-error", "deep"])
def test_commands_on_a_hostile_node_end_in_words(
    make_sshd: MakeSshd, mode: str, words: tuple[str, ...]
) -> None:
    ended = llmgw(make_hostile(make_sshd, mode).ssh_config, *words)

    assert_calm(ended)
    assert ended.status in {1, 3, 4, 6}
    assert "bad" in ended.err


def engines_of(node: Node) -> tuple[EngineStatus, ...]:
    """The engines under their plain names, so that commands find them."""
    return tuple(
        replace(engine, name=name, id=f"{name}-1")
        for engine, name in zip(node.engines, ("chat", "coder"), strict=True)
    )


def write_replies(path: Path) -> Path:
    """Well-formed answers of an agent, each with escapes in every text."""
    node = hostile_node()
    node = replace(node, engines=engines_of(node))
    failed = to_jsonable(node.engines[1])
    data = f"one\nprogress 1%\rprogress 2%{ESCAPES}\nlast"
    size = len(data.encode())
    chunk = LogChunk("chat", 0, data, size, 0, size, ended=True)
    replies = {
        "inventory": to_jsonable(node),
        "watch": {},
        "engine.list": [to_jsonable(engine) for engine in node.engines],
        "engine.stop": failed,
        "engine.forget": {},
        "engine.key": {"api_key": f"sk-1{ESCAPES}"},
        "engine.preflight": [
            {
                "code": f"x{ESCAPES}",
                "severity": "warning",
                "subject": f"s{ESCAPES}",
                "what": f"w{ESCAPES}",
                "why": f"y{ESCAPES}",
                "fix": f"f{ESCAPES}",
                "node": f"n{ESCAPES}",
            }
        ],
        "log.read": to_jsonable(chunk),
        "network.facts": to_jsonable(NodeNetwork()),
    }
    path.write_text(json.dumps(replies), "utf-8")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("inventory",),
        ("inventory", "--json"),
        ("status",),
        ("status", "--json"),
        ("status", "chat"),
        ("logs", "chat"),
        ("diagnose", "coder"),
        ("diagnose", "coder", "--json"),
        ("stop", "-y", "coder"),
        ("stop", "-y", "--json", "coder"),
        ("forget", "coder"),
        ("key", "chat"),
        ("fabric",),
        ("fabric", "--json"),
        ("plan", "--name", "x", "--engine", "vllm", "--model", "org/m", "--gpu-count", "0"),
        ("preflight", "--name", "x", "--engine", "vllm", "--model", "org/m", "--gpu-count", "0"),
        ("launch", "--name", "x", "--engine", "vllm", "--model", "org/m", "--gpu-count", "0"),
    ],
    ids=" ".join,
)
def test_escapes_in_what_a_node_says_do_not_reach_the_terminal(
    make_sshd: MakeSshd, tmp_path: Path, words: tuple[str, ...]
) -> None:
    sshd = make_hostile(make_sshd, "replies", write_replies(tmp_path / "replies.json"))

    ended = llmgw(sshd.ssh_config, *words)

    assert_calm(ended)
    assert ended.out + ended.err
