"""What a node has: host, GPUs, and InfiniBand/RoCE ports.

Unknown is None everywhere, never 0, "" or "[N/A]". Units are in the names. The fields and their order are the
headless contract (docs/inventory.md).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, Optional, Tuple, Union

from llmgw_core.domain.findings import Severity
from llmgw_core.domain.strict import STRICT

Unit = Union[int, str]  # what an engine takes: a GPU by its index, or a MIG slice by its uuid


def _wire_name(name: str) -> str:
    """`class` is a Python keyword: the field is `gpu_class` here and `class` on the wire."""
    return "class" if name == "gpu_class" else name


STRICT_GPU: Dict[str, Any] = {**STRICT, "alias_generator": _wire_name, "populate_by_name": True}


@dataclass(frozen=True)
class Host:
    """The machine under a node."""

    __pydantic_config__ = STRICT

    hostname: Optional[str] = None
    os: Optional[str] = None  # e.g. "Debian GNU/Linux 12 (bookworm)"
    kernel: Optional[str] = None
    machine: Optional[str] = None  # e.g. "x86_64"
    boot_id: Optional[str] = None
    uptime_seconds: Optional[int] = None
    cpu_count: Optional[int] = None
    load_1m: Optional[float] = None
    memory_total_bytes: Optional[int] = None
    memory_available_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None  # of all CPUs, since the last reading; None: there was none
    model_cache: Optional[str] = None  # where models are downloaded to
    model_cache_total_bytes: Optional[int] = None  # of its disk; None: it does not answer
    model_cache_free_bytes: Optional[int] = None


@dataclass(frozen=True)
class GpuHealth:
    """One reason to look at a GPU twice."""

    __pydantic_config__ = STRICT

    code: str  # "ecc-uncorrected", "memory-held", "requires-reset", "gpu-lost", "unreadable", …
    severity: Severity  # an error makes the GPU unavailable
    message: str  # what it is and what to do


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory on a GPU."""

    __pydantic_config__ = STRICT

    pid: int
    name: Optional[str] = None  # as the driver says it, e.g. "python3"; None when it would not say
    user: Optional[str] = None  # None: owner not visible from here (another PID namespace, hidepid)
    memory_mib: Optional[int] = None
    engine: Optional[str] = None  # id of the engine of ours that it belongs to
    command: Optional[str] = None  # its command line, cut, without secrets
    # "engine" (ours), "user" (somebody's), "container", "orphan" (dead, its memory remains), "system" (serves others),
    # "hidden" (not visible from here)
    kind: Optional[str] = None


@dataclass(frozen=True)
class GpuXid:
    """An error of one GPU that the kernel log tells of, all its repetitions together."""

    __pydantic_config__ = STRICT

    code: int  # NVIDIA's number, e.g. 79
    verdict: str  # "fatal", "warning", "application" (a program's fault), "info"
    action: str  # "reset", "reboot", "check", "restart-application", "none"
    count: int = 1
    last_at: Optional[float] = None  # UTC epoch seconds; None where the log gives no time
    message: Optional[str] = None  # the last line, cut


@dataclass(frozen=True)
class MigInstance:
    """One slice of a GPU in MIG mode: a unit that CUDA takes by its uuid."""

    __pydantic_config__ = STRICT_GPU

    uuid: str
    profile: str  # "1g.18gb", "1c.3g.71gb"
    gpu_class: Optional[str] = field(default=None, metadata={"wire": "class"})  # "h200-mig-1g.18gb"
    number: Optional[int] = None  # the driver's number of it on its GPU
    available: bool = False  # its GPU is healthy, no engine has it, and nobody else computes there
    engine: Optional[str] = None  # id of the engine that has it


@dataclass(frozen=True)
class Gpu:
    """One GPU as an operator would judge it for a launch."""

    __pydantic_config__ = STRICT_GPU

    index: int  # valid for this reading only; the uuid is the identity
    uuid: Optional[str] = None
    name: Optional[str] = None
    gpu_class: Optional[str] = field(default=None, metadata={"wire": "class"})  # "h100-80g"
    pci_bus_id: Optional[str] = None
    compute_capability: Optional[str] = None  # "9.0"
    memory_total_mib: Optional[int] = None
    memory_used_mib: Optional[int] = None
    utilization_percent: Optional[int] = None
    temperature_celsius: Optional[int] = None
    power_watts: Optional[float] = None
    power_limit_watts: Optional[float] = None
    ecc_uncorrected: Optional[int] = None  # volatile count; None where the card has no ECC
    mig_mode: Optional[str] = None  # "Enabled", "Disabled"; None where the card has no MIG
    health: Tuple[GpuHealth, ...] = ()
    processes: Tuple[GpuProcess, ...] = ()
    engine: Optional[str] = None  # id of the engine that holds it
    available: bool = False  # healthy and free: an operator would launch on it
    vendor: str = "nvidia"  # or "amd"
    architecture: Optional[str] = None  # of AMD GPUs: "gfx942"
    compute_capability_source: Optional[str] = None  # "driver", "name", "pci"
    memory_free_mib: Optional[int] = None  # as the driver says: without what it reserves
    unified_memory_mib: Optional[int] = (
        None  # the machine's memory, where the GPU has none of its own
    )
    fan_percent: Optional[int] = None
    clock_sm_mhz: Optional[int] = None
    clock_max_sm_mhz: Optional[int] = None
    ecc_mode: Optional[str] = None  # "Enabled", "Disabled"; None where the card has no ECC
    ecc_uncorrected_lifetime: Optional[int] = None  # aggregate count
    persistence_mode: Optional[str] = None  # "Enabled", "Disabled"
    compute_mode: Optional[str] = None  # "Default", "Exclusive_Process", "Prohibited"
    addressing_mode: Optional[str] = None  # "HMM", "ATS", "None"
    recovery_action: Optional[str] = None  # what the driver asks for: "None", "Reset", …
    fabric_state: Optional[str] = None  # of NVSwitch: "Completed", "In Progress", "Not Started"
    fabric_status: Optional[str] = None  # "Success", or why not
    throttle_reasons: Tuple[
        str, ...
    ] = ()  # what slows its clocks now: "sw-power-cap", "hw-thermal", …
    xids: Optional[Tuple[GpuXid, ...]] = None  # since boot; None: the kernel log cannot be read
    mig_instances: Tuple[MigInstance, ...] = ()
    clock_memory_mhz: Optional[int] = None


class PortKind(str, Enum):
    """What protocol family an RDMA port speaks, which is not its link layer."""

    INFINIBAND = "infiniband"
    ROCE = "roce"
    IWARP = "iwarp"
    SOFT_ROCE = "soft-roce"
    OMNI_PATH = "omni-path"
    EFA = "efa"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class PortNote:
    """Why a port is left out, or to be looked at twice."""

    __pydantic_config__ = STRICT

    code: str  # "not-active", "no-gid", "virtual-function", "nvswitch-management", "slower", …
    reason: str  # what was seen, in words


@dataclass(frozen=True)
class Port:
    """One port of one HCA. One unreadable file makes one field None, never the port vanish."""

    __pydantic_config__ = STRICT

    hca: str  # "mlx5_0"
    port: int  # from 1
    link_layer: Optional[str] = None  # "InfiniBand", "Ethernet"
    kind: PortKind = PortKind.UNKNOWN
    state: Optional[str] = None  # "ACTIVE", "DOWN", "INIT", …
    physical_state: Optional[str] = None  # "LinkUp", "Disabled", …
    rate_gbps: Optional[float] = None
    lid: Optional[int] = None
    gid: Optional[str] = (
        None  # the one traffic would use: RoCE v2 with a routable address first, else index 0
    )
    netdev: Optional[str] = None
    numa_node: Optional[int] = None
    pci_bus_id: Optional[str] = None
    fabric: Optional[str] = None  # see domain.fabric; None: the port is of no usable fabric
    usable: bool = False  # engines on several nodes would use it: what NCCL_IB_HCA should list
    excluded: Optional[PortNote] = None  # why it is not usable
    suspect: Optional[PortNote] = None  # a hint that it is for something else; not proof
    link_width: Optional[int] = None  # lanes: 4
    link_speed: Optional[str] = (
        None  # "NDR"; "SDR" also stands for a speed the kernel does not know
    )
    gid_index: Optional[int] = None  # of `gid`; moves when a link flaps
    gid_type: Optional[str] = None  # "RoCE v2", "IB/RoCE v1"
    mtu_bytes: Optional[int] = None  # of RoCE, as verbs count it; InfiniBand's is not in sysfs
    sm_lid: Optional[int] = None  # of the subnet manager
    lmc: Optional[int] = None  # the port owns 2^lmc LIDs from `lid` on
    pkeys: Tuple[str, ...] = ()  # "0xffff"; by index, bit 15 set: full member
    vf: bool = False  # an SR-IOV virtual function
    pf_pci_bus_id: Optional[str] = None  # its physical function, where that is visible
    node_guid: Optional[str] = None
    system_image_guid: Optional[str] = None  # equal on two HCAs: one card
    firmware: Optional[str] = None
    model: Optional[str] = None  # hca_type: "MT4129" is a ConnectX-7
    board: Optional[str] = None  # board_id
    uverbs: Optional[str] = None  # "uverbs0": what an engine opens under /dev/infiniband
    uverbs_access: Optional[str] = None  # "ok", or the errno's name; None: not tried
    gpu_distance: Optional[str] = None  # to the nearest GPU: "PIX", "PXB", "PHB", "NODE", "SYS"
    nearest_gpus: Tuple[str, ...] = ()  # PCI addresses of the GPUs at that distance
    unread: Tuple[str, ...] = ()  # files that refused: "rate: EINVAL"
    default_route: bool = False  # its netdev is the way out of the node: management, mostly
    rx_gbps: Optional[float] = None  # carried now, in Gb/s of 10^9 bits; None: nobody watches
    tx_gbps: Optional[float] = None
    error_rates: Optional[Dict[str, float]] = None  # per second, of those counters that moved
