"""Starting a shim: its command line, its environment, and its first answer."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping

import llmgw_core
from llmgw_core.agent.paths import EngineDir
from llmgw_core.errors import LaunchError

ANSWER_TIMEOUT_S = 30.0
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from llmgw_core.agent.shim import main; "
    "sys.exit(main(sys.argv[3], '--pump' in sys.argv[4:]))"
)
# What an engine gets of the node's environment. Everything else must be in the plan: a variable of whoever happened
# to start the daemon must not decide how an engine runs, and a secret there must not reach it.
BASE_VARIABLES = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_DEVICE_ORDER",
        "CUDA_CACHE_PATH",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_CACHE",
        "TORCH_HOME",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "VLLM_CACHE_ROOT",
        "FLASHINFER_WORKSPACE_BASE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
    ]
)
_BASE_PREFIXES = ("LC_", "LLMGW_SHIM_")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(env: Mapping[str, str]) -> Dict[str, str]:
    """What of the node's environment an engine starts with."""
    base = {
        key: value
        for key, value in env.items()
        if key in BASE_VARIABLES or key.startswith(_BASE_PREFIXES)
    }
    base.setdefault("PATH", DEFAULT_PATH)
    return base


def shim_argv(directory: Path, pump_only: bool = False) -> List[str]:
    """The command that becomes a shim; the same from a bundle, a checkout and site-packages.

    `-I -S`: nothing of the user's environment or site-packages is read, which also keeps it small.
    """
    root = str(Path(llmgw_core.__file__).absolute().parent.parent)
    argv = [sys.executable, "-I", "-S", "-B", "-c", _CODE, root, "shim", str(directory)]
    return [*argv, "--pump"] if pump_only else argv


def start_shim(directory: EngineDir, env: Mapping[str, str]) -> Dict[str, Any]:
    """Start the engine in that directory. Returns the shim's answer: `ok`, and `pid` or `what`.

    Raises:
        LaunchError: the shim itself could not be started, or said nothing in time.
    """
    process = _spawn(shim_argv(directory.root), env, subprocess.PIPE)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    with process.stdout as stream:
        line = _read_line(stream.fileno(), ANSWER_TIMEOUT_S)
    process.wait()
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise LaunchError(
            f"engine {directory.id} was not started",
            f"its shim said nothing of use: {_read_tail(directory) or line!r}",
            "look at the node's memory, process limits and disk",
        )
    return answer


def start_pump(directory: EngineDir, env: Mapping[str, str]) -> None:
    """Have another process store the engine's log, because its shim was killed.

    Raises:
        OSError: no process could be started.
    """
    _spawn(shim_argv(directory.root, pump_only=True), env, subprocess.DEVNULL).wait()


def _spawn(argv: List[str], env: Mapping[str, str], stdout: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env=base_environment(env),
        cwd="/",
        close_fds=True,
        start_new_session=True,
    )


def _read_line(fd: int, timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
    data = b""
    while not data.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            break
        piece = os.read(fd, 4096)
        if not piece:
            break
        data += piece
    return data


def _read_tail(directory: EngineDir) -> str:
    try:
        return (directory.root / "shim.err").read_text("utf-8", "replace").strip()[-300:]
    except OSError:
        return ""
