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
