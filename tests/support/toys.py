"""Toy engines started without an agent, in a session of their own, and swept away by it."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmgw_core.agent.procfs import ProcessStat, read_all_stats
from llmgw_core.demo.cluster import h100s, write_nvidia_smi, write_toy_venv
from tests.support.engines import free_port, wait_until

ASK_TIMEOUT_S = 5.0


@dataclass
class Toy:
    """One toy engine under way."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.log.read_text("utf-8", "replace")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int | None, bytes]:
        """(status, body); status None: refused."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", data, timeout=ASK_TIMEOUT_S
            ) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError:
            return None, b""

    def status(self, path: str) -> int | None:
        """Status of a GET; None: refused."""
        return self.ask(path)[0]

    def wait_ready(self) -> None:
        """Return once /health is 200."""
        wait_until(lambda: self.status("/health") == 200, f"ready; it said: {self.text[-500:]}")

    def wait_says(self, words: str) -> None:
        """Return once it has printed that."""
        wait_until(lambda: words in self.text, f"{words!r} in the log")

    def wait_exit(self) -> int:
        """Its exit code; negative: by a signal."""
        return self.process.wait(20)

    def members(self) -> dict[str, ProcessStat]:
        """Its living processes by short name."""
        sid = self.process.pid
        return {
            stat.comm: stat
            for stat in read_all_stats().values()
            if stat.sid == sid and not stat.is_dead
        }


@dataclass
class ToyBox:
    """A venv with the toy engine, two simulated GPUs, and what was started."""

    root: Path
    toys: list[Toy] = field(default_factory=list)

    @property
    def gpus(self) -> Path:
        """Folder of the simulated GPUs."""
        return self.root / "gpus"

    def start(self, *args: str, model: str = "/m/tiny", load_s: float = 0.3, **env: str) -> Toy:
        """Start `vllm serve MODEL …`."""
        return self._start([str(self.root / "venv/bin/vllm"), "serve", model, *args], load_s, env)

    def start_sglang(
        self, *args: str, model: str = "/m/tiny", load_s: float = 0.3, **env: str
    ) -> Toy:
        """Start `python -m sglang.launch_server --model-path MODEL …`."""
        command = [str(self.root / "venv/bin/python"), "-m", "sglang.launch_server"]
        return self._start([*command, "--model-path", model, *args], load_s, env)

    def _start(self, command: list[str], load_s: float, env: dict[str, str]) -> Toy:
        port = free_port()
        log = self.root / f"log-{len(self.toys)}"
        whole = {**os.environ, "LLMGW_TOY_LOAD_S": str(load_s), **env}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=whole,
                start_new_session=True,
            )
        toy = Toy(process, port, log)
        self.toys.append(toy)
        return toy

    def sweep(self) -> None:
        """End everything, and see that nothing is left."""
        for toy in self.toys:
            while members := toy.members():
                for stat in members.values():
                    try:
                        os.kill(stat.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                toy.process.poll()
            toy.process.wait(20)


@contextmanager
def open_toy_box(root: Path) -> Iterator[ToyBox]:
    """A box below that directory; swept at the end."""
    write_nvidia_smi(root / "gpus", h100s(1, 2))
    write_toy_venv(root / "venv", root / "gpus")
    box = ToyBox(root)
    try:
        yield box
    finally:
        box.sweep()


def wait_member(toy: Toy, name: str) -> ProcessStat:
    """The process of that short name, once it is there."""
    wait_until(lambda: name in toy.members(), f"{name} among {sorted(toy.members())}")
    return toy.members()[name]
