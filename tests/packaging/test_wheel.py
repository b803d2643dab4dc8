"""The wheel as a stranger gets it: built, installed in a clean environment with its dependencies, and run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_core import __version__

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment that has the wheel and nothing of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    run(str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", str(wheel))
    return folder / "venv/bin"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", ["llmgw", "llmgw-tui"])
def test_commands_say_their_version(installed: Path, command: str) -> None:
    assert run(str(installed / command), "--version").strip() == f"{command} {__version__}"


@pytest.mark.timeout(300)
def test_help_names_every_verb(installed: Path) -> None:
    text = run(str(installed / "llmgw"), "--help")

    verbs = [
        "inventory",
        "plan",
        "launch",
        "status",
        "logs",
        "stop",
        "forget",
        "agent",
        "demo",
        "version",
    ]
    assert [verb for verb in verbs if verb not in text] == []


@pytest.mark.timeout(300)
def test_inventory_of_this_machine_is_the_document(installed: Path, tmp_path: Path) -> None:
    document = json.loads(run(str(installed / "llmgw"), "inventory", "--json", home=tmp_path))

    assert document["schema"] == "llmgw.inventory/1"
    assert len(document["nodes"]) == 1


@pytest.mark.timeout(300)
def test_demo_comes_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    path = run(str(installed / "llmgw"), "demo", "--print", "--root", str(tmp_path / "demo"))

    assert Path(path.strip()).is_file()


def run(*argv: str, home: Path | None = None) -> str:
    """Run a command outside the checkout; its stdout.

    Raises:
        AssertionError: it failed.
    """
    env = {**os.environ, "PYTHONPATH": ""}
    if home is not None:
        env |= {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
            "LLMGW_STATE_DIR": str(home / "state"),
        }
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=env,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
    return done.stdout
