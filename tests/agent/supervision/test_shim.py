"""The shim stays small, and starts from a bundle as from a checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import llmgw_core
from llmgw_core.agent.records import RunRecord, read_record
from llmgw_core.agent.shim import build_environment, put_venv_first
from llmgw_core.domain.engine import EngineState
from tests.support.engines import TINY_ENGINE, Bench, free_port, wait_until

ROOT = Path(llmgw_core.__file__).parent.parent
MAX_PRIVATE_KIB = 6 << 10
HEAVY = ("dataclasses", "typing", "asyncio", "subprocess", "inspect", "pathlib", "threading")

# Runs on any Python the node side supports, from a copy of what is sent to a node.
ROUND_TRIP = """
import sys, time
sys.path.insert(0, sys.argv[1])
from llmgw_core.agent.paths import resolve_instance
from llmgw_core.agent.supervisor import Supervisor
from llmgw_core.domain.engine import EngineKind, EngineState
from llmgw_core.domain.launch import RankPlan
env = {"LLMGW_STATE_DIR": sys.argv[2]}
supervisor = Supervisor(resolve_instance(env), env)
argv = (sys.executable, "-I", "-S", sys.argv[3], "--port=" + sys.argv[4], "--worker", "--escape")
supervisor.launch("k", RankPlan("t-00000001", "t", EngineKind.VLLM, "org/m", "tiny", "here", argv, {},
                                port=int(sys.argv[4]), grace_seconds=0.3), {})
def wait_for(state):
    end = time.monotonic() + 20
    while supervisor.list()[0].state is not state:
        assert time.monotonic() < end, supervisor.list()
        supervisor.tick()
        time.sleep(0.03)
wait_for(EngineState.READY)
supervisor.stop("s", "t", None)
wait_for(EngineState.STOPPED)
supervisor.close(5)
print("stopped on %d.%d" % sys.version_info[:2])
"""


def test_imports_are_few() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import llmgw_core.agent.shim; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_private_memory_is_small(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")
    supervisor.launch("k", plan, {})
    run = read_record(bench.instance.engine(plan.engine_id).run, RunRecord)
    assert run is not None

    rollup = Path(f"/proc/{run.shim.pid}/smaps_rollup").read_text("ascii")

    private = sum(int(line.split()[1]) for line in rollup.splitlines() if "Private_" in line)
    assert private <= MAX_PRIVATE_KIB


@pytest.mark.slow
def test_shim_is_a_session_of_its_own_and_its_children_fall_to_it(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")
    supervisor.launch("k", plan, {})
    run = read_record(bench.instance.engine(plan.engine_id).run, RunRecord)
    assert run is not None

    assert os.getsid(run.shim.pid) not in (os.getsid(0), run.sid)
    assert b"LLMGW_ENGINE" not in Path(f"/proc/{run.shim.pid}/environ").read_bytes()
    assert Path(f"/proc/{run.shim.pid}/cwd").readlink() == Path("/")
    assert supervisor.list()[0].state is EngineState.STARTING


def test_plan_wins_over_the_node_and_the_marker_over_both() -> None:
    env = build_environment(
        {"PATH": "/bin", "LANG": "C", "LLMGW_SHIM_SEGMENTS": "3"},
        {"LANG": "C.UTF-8", "LLMGW_ENGINE": "liar", "PYTHONUNBUFFERED": "0"},
        {"HF_TOKEN": "t"},
        "e-1",
    )

    assert env == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "HF_TOKEN": "t",
        "LLMGW_ENGINE": "e-1",
        "SPT_NOENV": "1",
        "PYTHONUNBUFFERED": "0",
    }


@pytest.mark.slow
def test_whole_life_of_an_engine_on_the_oldest_python_from_a_bare_copy(bench: Bench) -> None:
    python = find_python39()
    if python is None:
        pytest.skip("no Python 3.9 here")
    copy = bench.root / "copy"
    for part in ("__init__.py", "errors.py", "domain", "agent"):
        source, target = ROOT / "llmgw_core" / part, copy / "llmgw_core" / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    engine = bench.root / "engine.py"
    engine.write_text(TINY_ENGINE, "utf-8")
    arguments = [copy, bench.root / "state", engine, str(free_port())]

    done = subprocess.run(
        [python, "-I", "-c", ROUND_TRIP, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert done.stdout.strip() == "stopped on 3.9", done.stderr
    wait_until(lambda: bench.processes() == [], "nothing is left")


def find_python39() -> Path | None:
    found = shutil.which("python3.9")
    candidates = [Path(found)] if found else []
    candidates += sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    for candidate in candidates:
        done = subprocess.run(
            [candidate, "-I", "-c", "import sys; print(sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stdout.strip() == "(3, 9)":
            return candidate
    return None


def test_an_engine_of_a_venv_finds_what_is_installed_beside_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").touch()
    base = {"PATH": "/usr/bin"}

    of_venv = put_venv_first(base, f"{tmp_path}/bin/vllm")
    of_path = put_venv_first(base, "vllm")
    of_system = put_venv_first(base, "/usr/bin/python3")

    assert of_venv["PATH"] == f"{tmp_path}/bin:/usr/bin"
    assert of_path == of_system == base
