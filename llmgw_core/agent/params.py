"""The parameters of each method, as types (docs/agent-protocol.md, "Methods").

They have no methods that nobody calls: the daemon's first answer waits for each class here.
"""

from dataclasses import dataclass, field
from typing import Dict, Optional

from llmgw_core.domain.launch import RankPlan


@dataclass(eq=False, repr=False)
class InventoryParams:
    """How old a reading may be."""

    max_age_s: float = 1.0


@dataclass(eq=False, repr=False)
class PreflightParams:
    """What would be launched."""

    rank: RankPlan


@dataclass(eq=False, repr=False)
class LaunchParams:
    """What to launch. `secrets` are in no log and no answer."""

    key: str
    rank: RankPlan
    secrets: Dict[str, str] = field(default_factory=dict, repr=False)
    gang_key: str = field(default="", repr=False)  # hex; of all ranks of this launch


@dataclass(eq=False, repr=False)
class StopParams:
    """Which engine to stop, by id or name."""

    key: str
    engine: str
    grace_seconds: Optional[float] = None  # None: what its plan says


@dataclass(eq=False, repr=False)
class ForgetParams:
    """Which ended engine to forget."""

    key: str
    engine: str


@dataclass(eq=False, repr=False)
class EngineParams:
    """Which engine is meant, by id or name."""

    engine: str


@dataclass(eq=False, repr=False)
class LogReadParams:
    """Which bytes of which log; a negative offset counts from the end."""

    engine: str
    offset: int
    max_bytes: int


@dataclass(eq=False, repr=False)
class NetworkFactsParams:
    """For which engine: where it is installed, and its NCCL_CONF_FILE."""

    venv: Optional[str] = None
    conf_file: Optional[str] = None


@dataclass(eq=False, repr=False)
class FabricListenParams:
    """Where to wait for one connection: an address, else the netdev's own."""

    token: str
    address: Optional[str] = None
    netdev: Optional[str] = None


@dataclass(eq=False, repr=False)
class FabricConnectParams:
    """Whom to connect to, and from where."""

    token: str
    peer: str
    port: int
    address: Optional[str] = None
    netdev: Optional[str] = None


@dataclass(eq=False, repr=False)
class FabricPingpongParams:
    """Which port to try by RDMA; without a peer, wait for one."""

    hca: str
    port: int
    gid_index: Optional[int] = None  # None: by LID
    peer: Optional[str] = None
    tcp_port: Optional[int] = None  # of the peer


@dataclass(eq=False, repr=False)
class GatewayParams:
    """Which gateway, by the path of its admin socket."""

    socket: str


@dataclass(eq=False, repr=False)
class SteerParams:
    """What to pause, resume or drain there: a model, a tenant or an engine, by name."""

    socket: str
    verb: str
    kind: str
    name: str
