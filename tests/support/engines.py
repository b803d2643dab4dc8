"""Tiny engines that behave as real ones do where it hurts, and a bench that leaves none of them behind."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from llmgw_core.agent.cgroups import remove_cgroup
from llmgw_core.agent.paths import InstancePaths, resolve_instance
from llmgw_core.agent.procfs import read_all_stats
from llmgw_core.agent.stopping import ListGpuPids
from llmgw_core.agent.supervisor import Supervisor
from llmgw_core.domain.engine import EngineKind, EngineState, EngineStatus
from llmgw_core.domain.launch import RankPlan

DEADLINE_S = 20.0

# Speaks a little of vLLM's log and HTTP. Each flag is one way in which engines are known to misbehave.
TINY_ENGINE = r"""
import json, os, signal, socket, subprocess, sys, threading, time
flags = dict(a.lstrip("-").split("=", 1) if "=" in a else (a.lstrip("-"), "1") for a in sys.argv[1:])
swallowed = []
def on_term(number, frame):
    if "ignore-term" in flags:
        return
    if "swallow-term" in flags and not swallowed:
        swallowed.append(1)
        return
    os._exit(0)
signal.signal(signal.SIGTERM, on_term)
def say(text):
    sys.stdout.write("(APIServer pid=%d) INFO 12-01 02:30:45 [x.py:1] %s\n" % (os.getpid(), text))
    sys.stdout.flush()
SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
if "worker" in flags:
    subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEPER])
if "escape" in flags:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", SLEEPER], {})
        os._exit(0)
    os.wait()
if "print" in flags:
    sys.stdout.write(flags["print"] + "\n"); sys.stdout.flush()
if "env" in flags:
    sys.stdout.write("env " + json.dumps(dict(os.environ)) + "\n"); sys.stdout.flush()
if "die" in flags:
    sys.exit(int(flags["die"]))
if "hang" in flags:
    time.sleep(600)
if "count" in flags:
    for number in range(int(flags["count"])):
        sys.stdout.write("line %08d\n" % number)
        sys.stdout.flush()
        time.sleep(float(flags.get("pause", "0")))
    time.sleep(600)
say("non-default args: {}")
say("Starting to load model /m...")
sys.stderr.write("\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00]\n"); sys.stderr.flush()
time.sleep(float(flags.get("load", "0")))
say("Loading weights took 0.10 seconds")
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(flags["port"])))
listener.listen(16)
say("Application startup complete.")
def reply(connection, status, value):
    body = json.dumps(value).encode()
    head = "HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body))
    connection.sendall(head.encode() + body)
def sick():
    return os.path.exists(flags.get("sick-file", "/nonexistent"))
while True:
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(5)
        try:
            request = connection.recv(65536).decode("utf-8", "replace")
            path = request.split(" ")[1] if " " in request else ""
            if "key" in flags and path.startswith("/v1") and "Bearer " + flags["key"] not in request:
                reply(connection, 401, {"error": "Unauthorized"})
            elif path == "/health":
                reply(connection, 503 if sick() else 200, {})
            elif path == "/v1/models":
                reply(connection, 200, {"data": [{"id": flags.get("served", "tiny")}]})
            elif path == "/v1/completions":
                sys.stdout.write("completion\n"); sys.stdout.flush()
                reply(connection, 500 if "mute" in flags else 200, {"choices": [{"text": "x"}]})
            else:
                reply(connection, 404, {})
        except OSError:
            pass
"""


def free_port() -> int:
    """A TCP port that nobody had a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(claim: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Return as soon as the claim is true.

    Raises:
        AssertionError: it was not within the deadline.
    """
    end = time.monotonic() + deadline_s
    while not claim():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.03)


@dataclass
class Bench:
    """A node side of its own: a state directory, the engines below it, and a broom."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    supervisors: list[Supervisor] = field(default_factory=list)
    launched: int = 0

    def __post_init__(self) -> None:
        (self.root / "tiny_engine.py").write_text(TINY_ENGINE, "utf-8")
        self.env = {
            "LLMGW_STATE_DIR": str(self.root / "state"),
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.root),
            **self.env,
        }

    @property
    def instance(self) -> InstancePaths:
        """The instance all supervisors of this bench share."""
        return resolve_instance(self.env)

    def supervisor(self, list_gpu_pids: ListGpuPids | None = None) -> Supervisor:
        """A new supervisor, as a new daemon would have it; the former ones are dropped as if killed."""
        for old in self.supervisors:
            old.close()
        made = Supervisor(self.instance, self.env, list_gpu_pids)
        self.supervisors.append(made)
        return made

    def plan(self, *flags: str, name: str = "tiny", **changes: object) -> RankPlan:
        """The plan of a tiny engine that serves on a free port, with these flags."""
        self.launched += 1
        port = free_port()
        values: dict[str, object] = {
            "engine_id": f"{name}-{self.launched:08x}",
            "name": name,
            "engine": EngineKind.VLLM,
            "model": "org/tiny",
            "served_model_name": "tiny",
            "node": "here",
            "argv": (
                sys.executable,
                "-I",
                "-S",
                str(self.root / "tiny_engine.py"),
                f"--port={port}",
                *flags,
            ),
            "env": {},
            "port": port,
            "grace_seconds": 1.0,
            **changes,
        }
        return RankPlan(**values)  # type: ignore[arg-type]  # a test's own mix of fields

    def sweep(self) -> None:
        """Kill every process that belongs to this bench, and see that none is left."""
        for supervisor in self.supervisors:
            supervisor.close(wait_s=5)
        end = time.monotonic() + 10
        while pids := self.processes():
            assert time.monotonic() < end, f"left behind: {pids}"
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.02)
        for note in self.root.rglob("cgroup"):
            remove_cgroup(note.read_text("utf-8"))

    def processes(self) -> list[int]:
        """Pids of living processes whose command or environment names this bench, or which descend from one."""
        needle = os.fsencode(self.root)
        stats = {pid: stat for pid, stat in read_all_stats().items() if not stat.is_dead}
        found = {pid for pid in stats if pid != os.getpid() and _mentions(pid, needle)}
        found |= {stat.pid for stat in stats.values() if stat.ppid in found or stat.sid in found}
        return sorted(found - {os.getpid()})


@contextmanager
def open_bench(root: Path, env: Mapping[str, str] | None = None) -> Iterator[Bench]:
    """A bench below that directory; swept at the end."""
    bench = Bench(root, dict(env or {}))
    try:
        yield bench
    finally:
        bench.sweep()


def status_of(supervisor: Supervisor, engine_id: str) -> EngineStatus:
    """That engine's status after one more tick."""
    supervisor.tick()
    return next(status for status in supervisor.list() if status.id == engine_id)


def wait_for_state(supervisor: Supervisor, engine_id: str, *states: EngineState) -> EngineStatus:
    """The engine's status once it is in one of the states; ticks meanwhile."""
    seen: list[EngineStatus] = []

    def arrived() -> bool:
        seen.append(status_of(supervisor, engine_id))
        return seen[-1].state in states

    wait_until(arrived, f"{engine_id} in {states}")
    return seen[-1]


def _mentions(pid: int, needle: bytes) -> bool:
    for name in ("cmdline", "environ"):
        try:
            if needle in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
        except OSError:
            continue
    return False
