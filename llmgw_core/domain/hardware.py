"""What a node has: host, GPUs, and InfiniBand/RoCE ports.

Unknown is None everywhere, never 0, "" or "[N/A]". Units are in the names. The fields and their order are the
headless contract (docs/inventory.md).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, Optional, Tuple

from llmgw_core.domain.findings import Severity
from llmgw_core.domain.strict import STRICT


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
