"""`llmgw` on a machine of its own: state, hardware and a small vLLM, all below one directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.agents import AgentHome, agent_home

TIMEOUT_S = 60.0

# Loads for a moment with a bar, then answers as vLLM does. What it is to do wrong is in its arguments.
FAKE_VLLM = r"""
import http.server, json, os, sys, time
args = sys.argv[1:]
def option(flag):
    return args[args.index(flag) + 1]
print("INFO 12-01 02:30:45 [x.py:1] Starting to load model m...", flush=True)
for step in range(1, 5):
    sys.stderr.write("\rLoading safetensors checkpoint shards: %3d%% Completed | %d/4 [00:00<00:00]" % (25 * step, step))
    sys.stderr.flush()
    time.sleep(0.1)
sys.stderr.write("\n")
sys.stderr.flush()
if "--enforce-eager" in args:
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
    sys.exit(1)
os.write(1, b"not text: \xff\xfe\n")
print("secret seen: %s" % bool(os.environ.get("HF_TOKEN")), flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        self.answer({"data": [{"id": option("--served-model-name")}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"choices": [{"text": "x"}]})
http.server.HTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()
"""


@dataclass
class OperatorHere:
    """Somebody at a shell of this machine."""

    home: AgentHome
    venv: Path

    def run(
        self, *words: str, status: int | None = 0, **env: str
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run `llmgw` to its end.

        Raises:
            AssertionError: its exit status is another one; None: any will do.
        """
        done = subprocess.run(
            self.argv(*words),
            env={**self.env(), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        seen = f"{words}: {done.returncode}\n{done.stdout!r}\n{done.stderr.decode()}"
        assert status in (None, done.returncode), seen
        return done

    def argv(self, *words: str) -> list[str]:
        """The command line of `llmgw`."""
        return [sys.executable, "-m", "llmgw_core.cli.main", *words]

    def env(self) -> dict[str, str]:
        """Its environment: nothing that this machine's user has configured."""
        own = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        return {**own, "XDG_CONFIG_HOME": "/nonexistent", **self.home.env}

    def launch_words(self, name: str, *more: str) -> tuple[str, ...]:
        """`launch` of the small vLLM."""
        return (
            *("launch", "--name", name, "--engine", "vllm", "--model", "org/model"),
            *("--gpu-count", "0", "--venv", str(self.venv), *more),
        )


_LEFT_OUT = frozenset({"LLMGW_CLUSTER", "LLMGW_DEBUG", "HF_TOKEN", "NO_COLOR"})


@contextmanager
def operator_here(root: Path) -> Iterator[OperatorHere]:
    """An operator whose machine is `root`; everything it started ends with the block."""
    venv = root / "venv"
    (venv / "bin").mkdir(parents=True)
    program = venv / "bin" / "vllm"
    program.write_text(f"#!{sys.executable} -IS\n{FAKE_VLLM}", "utf-8")
    program.chmod(0o755)
    with agent_home(root / "home") as home:
        yield OperatorHere(home, venv)
