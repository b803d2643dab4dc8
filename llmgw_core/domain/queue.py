"""A gateway's queue as a console knows it: the document llmgw.queue/1, field by field. Of no use to a node."""

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

from llmgw_core.domain.inventory import NodeFault
from llmgw_core.domain.strict import STRICT

QUEUE_SCHEMA = "llmgw.queue/1"


@dataclass(frozen=True)
class QueuedTenant:
    """One tenant in one band of one model."""

    __pydantic_config__ = STRICT

    band: str
    tenant: str
    waiting: int = 0
    running: int = 0
    oldest_wait_s: Optional[float] = None  # None: nobody waits
    admitted: int = 0  # so far
    used_tokens: int = 0
    admitted_per_s: float = 0.0
    tokens_per_s: float = 0.0
    refused: Dict[str, int] = field(default_factory=dict)  # by reason, so far
    weight: int = 1
    paused: bool = False
    share: Optional[float] = None  # of the model's tokens a second, 0 to 1; None: nobody uses any
    weight_share: Optional[float] = None  # what the weights alone would give


@dataclass(frozen=True)
class QueuedModel:
    """One model's queue."""

    __pydantic_config__ = STRICT

    model: str
    status: str = "unknown"  # open, loading, down, unknown
    slots: int = 0
    running: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    oldest_wait_s: float = 0.0
    admitted: int = 0
    expired: int = 0
    cancelled: int = 0
    refused: Dict[str, int] = field(default_factory=dict)
    paused: bool = False
    draining: bool = False
    tenants: Tuple[QueuedTenant, ...] = ()  # by band, then name
    tenants_left_out: int = 0


@dataclass(frozen=True)
class QueuedEngine:
    """One engine as the gateway sees it, and as it sees itself."""

    __pydantic_config__ = STRICT

    name: str
    url: str
    models: Tuple[str, ...] = ()
    state: str = "loading"  # loading, ready, suspect, down
    trouble: str = ""
    draining: bool = False
    slots: int = 0
    running: int = 0  # the gateway's
    served: int = 0
    failures: int = 0
    engine_running: Optional[int] = None  # as it says; None: not known
    engine_waiting: Optional[int] = None
    kv_usage: Optional[float] = None  # 0 to 1


@dataclass(frozen=True)
class GatewayIdentity:
    """Which gateway it is: the id is of this start of it alone."""

    __pydantic_config__ = STRICT

    id: str
    address: str
    pid: int
    started_at: str


@dataclass(frozen=True)
class QueueState:
    """All of one gateway."""

    __pydantic_config__ = STRICT

    schema: str
    generated_at: str
    draining: bool = False
    gateway: Optional[GatewayIdentity] = None  # None: of an earlier version
    models: Tuple[QueuedModel, ...] = ()
    engines: Tuple[QueuedEngine, ...] = ()


@dataclass(frozen=True)
class GatewayView:
    """A gateway as last seen."""

    node: str  # "": this machine
    socket: str
    state: Optional[QueueState] = None
    updated_at: Optional[float] = None  # UTC epoch seconds; None: never answered
    fault: Optional[NodeFault] = None  # why there is nothing newer


@dataclass(frozen=True)
class GatewaysPicture:
    """All gateways that were found.

    Attributes:
        asked: nodes that said whether they have one.
        away: nodes that could not be asked, by name.
        is_searched: whether each was asked once.
    """

    gateways: Tuple[GatewayView, ...] = ()
    asked: int = 0
    away: Tuple[str, ...] = ()
    is_searched: bool = False
