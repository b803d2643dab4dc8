"""The main job as an operator does it: commands as processes of their own, an engine over SSH, and what is left of it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmgw_core.agent.instance_lock import read_holder
from llmgw_core.agent.procfs import is_alive, read_all_stats, read_stat

COMMAND_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Operator:
    """Somebody at a shell: `llmgw` and `llmgw-tui` with this environment over this process's own."""

    environ: Mapping[str, str]
    nodes: str

    def run(
        self,
        *words: str,
        status: int | None = 0,
        program: str = "llmgw",
        deadline_s: float = COMMAND_TIMEOUT_S,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end.

        Args:
            status: its exit status; None: any.

        Raises:
            AssertionError: its exit status is another one.
        """
        done = subprocess.run(
            self._argv(program, words),
            env=self._env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
        assert status in (None, done.returncode), (
            f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command; its stdout and stderr are one pipe."""
        return subprocess.Popen(
            self._argv("llmgw", words),
            env=self._env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read_inventory(self) -> dict[str, Any]:
        """The document of `llmgw-tui --json`."""
        done = self.run("--json", program="llmgw-tui")
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document

    def find_engine(self, name: str) -> dict[str, Any]:
        """What the inventory says of that engine.

        Raises:
            AssertionError: it is not there.
        """
        nodes = self.read_inventory()["nodes"]
        found = [engine for node in nodes for engine in node["engines"] if engine["name"] == name]
        assert len(found) == 1, nodes
        engine: dict[str, Any] = found[0]
        return engine

    def await_engine(self, name: str, deadline_s: float, **wanted: object) -> list[dict[str, Any]]:
        """Ask again and again until the engine's fields are as wanted. Returns everything that was seen, in order.

        Raises:
            AssertionError: they were not in time, or it failed meanwhile.
        """
        seen: list[dict[str, Any]] = []
        end = time.monotonic() + deadline_s
        while True:
            engine = self.find_engine(name)
            seen.append(engine)
            if all(engine[key] == value for key, value in wanted.items()):
                return seen
            assert engine["state"] != "failed", engine
            assert time.monotonic() < end, f"not within {deadline_s} s: {wanted}; last: {engine}"
            time.sleep(0.3)

    def _argv(self, program: str, words: Sequence[str]) -> list[str]:
        module = {"llmgw": "llmgw_core.cli.main", "llmgw-tui": "llmgw_tui.__main__"}[program]
        return [sys.executable, "-m", module, *words, "--nodes", self.nodes]

    def _env(self) -> dict[str, str]:
        # Not what this machine's user has configured.
        own = {name: value for name, value in os.environ.items() if name != "LLMGW_CLUSTER"}
        return {**own, "XDG_CONFIG_HOME": "/nonexistent", **self.environ}


@dataclass(frozen=True)
class Remains:
    """The processes of one engine, and of those that look after it, by its node's state directory."""

    state: Path
    engine: str

    @property
    def folder(self) -> Path:
        """The engine's directory."""
        (found,) = self.state.glob(f"*/engines/{self.engine}")
        return found

    def find_members(self) -> set[tuple[int, int]]:
        """(pid, start) of every living process in the leader's session or with the engine's marker."""
        run = json.loads((self.folder / "run.json").read_text("utf-8"))
        marked = {
            stat.pid
            for stat in read_all_stats().values()
            if f"LLMGW_ENGINE={self.engine}".encode() in read_environ(stat.pid)
        }
        return {
            (stat.pid, stat.start_ticks)
            for stat in read_all_stats().values()
            if not stat.is_dead and (stat.sid == run["sid"] or stat.pid in marked)
        }

    def kill_daemon(self) -> int:
        """SIGKILL the node's daemon; returns its pid when it is gone."""
        (lock,) = self.state.glob("*/lock")
        pid = read_holder(lock)
        assert pid is not None
        kill_and_wait(pid)
        return pid

    def kill_shim(self) -> int:
        """SIGKILL the engine's shim; returns its pid when it is gone."""
        pid = int(json.loads((self.folder / "run.json").read_text("utf-8"))["shim"]["pid"])
        kill_and_wait(pid)
        return pid


def end_engines(state: Path) -> None:
    """SIGKILL every engine of a node's state directory and who looks after it; what a test that failed half-way needs."""
    for record in state.glob("*/engines/*/run.json"):
        run = json.loads(record.read_text("utf-8"))
        shim = read_stat(int(run["shim"]["pid"]))
        if shim is not None and shim.start_ticks == run["shim"]["start_ticks"]:
            kill_and_wait(shim.pid)
        for pid, _ in Remains(state, record.parent.name).find_members():
            kill_and_wait(pid)


def kill_and_wait(pid: int) -> None:
    """SIGKILL a process, and wait until it is gone or a zombie. One that has gone by itself is fine.

    Raises:
        AssertionError: it lives on.
    """
    stat = read_stat(pid)
    if stat is None:
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while is_alive(pid, stat.start_ticks):
        assert time.monotonic() < end, f"{pid} lives on"
        time.sleep(0.02)


def read_environ(pid: int) -> tuple[bytes, ...]:
    """The process's variables as `NAME=value`; empty when they cannot be read."""
    try:
        return tuple(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return ()


def ask_chat(operator: Operator, url: str, model: str, timeout_s: float = 60.0) -> int:
    """How many tokens one chat completion gave; their text may be empty, for the tiny model is random.

    Args:
        model: also the engine's name, by which its API key is asked for.
    """
    key = operator.run("key", model).stdout.strip()
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say something."}],
        "max_tokens": 4,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])
