"""Large clusters of nodes with eight GPUs and eight adapter ports, every field filled in as real drivers fill it."""

from pathlib import Path

from llmgw_core.domain.hardware import Gpu, Host, Port, PortKind
from llmgw_core.domain.inventory import Inventory, Node
from llmgw_core.domain.wire import dump_json
from llmgw_core.planning.fabrics import build_inventory

GPUS = 8
PORTS = 8
NODES_PER_SUBNET = 256
_GENERATED_AT = "2026-01-01T00:00:00Z"
_PREFIX = 0xFEC0_0000_0000_00A1


def make_nodes(count: int) -> tuple[Node, ...]:
    """`gpu0001` …: HGX H100 nodes with eight NDR adapters, each 256 of them on an InfiniBand subnet of their own."""
    return tuple(make_node(number) for number in range(1, count + 1))


def make_node(number: int) -> Node:
    """One of them, as its agent says it: it knows nothing of its island."""
    return Node(
        name=f"gpu{number:04}",
        address=f"gpu{number:04}.cluster",
        host=Host(
            hostname=f"gpu{number:04}",
            os="Ubuntu 22.04.4 LTS",
            kernel="5.15.0-113-generic",
            machine="x86_64",
            boot_id=f"0f3a{number:04x}-9d42-4c1c-8f7e-6a2b5c3d1e0f",
            uptime_seconds=864000 + number,
            cpu_count=224,
            load_1m=3.25,
            memory_total_bytes=2164 << 30,
            memory_available_bytes=2011 << 30,
        ),
        driver_version="570.133.20",
        cuda_version="12.8",
        gpus=tuple(_make_gpu(number, index) for index in range(GPUS)),
        ports=tuple(_make_port(number, index) for index in range(PORTS)),
    )


def make_inventory(count: int) -> Inventory:
    """The document of all of them."""
    return build_inventory(make_nodes(count), _GENERATED_AT)


def write_inventory(path: Path, count: int) -> None:
    """What `llmgw inventory --json` would print of them."""
    path.write_text(dump_json(make_inventory(count), indent=2) + "\n", "utf-8")


def _make_gpu(node: int, index: int) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{node:04x}{index:04x}-6c1f-4d2b-9a3e-{node:08x}d1d{index}",
        name="NVIDIA H100 80GB HBM3",
        gpu_class="h100-80g",
        pci_bus_id=f"0000:{0x18 + 0x10 * index:02x}:00.0",
        compute_capability="9.0",
        memory_total_mib=81559,
        memory_used_mib=4,
        utilization_percent=0,
        temperature_celsius=31 + (node + index) % 9,
        power_watts=68.0 + (node * 7 + index) % 12 + 0.25,
        power_limit_watts=700.0,
        ecc_uncorrected=0,
        mig_mode="Disabled",
        available=True,
        compute_capability_source="driver",
        memory_free_mib=80945,
        clock_sm_mhz=345,
        clock_max_sm_mhz=1980,
        ecc_mode="Enabled",
        ecc_uncorrected_lifetime=0,
        persistence_mode="Enabled",
        compute_mode="Default",
        addressing_mode="HMM",
        recovery_action="None",
        fabric_state="Completed",
        fabric_status="Success",
        xids=(),
    )


def _make_port(node: int, index: int) -> Port:
    subnet, place = divmod(node - 1, NODES_PER_SUBNET)
    prefix = f"{_PREFIX + subnet:016x}"
    guid = f"b8cef603{node:04x}{index:04x}"
    return Port(
        hca=f"mlx5_{index}",
        port=1,
        link_layer="InfiniBand",
        kind=PortKind.INFINIBAND,
        state="ACTIVE",
        physical_state="LinkUp",
        rate_gbps=400.0,
        lid=64 + place * PORTS + index,
        gid=_in_groups(prefix + guid),
        netdev=f"ib{index}",
        numa_node=index // 4,
        pci_bus_id=f"0000:{0x19 + 0x10 * index:02x}:00.0",
        fabric=f"ib-{prefix}",
        usable=True,
        link_width=4,
        link_speed="NDR",
        gid_index=0,
        gid_type="IB/RoCE v1",
        sm_lid=1,
        lmc=0,
        pkeys=("0xffff",),
        node_guid=_in_groups(guid),
        system_image_guid=_in_groups(guid),
        firmware="28.39.1002",
        model="MT4129",
        board="MT_0000000838",
        uverbs=f"uverbs{index}",
        uverbs_access="ok",
        gpu_distance="PIX",
        nearest_gpus=(f"0000:{0x18 + 0x10 * index:02x}:00.0",),
    )


def _in_groups(digits: str) -> str:
    return ":".join(digits[place : place + 4] for place in range(0, len(digits), 4))
