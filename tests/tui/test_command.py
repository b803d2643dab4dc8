"""`llmgw-tui` as a command."""

import os
import subprocess
import sys

import pytest

from llmgw_core import __version__

pytestmark = pytest.mark.slow


def run_tui(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command with no terminal on any of its streams."""
    return subprocess.run(
        [sys.executable, "-m", "llmgw_tui", *args],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )


def test_without_a_terminal_it_points_at_json_and_prints_nothing() -> None:
    done = run_tui()

    assert (done.returncode, done.stdout) == (2, "")
    assert "--json" in done.stderr


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_that_is_none_is_a_usage_error(timeout: str) -> None:
    assert run_tui("--json", "--timeout", timeout).returncode == 2


def test_version() -> None:
    done = run_tui("--version")

    assert (done.returncode, done.stdout) == (0, f"llmgw-tui {__version__}\n")


def test_help_and_json_need_no_textual() -> None:
    code = (
        "import sys, llmgw_tui.__main__ as tui\n"
        "try: tui.run(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'textual', 'asyncssh', 'pydantic', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
