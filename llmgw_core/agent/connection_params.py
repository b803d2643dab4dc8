"""Reading a request's parameters, and the types of those that a connection answers by itself.

Apart from `params`, which loads what a launch is: a new daemon says hello before it has loaded that.
"""

import math
from dataclasses import dataclass
from typing import Any, Tuple, Type

from llmgw_core.agent.protocol import INVALID_PARAMS
from llmgw_core.agent.rpc import Request
from llmgw_core.domain.wire import WireError, from_jsonable
from llmgw_core.errors import LlmgwError, ProtocolError


@dataclass(eq=False, repr=False)
class NoParams:
    """Of methods that take none."""


@dataclass(eq=False, repr=False)
class HelloParams:
    """What a console can speak, and which bundle it brought."""

    protocol: Tuple[int, ...]  # (min, max)
    version: str = ""
    bundle: str = ""


@dataclass(eq=False, repr=False)
class WatchParams:
    """How often at most, and whether what changed is enough after the first state."""

    interval_s: float
    deltas: bool = False


@dataclass(eq=False, repr=False)
class HandoverParams:
    """Who takes over."""

    bundle: str


class BadRequest(Exception):
    """A request that gets an error answer; the connection goes on."""

    def __init__(self, code: int, error: LlmgwError) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error


def read_params(cls: Type[Any], request: Request) -> Any:  # Any: an instance of cls
    """The request's parameters as `cls`.

    Raises:
        BadRequest: INVALID_PARAMS, with the path of the first value that does not fit.
    """
    try:
        params = from_jsonable(cls, request.params, "params")
        _refuse_non_finite(params)
    except (WireError, OverflowError) as error:
        raise BadRequest(
            INVALID_PARAMS,
            ProtocolError(
                f"{request.method} was asked with parameters that do not fit",
                str(error),
                "console and agent differ: connect anew with one version of llmgw",
            ),
        ) from None
    return params


def _refuse_non_finite(params: Any) -> None:
    """JSON as Python reads it has NaN and Infinity: no interval and no grace period is one of them."""
    for name, value in vars(params).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise WireError(f"params.{name}: expected a finite number, got {value}")
