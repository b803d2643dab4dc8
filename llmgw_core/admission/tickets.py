"""What waits, what it may cost, and how it ends. Pure."""

from dataclasses import dataclass
from enum import Enum

from llmgw_core.errors import GatewayError


class TicketState(Enum):
    """Where a request is. The last four are ends: each ticket reaches exactly one of them."""

    WAITING = "waiting"
    RUNNING = "running"  # it owns one slot of its model
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"  # while it waited
    EXPIRED = "expired"  # its deadline passed while it waited


class Refusal(Enum):
    """Why a request was not let in."""

    UNKNOWN_BAND = "unknown-band"
    DRAINING = "draining"
    MODEL_FULL = "model-full"
    BAND_FULL = "band-full"
    TENANT_FULL = "tenant-full"
    BYTES_FULL = "bytes-full"


@dataclass(frozen=True)
class Limits:
    """Bounds of one model's queue."""

    slots: int  # requests that run at once
    waiting: int  # requests that wait, beyond free slots
    waiting_per_band: int | None = None  # None: only the model's bound
    waiting_per_tenant: int | None = None
    waiting_bytes: int | None = None  # of request bodies held


@dataclass(eq=False)
class Ticket:
    """One request. Only its queue changes its state."""

    model: str
    band: int  # 0 comes first
    tenant: str
    cost_tokens: int  # estimate; settled with what was used
    size_bytes: int
    pushed_at: float  # on the caller's clock, seconds
    deadline: float | None  # same clock; None: it waits for ever
    state: TicketState = TicketState.WAITING


class Rejected(GatewayError):
    """The request was not let in; nothing of it is kept but a count."""

    code = "rejected"

    def __init__(self, reason: Refusal, model: str, tenant: str) -> None:
        super().__init__(
            f"a request of {tenant} for {model} was not let in",
            reason.value,
            "try again later" if reason is not Refusal.UNKNOWN_BAND else "name a band that exists",
        )
        self.reason = reason


class NotRunning(GatewayError):
    """A slot was given back twice, or by somebody who never had it."""

    code = "not-running"
