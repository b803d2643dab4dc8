"""Fleets for the console's tests and pictures: domain objects, no network, one fixed clock."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from llmgw_core.domain.engine import (
    Diagnosis,
    EngineExit,
    EngineKind,
    EngineState,
    EngineStatus,
    LogChunk,
)
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Gpu, GpuHealth, GpuProcess, Host, Port, PortKind
from llmgw_core.domain.inventory import (
    Contact,
    Fabric,
    FleetSnapshot,
    Island,
    Node,
    NodeFault,
    NodeView,
)
from llmgw_core.domain.launch import PLAN_SCHEMA, LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.errors import EngineNotFound, LlmgwError

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
STARTED_AT = "2025-12-31T21:55:00Z"
IB_FABRIC = "ib-fe80000000000000"


def make_gpu(index: int, **changes: object) -> Gpu:
    """A free H100."""
    gpu = Gpu(
        index=index,
        uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
        name="NVIDIA H100 80GB HBM3",
        gpu_class="h100-80g",
        pci_bus_id=f"00000000:{0x18 + index:02X}:00.0",
        compute_capability="9.0",
        memory_total_mib=81559,
        memory_used_mib=4,
        utilization_percent=0,
        temperature_celsius=31,
        power_watts=71.0,
        power_limit_watts=700.0,
        ecc_uncorrected=0,
        mig_mode="Disabled",
        available=True,
    )
    return replace(gpu, **changes)  # type: ignore[arg-type]


def make_busy_gpu(index: int, engine: str) -> Gpu:
    """An H100 that an engine of ours holds."""
    return make_gpu(
        index,
        memory_used_mib=74520,
        utilization_percent=88,
        temperature_celsius=64,
        power_watts=512.0,
        engine=engine,
        available=False,
        processes=(GpuProcess(4000 + index, "python3", "serve", 74516, engine),),
    )


def make_held_gpu(index: int) -> Gpu:
    """An H100 on which somebody else's process sits."""
    return make_gpu(
        index,
        memory_used_mib=62464,
        utilization_percent=3,
        available=False,
        processes=(GpuProcess(4411, "python", "alice", 62460),),
        health=(
            GpuHealth(
                "memory-held",
                Severity.ERROR,
                "pid 4411 (python, alice) holds 61 GiB and is no engine of llmgw: ask its owner",
            ),
        ),
    )


def make_port(index: int, **changes: object) -> Port:
    """An active 400G InfiniBand port."""
    port = Port(
        hca=f"mlx5_{index}",
        port=1,
        link_layer="InfiniBand",
        kind=PortKind.INFINIBAND,
        state="ACTIVE",
        physical_state="LinkUp",
        rate_gbps=400.0,
        lid=10 + index,
        gid=f"fe80:0000:0000:0000:9c63:c003:0000:{index:04x}",
        netdev=f"ibp{index}s0",
        numa_node=index % 2,
        pci_bus_id=f"0000:{0x1A + index:02x}:00.0",
        fabric=IB_FABRIC,
    )
    return replace(port, **changes)  # type: ignore[arg-type]


def make_engine(
    name: str, state: EngineState = EngineState.READY, **changes: object
) -> EngineStatus:
    """An engine, ready unless said otherwise."""
    engine = EngineStatus(
        id=f"{name}-0badcafe",
        name=name,
        engine=EngineKind.VLLM,
        model=f"/models/{name}",
        served_model_name=name,
        state=state,
        ready=state is EngineState.READY,
        pid=4000,
        gpus=(0, 1),
        url="http://127.0.0.1:8000",
        started_at=STARTED_AT,
        phase="serving" if state is EngineState.READY else None,
    )
    return replace(engine, **changes)  # type: ignore[arg-type]


def make_node(name: str, **changes: object) -> Node:
    """A node with four free GPUs and two ports."""
    node = Node(
        name=name,
        address=f"10.0.0.{len(name)}",
        host=Host(
            hostname=name,
            os="Ubuntu 24.04.1 LTS",
            kernel="6.8.0-49-generic",
            machine="x86_64",
            uptime_seconds=932_400,
            cpu_count=112,
            load_1m=6.2,
            memory_total_bytes=2_164_663_517_184,
            memory_available_bytes=1_980_000_000_000,
        ),
        driver_version="570.124.06",
        cuda_version="12.8",
        gpus=tuple(make_gpu(index) for index in range(4)),
        ports=(make_port(0), make_port(1)),
        island=IB_FABRIC,
    )
    return replace(node, **changes)  # type: ignore[arg-type]


def make_view(node: Node, contact: Contact = Contact.CONNECTED, age: float = 1.0) -> NodeView:
    """A node as it was `age` seconds ago."""
    retry_at = NOW + 14 if contact is Contact.UNREACHABLE else None
    return NodeView(node, contact, NOW - age, retry_at)


def make_snapshot(*views: NodeView) -> FleetSnapshot:
    """The nodes as one picture, with their fabric."""
    on_fabric = tuple(view.node.name for view in views if view.node.island == IB_FABRIC)
    alone = tuple(view.node for view in views if view.node.island == view.node.name)
    islands = [Island(IB_FABRIC, IB_FABRIC, on_fabric, {"h100-80g": 4 * len(on_fabric)})]
    islands += [
        Island(node.name, None, (node.name,), {"l40s-45g": len(node.gpus)}) for node in alone
    ]
    fabrics = (Fabric(IB_FABRIC, "infiniband", on_fabric),) if len(on_fabric) > 1 else ()
    return FleetSnapshot(NOW, views, fabrics, tuple(islands) if views else ())


def make_cluster() -> FleetSnapshot:
    """Five nodes: serving, loading with a held GPU, failed without adapters, away, and not heard of yet."""
    chat = make_engine("chat", gpus=(0, 1))
    coder = make_engine(
        "coder",
        EngineState.LOADING,
        gpus=(2,),
        phase="weights",
        progress=0.42,
        url="http://127.0.0.1:8001",
        pid=5120,
        started_at="2025-12-31T23:58:20Z",
    )
    embed = make_engine(
        "embed",
        EngineState.FAILED,
        engine=EngineKind.SGLANG,
        gpus=(0,),
        pid=None,
        exit=EngineExit(code=1, reason="exited"),
        diagnosis=Diagnosis(
            "out-of-memory",
            "GPU 0 ran out of memory while the weights were loaded",
            "lower --max-model-len, or use a GPU with more memory",
        ),
    )
    l40s = {"gpu_class": "l40s-45g", "name": "NVIDIA L40S", "memory_total_mib": 46068}
    return make_snapshot(
        make_view(
            make_node(
                "gpu1",
                gpus=(
                    make_busy_gpu(0, chat.id),
                    make_busy_gpu(1, chat.id),
                    make_gpu(2),
                    make_gpu(3),
                ),
                engines=(chat,),
            )
        ),
        make_view(
            make_node(
                "gpu2",
                gpus=(make_gpu(0), make_held_gpu(1), make_busy_gpu(2, coder.id), make_gpu(3)),
                ports=(
                    make_port(0),
                    make_port(1, state="DOWN", physical_state="Disabled", fabric=None),
                ),
                engines=(coder,),
            )
        ),
        make_view(
            make_node(
                "gpu3",
                gpus=(make_gpu(0, **l40s), make_gpu(1, **l40s)),
                ports=(),
                island="gpu3",
                engines=(embed,),
            )
        ),
        make_view(
            make_node(
                "gpu10",
                reachable=False,
                error=NodeFault(
                    "timeout",
                    "gpu10 did not answer within 10 s",
                    "is it up? try `ssh gpu10`",
                ),
            ),
            Contact.UNREACHABLE,
            age=754.0,
        ),
        NodeView(
            Node(name="gpu11", address="10.0.0.11", reachable=False), Contact.CONNECTING, None
        ),
    )


def make_plan(request: LaunchRequest, launch_id: str, *findings: Finding) -> LaunchPlan:
    """A plan as the planner makes it, on gpu1."""
    port = request.port or 8002
    rank = RankPlan(
        engine_id=f"{request.name}-{launch_id[:8]}",
        name=request.name,
        engine=request.engine,
        model=request.model,
        served_model_name=request.name,
        node=request.node or "gpu1",
        argv=(
            "/opt/vllm/bin/vllm",
            "serve",
            request.model,
            "--served-model-name",
            request.name,
            "--tensor-parallel-size",
            str(request.tensor_parallel),
            "--port",
            str(port),
            *request.args,
        ),
        env={"CUDA_VISIBLE_DEVICES": "2,3", "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"},
        env_from=("HF_TOKEN",),
        gpus=(2, 3),
        port=port,
        verify=request.verify,
    )
    return LaunchPlan(PLAN_SCHEMA, launch_id, request, (rank,), tuple(findings))


class FakeFleet:
    """Pictures on demand, logs from memory, and a record of everything that was asked for."""

    def __init__(self, snapshot: FleetSnapshot | None = None) -> None:
        self._pictures: asyncio.Queue[FleetSnapshot] = asyncio.Queue()
        if snapshot is not None:
            self._pictures.put_nowait(snapshot)
        self.logs: dict[tuple[str, str], bytes] = {}
        self.log_reads: list[tuple[str, str, int]] = []
        self.planned: list[LaunchRequest] = []
        self.launched: list[LaunchPlan] = []
        self.stopped: list[tuple[str, str, float | None]] = []
        self.forgotten: list[tuple[str, str]] = []
        self.restarted: list[tuple[tuple[tuple[str, str], ...], str]] = []
        self.refreshed = 0
        self.findings: tuple[Finding, ...] = ()
        self.error: LlmgwError | None = None  # raised by whatever is asked next

    def push(self, snapshot: FleetSnapshot) -> None:
        """Let the console see this picture next."""
        self._pictures.put_nowait(snapshot)

    async def snapshots(self) -> AsyncIterator[FleetSnapshot]:
        """Every picture pushed, in order; never ends."""
        while True:
            yield await self._pictures.get()

    def client(self, node: str) -> "FakeClient":
        """A client that reads this fleet's logs."""
        return FakeClient(self, node)

    def _fail_once(self) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    async def plan(self, request: LaunchRequest, launch_id: str) -> LaunchPlan:
        """Plan with the findings set before."""
        self.planned.append(request)
        self._fail_once()
        return make_plan(request, launch_id, *self.findings)

    async def launch(self, plan: LaunchPlan) -> tuple[EngineStatus, ...]:
        """Note the plan."""
        self.launched.append(plan)
        self._fail_once()
        engine = make_engine(plan.request.name, EngineState.STARTING, id=plan.ranks[0].engine_id)
        return (engine,)

    async def stop(self, node: str, engine_id: str, grace_seconds: float | None) -> None:
        """Note the stop."""
        self.stopped.append((node, engine_id, grace_seconds))
        self._fail_once()

    async def forget(self, node: str, engine_id: str) -> None:
        """Note what is forgotten."""
        self.forgotten.append((node, engine_id))
        self._fail_once()

    async def restart(self, ranks: Sequence[tuple[str, str]], launch_id: str) -> None:
        """Note what is restarted, and under which launch id."""
        self.restarted.append((tuple(ranks), launch_id))
        self._fail_once()

    async def refresh(self) -> None:
        """Count."""
        self.refreshed += 1
        self._fail_once()


class FakeClient:
    """Reads logs by offset as an agent does."""

    def __init__(self, fleet: FakeFleet, node: str) -> None:
        self._fleet = fleet
        self._node = node

    async def read_log(self, engine: str, offset: int, max_bytes: int) -> LogChunk:
        """A piece of the log; a negative offset counts from the end."""
        self._fleet.log_reads.append((self._node, engine, offset))
        self._fleet._fail_once()
        data = self._fleet.logs.get((self._node, engine))
        if data is None:
            raise EngineNotFound(f"no engine {engine}", node=self._node)
        start = max(0, len(data) + offset) if offset < 0 else offset
        piece = data[start : start + max_bytes]
        return LogChunk(
            engine=engine,
            offset=start,
            data=piece.decode("utf-8", "surrogateescape"),
            next_offset=start + len(piece),
            start_offset=0,
            end_offset=len(data),
        )
