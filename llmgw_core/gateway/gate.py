"""Admission on an event loop: who waits is woken by whoever gives a slot back, in the same turn of the loop.

Nothing here polls. `ModelQueue` decides who goes, `Table` where to; a `Lease` is the one owner of a slot.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from llmgw_core.admission.queue import ModelQueue
from llmgw_core.admission.tickets import Limits, Refusal, Rejected, Ticket
from llmgw_core.gateway.replies import Refused
from llmgw_core.gateway.routing import ModelStatus, Replica, Table

_LOADING_RETRY_S = 10
_DOWN_RETRY_S = 5


@dataclass(frozen=True)
class QueueSettings:
    """What all models' queues share. Slots are the engines'."""

    bands: tuple[str, ...] = ("high", "normal", "low")
    waiting: int = 512
    waiting_per_band: int | None = None
    waiting_per_tenant: int | None = None
    waiting_bytes: int | None = 256 << 20
    timeout_s: float = 60.0
    floor_every: int = 16
    by_tokens: bool = True

    @property
    def limits(self) -> Limits:
        """As admission takes them."""
        return Limits(
            0, self.waiting, self.waiting_per_band, self.waiting_per_tenant, self.waiting_bytes
        )


@dataclass(frozen=True)
class Claim:
    """What one request brings to the gate."""

    model: str
    band: str
    tenant: str
    cost_tokens: int
    size_bytes: int
    deadline: float  # on the loop's clock
    prefix: str = ""


class Lease:
    """The owner of one slot, from the dispatch to the end of the answer. Leaving `with` gives the slot back."""

    def __init__(self, gates: "Gates", gate: "_Gate", ticket: Ticket, replica: Replica) -> None:
        self.replica = replica
        self.used_tokens: int | None = None  # None: not known
        self.has_failed = False
        self.waited_s = 0.0
        self._gates = gates
        self._gate = gate
        self._ticket = ticket

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(has_failed=self.has_failed or kind is not None)

    def close(self, *, has_failed: bool) -> None:
        """Give the slot back, and wake who is next.

        Raises:
            NotRunning: it was given back already.
        """
        self._gate.queue.release(self._ticket, self.used_tokens, has_failed=has_failed)
        self.replica.running -= 1
        self.replica.served += 1
        self.replica.failures += has_failed
        self._gates.wake(self.replica.models)


@dataclass
class _Gate:
    """One model's queue, and the futures of those who wait in it."""

    queue: ModelQueue
    waiters: dict[Ticket, tuple[asyncio.Future[Lease], Claim]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    timer_at: float = 0.0


class Gates:
    """The gates of all models. Of one event loop."""

    def __init__(
        self,
        table: Table,
        settings: QueueSettings,
        clock: Callable[[], float],
        weights: Mapping[str, int] | None = None,
    ) -> None:
        self.table = table
        self.settings = settings
        self._clock = clock
        self._weights = dict(weights or {})
        self._gates: dict[str, _Gate] = {}
        self._paused_tenants: set[str] = set()

    @property
    def queues(self) -> tuple[ModelQueue, ...]:
        """One for each model that was asked for or is served, by name."""
        for model in self.table.models:
            self._find(model)
        return tuple(self._gates[model].queue for model in sorted(self._gates))

    @property
    def waiting(self) -> int:
        """Requests that wait, of all models."""
        return sum(gate.queue.waiting for gate in self._gates.values())

    async def enter(self, claim: Claim) -> Lease:
        """Wait for a slot.

        Raises:
            Refused: 404, 429, 503 or 504, with the reason.
        """
        self._check_status(claim.model)
        gate = self._find(claim.model)
        now = self._clock()
        queue = gate.queue
        queue.slots = queue.running + self.table.free_slots(claim.model)
        try:
            ticket = queue.push(
                claim.band,
                claim.tenant,
                claim.cost_tokens,
                now=now,
                size_bytes=claim.size_bytes,
                wait_s=max(0.0, claim.deadline - now),
            )
        except Rejected as error:
            raise _full(error.reason, claim.model, queue.retry_after_s(now)) from None
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        gate.waiters[ticket] = (future, claim)
        self._pump(gate)
        try:
            lease = await future
        except asyncio.CancelledError:
            if not queue.cancel(ticket) and future.done() and not future.cancelled():
                # It was given a slot in the very turn in which its client went away.
                if future.exception() is None:
                    future.result().close(has_failed=True)
            else:
                gate.waiters.pop(ticket, None)
            raise
        lease.waited_s = self._clock() - now
        return lease

    def wake(self, models: tuple[str, ...]) -> None:
        """Something changed for these models: a slot came back, an engine became ready."""
        for model in models:
            gate = self._gates.get(model)
            if gate is not None and gate.waiters:
                self._pump(gate)

    def review(self) -> None:
        """The table changed: wake whoever can go, and tell those who wait for a model that nobody serves any more."""
        for model, gate in list(self._gates.items()):
            status = self.table.status(model)
            if status in (ModelStatus.UNKNOWN, ModelStatus.DOWN):
                self._refuse_waiters(gate, status)
            else:
                self._pump(gate)
            if status is ModelStatus.UNKNOWN and not gate.queue.running and not gate.queue.waiting:
                self._drop(model)

    def refuse_all(self, error: Callable[[], Refused]) -> None:
        """Send everybody away who waits."""
        for gate in self._gates.values():
            for ticket, (future, _) in list(gate.waiters.items()):
                if gate.queue.cancel(ticket) and not future.done():
                    future.set_exception(error())
            gate.waiters.clear()

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Replace the tenants' shares."""
        self._weights = dict(weights)
        for gate in self._gates.values():
            gate.queue.set_weights(self._weights)

    def set_limits(self, settings: QueueSettings) -> None:
        """Replace the bounds. Bands, floor and mode stay until the gateway is started anew."""
        self.settings = settings
        for gate in self._gates.values():
            gate.queue.limits = settings.limits

    def pause_tenant(self, tenant: str, *, is_paused: bool) -> None:
        """Keep a tenant's requests waiting for every model, or serve it again."""
        change = self._paused_tenants.add if is_paused else self._paused_tenants.discard
        change(tenant)
        for gate in self._gates.values():
            (gate.queue.pause_tenant if is_paused else gate.queue.resume_tenant)(tenant)
            self._pump(gate)

    def _find(self, model: str) -> _Gate:
        gate = self._gates.get(model)
        if gate is None:
            settings = self.settings
            queue = ModelQueue(
                model,
                settings.limits,
                settings.bands,
                self._weights,
                floor_every=settings.floor_every,
                by_tokens=settings.by_tokens,
            )
            for tenant in self._paused_tenants:
                queue.pause_tenant(tenant)
            gate = self._gates[model] = _Gate(queue)
        return gate

    def _drop(self, model: str) -> None:
        gate = self._gates.pop(model)
        if gate.timer is not None:
            gate.timer.cancel()

    def _check_status(self, model: str) -> None:
        status = self.table.status(model)
        if status is not ModelStatus.OPEN:
            raise _closed(status, model)

    def _pump(self, gate: _Gate) -> None:
        """Give slots to those whose turn it is, as long as there are any."""
        queue, table = gate.queue, self.table
        now = self._clock()
        while free := table.free_slots(queue.model):
            queue.slots = queue.running + free
            ticket = queue.pop(now)
            if ticket is None:
                break
            future, claim = gate.waiters.pop(ticket)
            replica = table.choose(queue.model, claim.prefix)
            if replica is None or future.done():  # its task was cancelled in this turn of the loop
                queue.release(ticket, 0, has_failed=True)
                continue
            replica.running += 1
            future.set_result(Lease(self, gate, ticket, replica))
        else:
            queue.slots = queue.running
        self._tell_expired(gate, now)

    def _tell_expired(self, gate: _Gate, now: float) -> None:
        for ticket in gate.queue.expire(now):
            future, claim = gate.waiters.pop(ticket)
            if not future.done():
                future.set_exception(_late(gate.queue, claim, now))
        due = gate.queue.next_deadline()
        if due is None or not gate.queue.waiting:
            return
        if gate.timer is None or due < gate.timer_at:
            if gate.timer is not None:
                gate.timer.cancel()
            gate.timer_at = due
            gate.timer = asyncio.get_running_loop().call_at(due, self._on_deadline, gate)

    def _on_deadline(self, gate: _Gate) -> None:
        gate.timer = None
        self._tell_expired(gate, max(self._clock(), gate.timer_at))

    @staticmethod
    def _refuse_waiters(gate: _Gate, status: ModelStatus) -> None:
        for ticket, (future, claim) in list(gate.waiters.items()):
            if gate.queue.cancel(ticket) and not future.done():
                future.set_exception(_closed(status, claim.model))
        gate.waiters.clear()


def _closed(status: ModelStatus, model: str) -> Refused:
    if status is ModelStatus.UNKNOWN:
        return Refused(404, "model_not_found", f"there is no model {model!r} here", param="model")
    if status is ModelStatus.LOADING:
        text = f"the model {model!r} is being loaded"
        return Refused(503, "model_loading", text, retry_after_s=_LOADING_RETRY_S)
    text = f"no engine of the model {model!r} answers"
    return Refused(503, "no_engine", text, retry_after_s=_DOWN_RETRY_S)


def _full(reason: Refusal, model: str, retry_after_s: int) -> Refused:
    if reason is Refusal.UNKNOWN_BAND:
        return Refused(400, "unknown_band", "there is no such priority band")
    if reason is Refusal.DRAINING:
        text = f"the model {model!r} takes no new requests"
        return Refused(503, "draining", text, retry_after_s=max(retry_after_s, _DOWN_RETRY_S))
    text = f"too much waits for the model {model!r} already ({reason.value})"
    return Refused(429, reason.value.replace("-", "_"), text, retry_after_s=retry_after_s)


def _late(queue: ModelQueue, claim: Claim, now: float) -> Refused:
    text = f"no slot of the model {claim.model!r} became free in time"
    return Refused(504, "queue_timeout", text, retry_after_s=queue.retry_after_s(now))
