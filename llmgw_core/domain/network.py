"""What a node's network is like for the ranks of a launch, as an ordinary user of the node reads it.

Each fact fails alone: it is None, and `unread` says why. None is not an empty list.
"""

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

from llmgw_core.domain.strict import STRICT

UNLIMITED = -1  # of a limit

PHYSICAL = "physical"
LOOPBACK = "loopback"
BRIDGE = "bridge"
VETH = "veth"
TUNNEL = "tunnel"
BOND = "bond"
VLAN = "vlan"
IPOIB = "infiniband"
OTHER = "other"


@dataclass(frozen=True)
class InterfaceAddress:
    """One address of an interface."""

    __pydantic_config__ = STRICT

    address: str  # "10.0.0.1", "2001:db8::1"
    prefix: int  # 24


@dataclass(frozen=True)
class Interface:
    """One network interface, in the network namespace of the agent."""

    __pydantic_config__ = STRICT

    name: str
    addresses: Tuple[InterfaceAddress, ...] = ()  # in the kernel's order, IPv4 first
    kind: str = (
        OTHER  # "physical", "loopback", "bridge", "veth", "tunnel", "bond", "vlan", "infiniband"
    )
    mtu_bytes: Optional[int] = None
    up: bool = False
    running: bool = False  # it has a carrier: NCCL takes no other
    default_route: bool = False
    master: Optional[str] = None  # the bridge or bond that it is a part of
    arp_ignore: Optional[int] = None  # in force: the larger of its own and that of all
    arp_announce: Optional[int] = None


@dataclass(frozen=True)
class Route:
    """One unicast route of the main table."""

    __pydantic_config__ = STRICT

    destination: str  # "10.40.0.0/16"
    interface: str
    gateway: Optional[str] = None  # None: the network is connected


@dataclass(frozen=True)
class Limit:
    """One resource limit; -1: none."""

    __pydantic_config__ = STRICT

    soft: int
    hard: int


@dataclass(frozen=True)
class PortGid:
    """One filled slot of a RoCE port's GID table."""

    __pydantic_config__ = STRICT

    index: int
    gid: str
    kind: Optional[str] = None  # "RoCE v2", "IB/RoCE v1"
    netdev: Optional[str] = None  # None: it is in another network namespace


@dataclass(frozen=True)
class SharedMemory:
    """The file system that ranks of one node exchange tensors by."""

    __pydantic_config__ = STRICT

    total_bytes: int
    free_bytes: int
    own_nccl_files: int = 0  # nccl-* files of this user that no live process has open


@dataclass(frozen=True)
class NcclConf:
    """A file that gives NCCL every variable that its process lacks."""

    __pydantic_config__ = STRICT

    path: str
    settings: Dict[str, str] = field(default_factory=dict)
    error: Optional[str] = None  # the errno's name: it is there and cannot be read


@dataclass(frozen=True)
class NodeNetwork:
    """What decides whether ranks on this node reach others. Secrets are never in it."""

    __pydantic_config__ = STRICT

    interfaces: Optional[Tuple[Interface, ...]] = None
    routes: Optional[Tuple[Route, ...]] = None
    ssh_address: Optional[str] = None  # by which the operator came in, as the node sees it
    hostname: Optional[str] = None
    hostname_addresses: Optional[Tuple[str, ...]] = None  # (): it does not resolve
    memlock: Optional[Limit] = None  # bytes, of a process that the agent starts
    nofile: Optional[Limit] = None
    may_lock_memory: Optional[bool] = None  # CAP_IPC_LOCK: memlock is no limit then
    shared_memory: Optional[SharedMemory] = None
    container: Optional[str] = None  # "docker", "podman", …; None: none was recognized
    virtual_machine: Optional[bool] = None
    verbs_library: Optional[bool] = None  # libibverbs.so.1 is installed
    verbs_providers: Optional[Tuple[str, ...]] = None  # "mlx5", "bnxt_re", …
    net_plugins: Optional[Tuple[str, ...]] = None  # "libnccl-net-ofi.so", …
    iommu_groups: Optional[Dict[str, int]] = None  # number by type: {"identity": 80}
    iommu_arguments: Optional[Tuple[str, ...]] = None  # of the kernel: "iommu=pt"
    peer_memory: Optional[Tuple[str, ...]] = None  # "nvidia_peermem", "memory_peers/nv_mem"
    port_states: Optional[Dict[str, str]] = None  # by "mlx5_0:1", read now
    port_gids: Optional[Dict[str, Tuple[PortGid, ...]]] = None  # of active Ethernet ports
    umad_access: Optional[str] = None  # "ok" or an errno's name; None: there is none
    environment: Optional[Dict[str, str]] = None  # NCCL_*, GLOO_*, UCX_* … of the agent
    conf_files: Optional[Tuple[NcclConf, ...]] = None  # the first wins
    packages: Optional[Dict[str, str]] = None  # distribution → version, in the engine's venv
    unread: Tuple[str, ...] = ()  # "interfaces: EPERM"
