"""An agent's home for a test: state and cache of its own, no hardware, and an end in which no process is left."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from llmgw_core.agent.cgroups import list_cgroup, remove_cgroup
from llmgw_core.agent.frames import FrameDecoder, encode_frame
from llmgw_core.agent.identity import agent_command
from llmgw_core.agent.instance_lock import read_holder, try_lock
from llmgw_core.agent.paths import InstancePaths, resolve_instance
from llmgw_core.agent.rpc import make_request
from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.launch import RankPlan
from llmgw_core.fleet.bundle import Bundle

DEADLINE_S = 20.0
COUNTER = """
import sys, time
print("counter starts", flush=True)
number = 0
while True:
    number += 1
    print("line %06d" % number, flush=True)
    time.sleep(0.05)
"""


def wait_for(claim: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first true value of the claim.

    Raises:
        AssertionError: there was none within the deadline.
    """
    end = time.monotonic() + deadline_s
    while True:
        value = claim()
        if value:
            return value
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)


@dataclass
class AgentHome:
    """One simulated node: its environment, and the daemons, proxies and engines that were started in it."""

    root: Path
    env: dict[str, str]
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def whole_env(self) -> dict[str, str]:
        """The environment of a process there."""
        return {**os.environ, **self.env}

    @property
    def instance(self) -> InstancePaths:
        """Its files."""
        return resolve_instance(self.whole_env)

    def start(self, *args: str, command: list[str] | None = None) -> "subprocess.Popen[bytes]":
        """Start `agent ARGS`, or the command, with pipes."""
        process = subprocess.Popen(
            [*(command or agent_command()), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.whole_env,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def start_daemon(self, *args: str, command: list[str] | None = None) -> int:
        """Start a daemon and wait until it listens. Returns its pid."""
        process = self.start("daemon", *args, command=command)
        wait_for(self.daemon_listens, "the daemon listens")
        return process.pid

    def daemon_listens(self) -> bool:
        """Whether a connection is accepted."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.instance.socket)) == 0

    @property
    def daemon_pid(self) -> int | None:
        """Pid of the daemon that holds the lock; None when none does."""
        lock = try_lock(self.instance.lock)
        if lock is not None:
            os.close(lock)
            return None
        return read_holder(self.instance.lock)

    def connect(self) -> "RawClient":
        """A connection to the daemon."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(DEADLINE_S)
        connection.connect(str(self.instance.socket))
        return RawClient(connection)

    def clean_up(self) -> None:
        """End everything that was started here, engines included."""
        for pid in filter(None, [self.daemon_pid]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids_with(f"LLMGW_STATE_DIR={self.env['LLMGW_STATE_DIR']}", "LLMGW_TEST_HOME"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for engine in self.instance.engines.iterdir():
            for pid in pids_with(f"LLMGW_ENGINE={engine.name}", "LLMGW_ENGINE"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for note in self.instance.engines.glob("*/cgroup"):
            group = note.read_text("utf-8")
            wait_for(partial(is_empty, group), f"{group} is empty")
            remove_cgroup(group)
        for process in self.processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


@contextmanager
def agent_home(root: Path, **env: str) -> Iterator[AgentHome]:
    """A home below root; everything in it ends with the block."""
    (root / "sys").mkdir(parents=True, exist_ok=True)
    own = {
        "LLMGW_STATE_DIR": str(root / "state"),
        "LLMGW_CACHE_DIR": str(root / "cache"),
        "LLMGW_SYSFS_ROOT": str(root / "sys"),
        "LLMGW_NVIDIA_SMI": str(root / "no-nvidia-smi"),
        "LLMGW_TEST_HOME": str(root),
        **env,
    }
    home = AgentHome(root, own)
    try:
        yield home
    finally:
        home.clean_up()


def is_empty(group: str) -> bool:
    """Whether no process is in the cgroup."""
    return not list_cgroup(group)


def pids_with(assignment: str, key: str) -> list[int]:
    """Pids of processes whose environment has the assignment, and the key at all."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                items = (entry / "environ").read_bytes().split(b"\0")
                has_key = any(item.startswith(key.encode() + b"=") for item in items)
                if has_key and os.fsencode(assignment) in items:
                    found.append(int(entry.name))
    return found


class RawClient:
    """Frames over a socket, without any of the product's own client."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._decoder = FrameDecoder()
        self._messages: list[dict[str, Any]] = []
        self._number = 0

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end of the connection."""
        while not self._messages:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._messages += self._decoder.feed(data)
        return self._messages.pop(0)

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """The whole answer to a request; notifications in between are skipped."""
        self._number += 1
        self.send(encode_frame(make_request(self._number, method, dict(params))))
        while True:
            message = self.receive()
            assert message is not None, f"the connection ended during {method}"
            if message.get("id") == self._number:
                return message

    def result(self, method: str, **params: object) -> Any:
        """The result of a request that must succeed."""
        answer = self.call(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class PipeClient(RawClient):
    """The same over a proxy's pipes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(socket.socket(socket.AF_UNIX))
        self.socket.close()
        self.process = process

    def send(self, data: bytes) -> None:
        """Write to the proxy."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any] | None:
        """Read one frame from the proxy."""
        assert self.process.stdout is not None
        header = self.process.stdout.read(4)
        if len(header) < 4:
            return None
        body = self.process.stdout.read(struct.unpack(">I", header)[0])
        message = json.loads(body)
        assert isinstance(message, dict)
        return message


def hello_params(bundle: str = "") -> dict[str, object]:
    """Parameters of `hello`."""
    return {"protocol": [1, 1], "version": "0.1.0", "bundle": bundle}


def make_rank(name: str = "counter", code: str = COUNTER, **changes: Any) -> RankPlan:
    """A rank that runs some Python and serves no port."""
    values: dict[str, Any] = {
        "engine_id": f"{name}-00000001",
        "name": name,
        "engine": EngineKind.VLLM,
        "model": "tiny/model",
        "served_model_name": name,
        "node": "here",
        "argv": (sys.executable, "-I", "-S", "-c", code),
        "env": {},
        "grace_seconds": 5.0,
        **changes,
    }
    return RankPlan(**values)


def unpack_bundle(bundle: Bundle, files: dict[str, str], cache: Path) -> list[str]:
    """Put the bundle where a bootstrap would. Returns the command that runs it."""
    root = cache / "agent" / bundle.hash
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return [sys.executable, "-I", "-S", str(root)]
