"""The headless contract: the inventory's keys, pinned. Adding one is a decision, losing one breaks operators' scripts."""

import json

from pydantic import TypeAdapter

from llmgw_core.domain import wire
from llmgw_core.domain.engine import Diagnosis, EngineExit, EngineKind, EngineState, EngineStatus
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import (
    Gpu,
    GpuHealth,
    GpuProcess,
    GpuXid,
    Host,
    MigInstance,
    Port,
    PortNote,
)
from llmgw_core.domain.inventory import (
    INVENTORY_SCHEMA,
    Fabric,
    Inventory,
    Island,
    Node,
    NodeFault,
)

KEYS = {
    Inventory: "schema generated_at nodes fabrics islands",
    Node: "name address reachable error host driver_version cuda_version gpus ports island engines"
    " health",
    NodeFault: "code message hint",
    Host: "hostname os kernel machine boot_id uptime_seconds cpu_count load_1m memory_total_bytes memory_available_bytes"
    " cpu_percent model_cache model_cache_total_bytes model_cache_free_bytes",
    Gpu: "index uuid name class pci_bus_id compute_capability memory_total_mib memory_used_mib utilization_percent"
    " temperature_celsius power_watts power_limit_watts ecc_uncorrected mig_mode health processes engine available"
    " vendor architecture compute_capability_source memory_free_mib unified_memory_mib fan_percent clock_sm_mhz"
    " clock_max_sm_mhz ecc_mode ecc_uncorrected_lifetime persistence_mode compute_mode addressing_mode recovery_action"
    " fabric_state fabric_status throttle_reasons xids mig_instances clock_memory_mhz",
    GpuHealth: "code severity message",
    GpuProcess: "pid name user memory_mib engine command kind",
    GpuXid: "code verdict action count last_at message",
    MigInstance: "uuid profile class number available engine",
    Port: "hca port link_layer kind state physical_state rate_gbps lid gid netdev numa_node pci_bus_id fabric"
    " usable excluded suspect link_width link_speed gid_index gid_type mtu_bytes sm_lid lmc pkeys vf pf_pci_bus_id node_guid"
    " system_image_guid firmware model board uverbs uverbs_access gpu_distance nearest_gpus unread default_route"
    " rx_gbps tx_gbps error_rates",
    PortNote: "code reason",
    EngineStatus: "id name engine model served_model_name state ready rank ranks pid gpus url adopted started_at phase"
    " progress exit diagnosis",
    EngineExit: "code signal reason",
    Diagnosis: "code message hint",
    Fabric: "id kind nodes networks verdict reason",
    Island: "id fabric nodes gpu_classes",
}

ENGINE = EngineStatus(
    id="llama-0a1b2c3d",
    name="llama",
    engine=EngineKind.VLLM,
    model="/models/llama",
    served_model_name="llama",
    state=EngineState.FAILED,
    exit=EngineExit(code=1, reason="exited"),
    diagnosis=Diagnosis("cuda-oom", "out of memory", "lower the memory fraction"),
)
GPU = Gpu(
    index=0,
    gpu_class="h100-80g",
    health=(GpuHealth("memory-held", Severity.ERROR, "pid 4411 holds 61440 MiB"),),
    processes=(GpuProcess(4411, "python3", "svc", 61440),),
    xids=(GpuXid(79, "fatal", "reboot"),),
    mig_instances=(MigInstance("MIG-1", "1g.18gb", "h100-mig-1g.10gb"),),
)
FULL = Inventory(
    schema=INVENTORY_SCHEMA,
    generated_at="2026-01-01T00:00:00Z",
    nodes=(
        Node(
            name="n1",
            error=NodeFault("smi-hung", "nvidia-smi does not answer", "look for D state"),
            gpus=(GPU,),
            ports=(Port(hca="mlx5_0", port=1, rx_gbps=0.5, error_rates={"link_downed": 0.1}),),
            engines=(ENGINE,),
        ),
    ),
    fabrics=(Fabric("ib-1", "infiniband", ("n1",)),),
    islands=(Island("n1", None, ("n1",), {"h100-80g": 1}),),
)


def test_every_object_has_exactly_the_keys_of_the_contract() -> None:
    found = {kind: set(wire.to_jsonable(kind(**sample(kind)))) for kind in KEYS}

    assert found == {kind: set(names.split()) for kind, names in KEYS.items()}


def sample(kind: type) -> dict[str, object]:
    """The fields without a default, filled with something."""
    some: dict[type, object] = {Inventory: FULL, EngineStatus: ENGINE, Gpu: GPU}
    if kind in some:
        return dict(vars(some[kind]))
    needed: dict[type, dict[str, object]] = {
        Node: {"name": "n"},
        NodeFault: {"code": "c", "message": "m", "hint": "h"},
        GpuHealth: {"code": "c", "severity": Severity.ERROR, "message": "m"},
        GpuProcess: {"pid": 1},
        GpuXid: {"code": 79, "verdict": "fatal", "action": "reboot"},
        MigInstance: {"uuid": "MIG-1", "profile": "1g.18gb"},
        Port: {"hca": "mlx5_0", "port": 1},
        Diagnosis: {"code": "c", "message": "m", "hint": "h"},
        PortNote: {"code": "c", "reason": "r"},
        Fabric: {"id": "f", "kind": "roce"},
        Island: {"id": "i"},
    }
    return needed.get(kind, {})


def test_the_document_comes_back_the_same_by_both_readers() -> None:
    text = wire.dump_json(FULL)

    by_stdlib = wire.from_jsonable(Inventory, json.loads(text))
    by_pydantic = TypeAdapter(Inventory).validate_json(text)

    assert by_stdlib == FULL
    assert by_pydantic == FULL


def test_same_inventory_gives_same_bytes() -> None:
    assert wire.dump_json(FULL) == wire.dump_json(
        wire.from_jsonable(Inventory, json.loads(wire.dump_json(FULL)))
    )
