"""The agent's and the shim's costs, on a simulated node of this machine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from llmgw_core.agent.frames import FrameDecoder, encode_frame
from llmgw_core.agent.instance_lock import read_holder
from llmgw_core.agent.rpc import make_request
from llmgw_core.demo.cleanup import end_cluster
from llmgw_core.demo.cluster import make_cluster, node_folder
from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.fleet.bundle import build_bundle
from llmgw_core.fleet.config import Target, load_cluster
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.operations import launch_plan, plan_launch, stop_engine

NODE = "n1"
READY_TIMEOUT_S = 90.0
MIB = 1 << 20


@contextmanager
def simulated_node(root: Path) -> Iterator[Target]:
    """One simulated node with two GPUs and two InfiniBand ports; nothing of it runs on afterwards."""
    cluster = make_cluster(root, "small", load_s=2.0)
    target = next(target for target in load_cluster(cluster) if target.name == NODE)
    try:
        yield target
    finally:
        end_cluster(root)


async def measure_agent_and_shim(target: Target, root: Path, seconds: float) -> dict[str, float]:
    """Return the daemon's memory and CPU while one console watches it every second and an engine runs, and the shim's memory."""
    async with Fleet([target], interval_s=1.0) as fleet:
        await fleet.settle(60.0)
        request = LaunchRequest("bench", EngineKind.VLLM, "demo/toy", node=NODE)
        plan = await plan_launch(fleet, request, "b" * 32)
        (status,) = await launch_plan(fleet, plan, os.environ)
        await _await_ready(fleet, status.id)
        daemon = psutil.Process(fleet.client(NODE).hello.pid)
        before, began = read_cpu_s(daemon), time.monotonic()
        await asyncio.sleep(seconds)
        own_s, children_s = (
            now - then for now, then in zip(read_cpu_s(daemon), before, strict=True)
        )
        spent_s = time.monotonic() - began
        shim = psutil.Process(read_shim_pid(root, status.id))
        found = {
            "agent_rss_mib": daemon.memory_info().rss / MIB,
            "agent_cpu_percent": 100 * own_s / spent_s,
            "agent_children_cpu_percent": 100 * children_s / spent_s,
            "shim_private_mib": shim.memory_full_info().uss / MIB,
        }
        await stop_engine(fleet, NODE, status.id, 5.0)
    return found


async def _await_ready(fleet: Fleet, engine_id: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        engines = await fleet.client(NODE).engines()
        if any(engine.id == engine_id and engine.ready for engine in engines):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{engine_id} is not ready: {engines}")
        await asyncio.sleep(0.3)


def measure_first_answer_s(target: Target, rounds: int) -> list[float]:
    """Return how long a bundle already on the node takes from its start to its first answer, with no daemon before."""
    code = Path(target.env["LLMGW_CACHE_DIR"]) / "agent" / build_bundle().hash
    times = []
    for _ in range(rounds):
        end_daemon(Path(target.env["LLMGW_STATE_DIR"]))
        times.append(_time_first_answer_s(code, target))
    return times


def _time_first_answer_s(code: Path, target: Target) -> float:
    hello = {"protocol": [1, 1], "version": "0.0.0", "bundle": code.name}
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(code), "proxy"],
        env={**os.environ, **target.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdin.write(encode_frame(make_request(1, "hello", hello)))
        proxy.stdin.flush()
        decoder = FrameDecoder()
        while not decoder.feed(os.read(proxy.stdout.fileno(), 65536)):
            pass
        spent_s = time.perf_counter() - began
        proxy.stdin.close()
    return spent_s


def end_daemon(state: Path) -> None:
    """End the node's daemon, and wait until it is gone."""
    for lock in state.glob("*/lock"):
        pid = read_holder(lock)
        if pid is None:
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
            time.sleep(0.01)


def read_cpu_s(process: psutil.Process) -> tuple[float, float]:
    """(CPU seconds of the process, of its children that have ended)."""
    times = process.cpu_times()
    return times.user + times.system, times.children_user + times.children_system


def read_shim_pid(root: Path, engine_id: str) -> int:
    """The pid of the engine's shim."""
    (path,) = node_folder(root, NODE).glob(f"state/*/engines/{engine_id}/run.json")
    return int(json.loads(path.read_text("utf-8"))["shim"]["pid"])
