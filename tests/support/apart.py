"""Scenes that are played in namespaces of their own, so that a test may break what a machine has only once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 100.0
# The scene's own prints go to stderr: stdout is its result.
_PLAY = (
    "import json, os, runpy, sys, pathlib; out = os.dup(1); os.dup2(2, 1); "
    "value = runpy.run_path(sys.argv[1])[sys.argv[2]](pathlib.Path(sys.argv[3])); "
    "os.write(out, json.dumps(value).encode())"
)


@cache
def missing_namespaces() -> str:
    """Why scenes cannot be played here; "" when they can."""
    if os.getuid() != 0:
        return "namespaces need root"
    done = subprocess.run(
        ["unshare", "-pfmun", "--mount-proc", "true"], capture_output=True, check=False
    )
    return "" if done.returncode == 0 else f"unshare: {done.stderr.decode().strip()}"


def needs_namespaces() -> None:
    """Skip the test, with the reason, where namespaces may not be made."""
    if reason := missing_namespaces():
        pytest.skip(reason)


def play(
    scene: Callable[[Path], Any],
    root: Path,
    *namespaces: str,
    prepare: str = "",
    wrap: tuple[str, ...] = (),
    **env: str,
) -> Any:
    """What the scene, a function of a test module, returns when it is played apart.

    Args:
        namespaces: options of `unshare`; with `-pf` the scene is PID 1 there, and reaps nothing but its own children.
        prepare: shell commands run there first, with the scene's directory in `$1`.
        wrap: a command put before Python, e.g. `setpriv …`.
    """
    python = [sys.executable, "-c", _PLAY, scene.__code__.co_filename, scene.__name__, str(root)]
    script = f'set -e\n{prepare}\nshift\nexec "$@"'
    done = subprocess.run(
        ["unshare", *namespaces, "sh", "-c", script, "sh", str(root), *wrap, *python],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **env},
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-3000:]
    return json.loads(done.stdout)
