"""Whether two nodes are on one fabric: what files can tell, which is never that they are."""

from dataclasses import dataclass
from enum import Enum
from typing import Optional, Tuple

from llmgw_core.domain.strict import STRICT


class Reach(str, Enum):
    """Three values: what is read can only disprove; a probe or the operator proves."""

    DIFFERENT = "different"
    POSSIBLE = "possible"
    PROVEN = "proven"


@dataclass(frozen=True)
class PairVerdict:
    """What is known of two nodes."""

    __pydantic_config__ = STRICT

    nodes: Tuple[str, ...]  # two names, in natural order
    verdict: Reach
    reason: str  # the facts it rests on
    fabric: Optional[str] = None  # the one that both are of
    ports: Tuple[Tuple[str, ...], ...] = ()  # "mlx5_0:1" on the first node, on the second


@dataclass(frozen=True)
class FabricListener:
    """A node waits for one connection on an address of its fabric, for some seconds."""

    __pydantic_config__ = STRICT

    address: Optional[str] = None  # None: the netdev has none
    port: Optional[int] = None  # None: it could not listen
    error: Optional[str] = None  # the errno's name


@dataclass(frozen=True)
class FabricConnection:
    """A node tried to connect from an address of its fabric."""

    __pydantic_config__ = STRICT

    connected: bool = False  # and it was the listener that was meant
    device_bound: bool = False  # the connection could leave by that netdev alone
    milliseconds: Optional[float] = None
    error: Optional[str] = (
        None  # the errno's name; "wrong-peer": somebody else listens; the tool's words
    )


@dataclass(frozen=True)
class LinkProbe:
    """One try from a port of one node to a port of another."""

    __pydantic_config__ = STRICT

    ports: Tuple[str, ...]  # on the first node of the pair, on the second
    connected: Optional[bool] = None  # None: it could not be tried
    detail: str = ""
