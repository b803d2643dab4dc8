"""The console over 1 024 simulated nodes, in a terminal of its own: what it costs, and how soon it answers a key.

The nodes are another process, which speaks as 1 024 agents over Unix sockets: SSH is left out, and measured by `fanout`.
Every GPU and port of every node changes every second, so no figure profits from a quiet cluster.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.measure import Measure

NODES = 1024
SCREEN = (50, 200)  # lines, columns
START_LIMIT_S = 120.0
KEYS = 60
KEY_GAP_S = 0.17  # no multiple of the second in which the nodes change
MIB = 1 << 20


@dataclass
class Terminal:
    """The far end of the console's terminal: takes what it writes, and looks for words."""

    fd: int
    bytes_seen: int = 0
    _tail: bytes = b""
    _words: dict[bytes, float] = field(default_factory=dict)

    def follow(self, *words: bytes) -> threading.Thread:
        """Read until the console ends, noting when each of the words came first."""

        def read() -> None:
            while True:
                try:
                    data = os.read(self.fd, 1 << 16)
                except OSError:
                    return
                if not data:
                    return
                self.bytes_seen += len(data)
                seen = self._tail + data
                for word in words:
                    if word not in self._words and word in seen:
                        self._words[word] = time.monotonic()
                self._tail = seen[-200:]

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def await_word(self, word: bytes, limit_s: float) -> float:
        """When the word was first seen."""
        deadline = time.monotonic() + limit_s
        while word not in self._words:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the console did not show {word!r}: {self._tail!r}")
            time.sleep(0.005)
        return self._words[word]

    def press(self, key: str) -> float:
        """Type a key. Returns when."""
        now = time.monotonic()
        os.write(self.fd, key.encode())
        return now


def measure_console(folder: Path, seconds: float, nodes: int = NODES) -> Iterator[Measure]:
    """Start, CPU, memory and keys of a console over so many nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    socket, marks = folder / "agents", folder / "marks"
    up = f"{nodes}/{nodes} nodes up".encode()
    with _running_agents(socket, nodes), _running_console(socket, nodes, marks) as (began, it):
        console, terminal = it
        terminal.follow(up)
        full_s = terminal.await_word(up, START_LIMIT_S) - began
        yield Measure("console: first full screen", full_s, 5, "s", f"{nodes} nodes answered")
        time.sleep(5)  # what the start has put off
        cpu, wall, sent = _cpu_s(console), time.monotonic(), terminal.bytes_seen
        time.sleep(seconds)
        wall = time.monotonic() - wall
        percent = 100 * (_cpu_s(console) - cpu) / wall
        detail = f"of a core; each GPU and port changes every second; {(terminal.bytes_seen - sent) / wall / 1024:.0f} KiB/s to the terminal"
        yield Measure("console: CPU", percent, 35, "%", detail)
        pressed = []
        for _ in range(KEYS):
            pressed.append(terminal.press("j"))
            time.sleep(KEY_GAP_S)
        time.sleep(2)
        yield Measure("console: memory", console.memory_info().rss / MIB, 500, "MiB", "resident")
        late = sorted(_latencies_s(pressed, marks))
        p99 = late[min(len(late) - 1, int(0.99 * len(late)))]
        detail = f"p50 {1000 * late[len(late) // 2]:.0f} ms, of {len(late)} keys"
        yield Measure("console: key to paint p99", 1000 * p99, 50, "ms", detail)


def _latencies_s(pressed: list[float], marks: Path) -> list[float]:
    """From each key to the next paint that showed it."""
    painted = [float(line) for line in marks.read_text("utf-8").split()]
    found = []
    for key in pressed:
        after = next((moment for moment in painted if moment > key), None)
        if after is None:
            raise RuntimeError("the console painted nothing after a key")
        found.append(after - key)
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def _running_agents(socket: Path, nodes: int) -> Iterator[None]:
    argv = [sys.executable, "-m", "benchmarks.many_agents", str(socket), str(nodes)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"listening\n":
                raise RuntimeError("the simulated agents did not start")
            yield
        finally:
            process.kill()


@contextmanager
def _running_console(
    socket: Path, nodes: int, marks: Path
) -> Iterator[tuple[float, tuple[psutil.Process, Terminal]]]:
    argv = [sys.executable, "-m", "benchmarks.big_console", str(socket), str(nodes), str(marks)]
    began = time.monotonic()
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm-256color", "COLORTERM": "truecolor"})
        os.execv(sys.executable, argv)  # noqa: S606 - of ours
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *SCREEN, 0, 0))
    try:
        yield began, (psutil.Process(pid), Terminal(fd))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
