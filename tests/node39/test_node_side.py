"""The node side on the oldest Python it promises: 3.9, bare."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.fleet.bundle import build_bundle, collect_files, pack_files
from tests.support.agents import (
    AgentHome,
    PipeClient,
    agent_home,
    hello_params,
    make_rank,
    unpack_bundle,
    wait_for,
)

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for pattern in ("errors.py", "domain/**/*.py", "agent/**/*.py")
    for path in (ROOT / "llmgw_core").glob(pattern)
)


def find_python() -> str | None:
    """A Python 3.9 that runs: of pyenv, or on PATH."""
    found = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    for candidate in (*map(str, found), "python3.9"):
        try:
            ran = subprocess.run(
                [candidate, "-c", "import sys; print(sys.version_info[:2] == (3, 9))"],
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            continue
        if ran.stdout.strip() == "True":
            return candidate
    return None


@pytest.fixture(scope="module")
def python() -> str:
    found = find_python()
    if found is None:
        pytest.skip("no Python 3.9 is installed here")
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AgentHome]:
    with agent_home(tmp_path) as made:
        yield made


@pytest.fixture
def command(home: AgentHome, python: str) -> list[str]:
    """The bundle, unpacked, on that Python."""
    files = collect_files(ROOT / "llmgw_core")
    bundle = pack_files(files)
    return [python, *unpack_bundle(bundle, files, Path(home.env["LLMGW_CACHE_DIR"]))[1:]]


def test_every_module_is_imported(python: str) -> None:
    code = (
        "import importlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "for name in sys.argv[2:]: importlib.import_module(name)"
    )

    ran = subprocess.run(
        [python, "-I", "-S", "-B", "-W", "error", "-c", code, str(ROOT), *MODULES],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stderr == ""


def test_bundle_prints_the_inventory(home: AgentHome, command: list[str]) -> None:
    ran = subprocess.run(
        [*command, "inventory", "--json"],
        env=home.whole_env,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stderr == ""
    assert json.loads(ran.stdout)["reachable"] is True


def test_daemon_greets_reads_the_node_and_runs_an_engine(
    home: AgentHome, command: list[str]
) -> None:
    from llmgw_core.domain.wire import to_jsonable

    client = PipeClient(home.start("proxy", command=command))

    hello = client.result("hello", **hello_params())
    node = client.result("inventory", max_age_s=0.0)
    rank = to_jsonable(make_rank())
    engine = client.result("engine.launch", key="k", rank=rank, secrets={})["id"]
    log = wait_for(
        lambda: client.result("log.read", engine=engine, offset=0, max_bytes=1000)["data"],
        "the engine prints",
    )
    client.result("engine.stop", key="s", engine=engine, grace_seconds=1.0)
    (status,) = wait_for(
        lambda: [e for e in client.result("engine.list") if e["state"] == "stopped"],
        "the engine has stopped",
    )

    assert hello["python"].startswith("3.9.")
    assert hello["bundle"] == build_bundle().hash
    assert node["name"]
    assert log.startswith("counter starts\n")
    assert status["exit"]["reason"] == "stopped"
