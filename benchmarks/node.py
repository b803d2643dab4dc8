"""The agent's and the shim's costs, on a simulated node of this machine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import psutil

from llmgw_core.agent.frames import FrameDecoder, encode_frame
from llmgw_core.agent.instance_lock import read_holder
from llmgw_core.agent.rpc import make_request
from llmgw_core.demo.cleanup import end_cluster
from llmgw_core.demo.cluster import FakeNode, h100s, node_folder, write_cluster
from llmgw_core.demo.fake_sysfs import infiniband_ports
from llmgw_core.domain.engine import EngineKind, EngineStatus
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.fleet.bundle import build_bundle
from llmgw_core.fleet.config import Target, load_cluster
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.operations import launch_plan, plan_launch, stop_engine

NODE = "n1"
READY_TIMEOUT_S = 90.0
MIB = 1 << 20
SUBNET = 0xFEC0_0000_0000_00B1
SETTLE_S = 5.0  # the readings after a launch, and after a console has left, are not the usual ones


@contextmanager
def simulated_node(root: Path) -> Iterator[Target]:
    """One simulated node with eight GPUs and ten InfiniBand ports; nothing of it runs on afterwards."""
    node = FakeNode(NODE, h100s(1), infiniband_ports(10, 1, SUBNET))
    (target,) = load_cluster(write_cluster(root, [node], load_s=1.0))
    try:
        yield target
    finally:
        end_cluster(root)


async def measure_agent(target: Target, root: Path, seconds: float) -> dict[str, float]:
    """Return what the daemon and a shim cost while four engines run and three consoles watch every second, and while none does."""
    engines: list[EngineStatus] = []
    async with AsyncExitStack() as stack:
        fleets = [
            await stack.enter_async_context(Fleet([target], interval_s=1.0)) for _ in range(3)
        ]
        for fleet in fleets:
            await fleet.settle(60.0)
        for number in range(4):
            request = LaunchRequest(f"bench{number}", EngineKind.VLLM, "demo/toy", node=NODE)
            plan = await plan_launch(fleets[0], request, f"{number}{'b' * 31}")
            engines += await launch_plan(fleets[0], plan, os.environ)
            await _await_ready(fleets[0], engines[-1].id)
        daemon = psutil.Process(fleets[0].client(NODE).hello.pid)
        await asyncio.sleep(SETTLE_S)
        watched, children = await _measure_cpu_percent(daemon, seconds)
        rss = daemon.memory_info().rss / MIB
        shim = psutil.Process(read_shim_pid(root, engines[0].id)).memory_full_info().uss / MIB
    await asyncio.sleep(SETTLE_S)
    unwatched, _ = await _measure_cpu_percent(daemon, 2 * seconds)
    async with Fleet([target], interval_s=1.0) as fleet:
        await fleet.settle(60.0)
        for engine in engines:
            await stop_engine(fleet, NODE, engine.id, 5.0)
    return {
        "rss_mib": rss,
        "watched_percent": watched,
        "children_percent": children,
        "unwatched_percent": unwatched,
        "shim_mib": shim,
    }


async def _measure_cpu_percent(process: psutil.Process, seconds: float) -> tuple[float, float]:
    """Of the process, and of its children that have ended meanwhile."""
    before, began = read_cpu_s(process), time.monotonic()
    await asyncio.sleep(seconds)
    spent = [now - then for now, then in zip(read_cpu_s(process), before, strict=True)]
    own, children = (100 * spent_s / (time.monotonic() - began) for spent_s in spent)
    return own, children


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
