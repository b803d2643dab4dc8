"""The simulated cluster: loaded, looked at, launched on, and gone without a trace."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw_core.agent.procfs import is_alive
from llmgw_core.demo.cleanup import find_processes
from llmgw_core.demo.cluster import SCENARIOS, make_cluster
from llmgw_core.demo.main import main, open_demo
from llmgw_core.demo.toy.gpu_memory import read_start_ticks
from llmgw_core.domain.engine import EngineKind, EngineState, EngineStatus
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import Contact, FleetSnapshot, NodeView
from llmgw_core.domain.launch import RankPlan
from llmgw_core.errors import UsageError
from llmgw_core.fleet.client import AgentClient
from llmgw_core.fleet.config import load_cluster
from llmgw_core.fleet.fleet import Fleet
from tests.support.engines import free_port

SETTLE_S = 60.0
LOAD_S = 0.8


def view_of(snapshot: FleetSnapshot, name: str) -> NodeView:
    return next(view for view in snapshot.nodes if view.node.name == name)


def plan_rank(root: Path, node: str, model: str) -> RankPlan:
    """What a planner would make of `launch MODEL` on GPU 0 of the node."""
    port, venv, path = free_port(), root / f"nodes/{node}/venv/bin", str(root / "models" / model)
    tail = ("--served-model-name", "toy", "--host", "127.0.0.1", "--port", str(port))
    argv = (str(venv / "vllm"), "serve", path, *tail)
    return RankPlan(
        engine_id=f"toy-{uuid.uuid4().hex[:8]}",
        name="toy",
        engine=EngineKind.VLLM,
        model=path,
        served_model_name="toy",
        node=node,
        argv=argv,
        env={"CUDA_VISIBLE_DEVICES": "0"},
        gpus=(0,),
        port=port,
        grace_seconds=5.0,
    )


async def wait_for_engine(
    fleet: Fleet, node: str, engine_id: str, claim: Callable[[EngineStatus], bool]
) -> EngineStatus:
    async with asyncio.timeout(SETTLE_S):
        async for snapshot in fleet.snapshots():
            for engine in view_of(snapshot, node).node.engines:
                if engine.id == engine_id and claim(engine):
                    return engine
    raise AssertionError("the fleet closed")


async def wait_for_gpu(client: AgentClient, claim: Callable[[Gpu], bool]) -> Gpu:
    """GPU 0 once the claim is true of it: a reading, and a scan of processes, may be some seconds old."""
    async with asyncio.timeout(SETTLE_S):
        while True:
            gpu = (await client.inventory(max_age_s=0.2)).gpus[0]
            if claim(gpu):
                return gpu
            await asyncio.sleep(0.2)


def owners_on(gpu: Gpu) -> list[str | None]:
    return [process.engine for process in gpu.processes]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_is_a_cluster_file_that_loads(tmp_path: Path, scenario: str) -> None:
    targets = load_cluster(make_cluster(tmp_path, scenario))

    assert len({target.name for target in targets}) == len(targets) > 1
    assert all(target.address or target.env for target in targets)


def test_unknown_scenario_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no demo scenario 'huge'"):
        make_cluster(tmp_path, "huge")


@pytest.mark.slow
async def test_mixed_cluster_settles_with_each_kind_of_node(tmp_path: Path) -> None:
    with open_demo(tmp_path) as cluster:
        async with Fleet(load_cluster(cluster), interval_s=0.5) as fleet:
            snapshot = await fleet.settle(SETTLE_S)
    nodes = {view.node.name: view for view in snapshot.nodes}

    assert {name: len(view.node.gpus) for name, view in nodes.items()} == {
        "h100-1": 8,
        "h100-2": 8,
        "h100-3": 8,
        "h100-4": 0,
        "l40s-1": 4,
        "store-1": 0,
    }
    assert nodes["h100-4"].contact is Contact.UNREACHABLE
    sick = [[flag.code for flag in gpu.health] for gpu in nodes["h100-3"].node.gpus]
    assert sick[2] == ["ecc-uncorrected"]
    assert sick[5] == sick[6] == ["memory-held"]
    assert [island.nodes for island in snapshot.islands if len(island.nodes) > 1] == [
        ("h100-1", "h100-2", "h100-3")
    ]
    assert find_processes(tmp_path) == ()


@pytest.mark.slow
async def test_engine_is_launched_seen_on_its_gpu_and_stopped(tmp_path: Path) -> None:
    with open_demo(tmp_path, "small", LOAD_S) as cluster:
        async with Fleet(load_cluster(cluster), interval_s=0.3) as fleet:
            await fleet.settle(SETTLE_S)
            rank = plan_rank(tmp_path, "n1", "llama-3.1-8b")
            client = fleet.client("n1")
            await client.launch("k1", rank, {})
            await wait_for_engine(fleet, "n1", rank.engine_id, lambda engine: engine.ready)
            gpu = await wait_for_gpu(client, lambda gpu: owners_on(gpu) == [rank.engine_id])
            await client.stop("k2", rank.engine_id, 5.0)
            ended = await wait_for_engine(
                fleet, "n1", rank.engine_id, lambda engine: engine.state.is_over
            )
            freed = await wait_for_gpu(client, lambda gpu: gpu.memory_used_mib == 0)

    assert (gpu.engine, gpu.health) == (rank.engine_id, ())
    assert ended.state is EngineState.STOPPED
    assert (freed.engine, freed.available) == (None, True)


@pytest.mark.slow
async def test_stop_ends_running_engines_and_removes_the_files(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    with pytest.raises(SystemExit):
        main(["--no-such-option"])
    cluster = make_cluster(root, "small", LOAD_S)
    async with Fleet(load_cluster(cluster), interval_s=0.3) as fleet:
        await fleet.settle(SETTLE_S)
        rank = plan_rank(root, "n1", "llama-3.1-8b")
        await fleet.client("n1").launch("k1", rank, {})
        await wait_for_engine(fleet, "n1", rank.engine_id, lambda engine: engine.ready)
    before = {pid: read_start_ticks(str(pid)) for pid in find_processes(root)}

    code = await asyncio.to_thread(main, ["--stop", str(root)])

    assert before != {}
    assert code == 0
    assert not [pid for pid, ticks in before.items() if is_alive(pid, ticks)]
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - nothing else runs on this loop


def test_stop_refuses_a_directory_that_is_no_demo(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")

    with pytest.raises(UsageError, match="is no demo"):
        main(["--stop", str(tmp_path)])

    assert (tmp_path / "precious").exists()


@pytest.mark.slow
def test_print_makes_a_cluster_and_starts_nothing(tmp_path: Path) -> None:
    code = "import sys; from llmgw_core.demo.main import main; sys.exit(main(sys.argv[1:]))"
    ran = subprocess.run(
        [sys.executable, "-c", code, "--print", "--root", str(tmp_path / "d")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout == f"{tmp_path / 'd/cluster.toml'}\n"
    assert find_processes(tmp_path / "d") == ()
