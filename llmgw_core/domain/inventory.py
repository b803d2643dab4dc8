"""The inventory: the headless contract as types (`llmgw.inventory/1`)."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, Optional, Protocol, Tuple

from llmgw_core.domain.engine import EngineStatus
from llmgw_core.domain.hardware import Gpu, GpuHealth, Host, Port
from llmgw_core.domain.reach import Reach
from llmgw_core.domain.strict import STRICT

INVENTORY_SCHEMA = "llmgw.inventory/1"


@dataclass(frozen=True)
class NodeFault:
    """Why a node did not answer, or not in full."""

    __pydantic_config__ = STRICT

    code: str
    message: str
    hint: str


@dataclass(frozen=True)
class Node:
    """One node as a scheduler would see it: one element of `nodes`."""

    __pydantic_config__ = STRICT

    name: str
    address: Optional[str] = None  # None: this machine, without SSH
    reachable: bool = True
    error: Optional[NodeFault] = None
    host: Host = field(default_factory=Host)
    driver_version: Optional[str] = None
    cuda_version: Optional[str] = None
    gpus: Tuple[Gpu, ...] = ()
    ports: Tuple[Port, ...] = ()
    island: Optional[str] = None
    engines: Tuple[EngineStatus, ...] = ()
    health: Tuple[
        GpuHealth, ...
    ] = ()  # what is worth a word about the node as a whole; its fault is `error`


@dataclass(frozen=True)
class Fabric:
    """A set of nodes whose adapters can reach one another."""

    __pydantic_config__ = STRICT

    id: str
    kind: str  # "infiniband", "roce"
    nodes: Tuple[str, ...] = ()
    networks: Tuple[str, ...] = ()  # of several, one for each rail
    verdict: Optional[Reach] = (
        None  # whether its nodes do reach one another; None: there is only one
    )
    reason: Optional[str] = None  # for the verdict


@dataclass(frozen=True)
class Island:
    """A set of nodes that share a fabric; a node without one is an island of its own."""

    __pydantic_config__ = STRICT

    id: str
    fabric: Optional[str] = None
    nodes: Tuple[str, ...] = ()
    gpu_classes: Dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Inventory:
    """The whole document."""

    __pydantic_config__ = STRICT

    schema: str
    generated_at: str  # RFC 3339, UTC
    nodes: Tuple[Node, ...] = ()
    fabrics: Tuple[Fabric, ...] = ()
    islands: Tuple[Island, ...] = ()


class Contact(str, Enum):
    """How it stands with the connection to a node."""

    CONNECTING = "connecting"  # never heard of yet
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"  # was refused or went; what is shown is the last known


class History(Protocol):
    """A node's last minutes as the console that watches saw them."""

    slot_s: float  # that one value stands for

    def values(self, kind: str, name: str, reading: str) -> Tuple[Optional[float], ...]:
        """A reading of a GPU (by uuid), a port ("mlx5_0:1") or the host (""), oldest first; None: not known then."""
        ...


@dataclass(frozen=True)
class NodeView:
    """A node as the operator's console knows it now: the last reading, its age, and the connection's state."""

    node: Node
    contact: Contact
    updated_at: Optional[float] = None  # UTC epoch seconds of the last reading; None: never
    retry_at: Optional[float] = None  # UTC epoch seconds of the next try
    history: Optional[History] = field(default=None, compare=False, repr=False)  # goes on growing


@dataclass(frozen=True)
class FleetSnapshot:
    """All nodes at one instant, in natural order of names."""

    taken_at: float  # UTC epoch seconds
    nodes: Tuple[NodeView, ...] = ()
    fabrics: Tuple[Fabric, ...] = ()
    islands: Tuple[Island, ...] = ()
