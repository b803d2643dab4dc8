"""Who goes first, per model: bands in strict order with a floor for the lower ones, slots with one owner each. Pure.

Nothing here waits, reads a clock or knows of an event loop: the caller passes the time in, and calls `pop` when
something changed. So what is promised can be tested as it stands.

Promises, for each model: never more running than slots; nobody waits while a slot is free and he is not paused; a
request ends exactly once; of any `floor_every` dispatches made while a lower band waits, one goes to a lower band.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from llmgw_core.admission.band import Band
from llmgw_core.admission.tallies import Tallies
from llmgw_core.admission.tickets import (
    Limits,
    NotRunning,
    Refusal,
    Rejected,
    Ticket,
    TicketState,
)

FLOOR_EVERY = 16
_SPARE_DEADLINES = 64  # of requests that wait no more, before they are swept out
_RECENT_DISPATCHES = 64  # what the rate of dispatches is measured over
_RETRY_MIN_S, _RETRY_MAX_S = 1, 60
_NO_BAND = -1


@dataclass(frozen=True)
class TenantState:
    """One tenant in one band of one model."""

    model: str
    band: str
    tenant: str
    waiting: int
    running: int
    oldest_wait_s: float | None  # None: nobody waits
    admitted: int  # so far
    used_tokens: int  # settled so far
    refused: Mapping[Refusal, int]
    weight: int
    is_paused: bool


@dataclass(frozen=True)
class ModelState:
    """One model's queue."""

    model: str
    slots: int
    running: int
    waiting: int
    waiting_bytes: int
    admitted: int  # so far
    expired: int
    cancelled: int  # while they waited
    refused: Mapping[Refusal, int]
    is_paused: bool
    is_draining: bool
    tenants: tuple[TenantState, ...]  # by band, then name


@dataclass
class _Deadlines:
    """When waiting requests expire: a heap that leaves behind those who wait no more, and is swept of them."""

    heap: list[tuple[float, int, Ticket]] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)

    def add(self, ticket: Ticket) -> None:
        if ticket.deadline is not None:
            heapq.heappush(self.heap, (ticket.deadline, next(self.numbers), ticket))

    def sweep(self, waiting: int) -> None:
        """Drop those who wait no more, once they are most of it: so seldom that it costs each a constant."""
        if len(self.heap) > 2 * waiting + _SPARE_DEADLINES:
            self.heap = [item for item in self.heap if item[2].state is TicketState.WAITING]
            heapq.heapify(self.heap)

    def take_due(self, now: float) -> list[Ticket]:
        due = []
        while self.heap and self.heap[0][0] <= now:
            ticket = heapq.heappop(self.heap)[2]
            if ticket.state is TicketState.WAITING:
                due.append(ticket)
        return due


class ModelQueue:
    """One model's requests: waiting, running, ended."""

    def __init__(
        self,
        model: str,
        limits: Limits,
        bands: Sequence[str] = ("high", "normal", "low"),
        weights: Mapping[str, int] | None = None,
        *,
        floor_every: int = FLOOR_EVERY,
        by_tokens: bool = True,
    ) -> None:
        """Make an empty queue.

        Args:
            bands: names, the first goes first.
            weights: of tenants, at least 1; others have 1.
            floor_every: of so many dispatches one goes to a lower band that waits; 0: strict order alone.
            by_tokens: tenants share tokens; False: they share requests.

        Raises:
            ValueError: there is no band, or a weight below 1.
        """
        if not bands:
            raise ValueError("there must be a band")
        self.model = model
        self.limits = limits
        self.slots = limits.slots  # may change at any time; those who run go on
        self._names = tuple(bands)
        self._weights: dict[str, int] = {}
        self.set_weights(weights or {})
        self._bands = tuple(Band(self._weights, by_tokens=by_tokens) for _ in bands)
        self._floor_every = floor_every
        self._since_floor = 0
        self._floor_at = [0] * len(bands)  # when each band last went out of order, in dispatches
        self._tallies = Tallies()
        self._band_waiting = [0] * len(bands)
        self._tenant_waiting: Counter[str] = Counter()
        self._paused: set[str] = set()
        self._deadlines = _Deadlines()
        self._expired: list[Ticket] = []  # not told of yet
        self._refused: Counter[Refusal] = Counter()
        self._recent: deque[float] = deque(maxlen=_RECENT_DISPATCHES)  # when
        self._waiting_bytes = 0
        self._expired_count = 0
        self._cancelled_count = 0
        self.waiting = 0
        self.running = 0
        self.admitted = 0
        self.is_paused = False
        self.is_draining = False

    def push(
        self,
        band: str,
        tenant: str,
        cost_tokens: int,
        *,
        now: float,
        size_bytes: int = 0,
        wait_s: float | None = None,
    ) -> Ticket:
        """Let a request wait. Call `pop` next.

        Raises:
            Rejected: there is no room for it, or no such band; nothing is kept of it.
        """
        reason = self._find_refusal(band, tenant, size_bytes)
        number = self._names.index(band) if band in self._names else _NO_BAND
        if reason is not None:
            self._refused[reason] += 1
            self._tallies.get(number, tenant).refused[reason] += 1
            self._tallies.rest(number, tenant)
            raise Rejected(reason, self.model, tenant)
        deadline = None if wait_s is None else now + wait_s
        ticket = Ticket(self.model, number, tenant, cost_tokens, size_bytes, now, deadline)
        self._bands[number].push(ticket)
        self._count_waiting(ticket, 1)
        self._deadlines.add(ticket)
        return ticket

    def pop(self, now: float) -> Ticket | None:
        """Give the next one a slot; None: no slot is free, or nobody may go. What is past its deadline never goes."""
        self._sweep(now)
        if self.is_paused or self.running >= self.slots:
            return None
        number = self._choose_band()
        if number is None:
            return None
        ticket = self._bands[number].pop()
        tally = self._tallies.get(ticket.band, ticket.tenant)
        tally.running += 1
        tally.admitted += 1
        self._count_waiting(ticket, -1)
        ticket.state = TicketState.RUNNING
        self._deadlines.sweep(self.waiting)
        self._recent.append(now)
        self.running += 1
        self.admitted += 1
        return ticket

    def expire(self, now: float) -> list[Ticket]:
        """Those whose deadline has passed while they waited, each told once."""
        self._sweep(now)
        expired, self._expired = self._expired, []
        return expired

    def next_deadline(self) -> float | None:
        """When to call `expire` at the latest; it may be that of one who waits no more. None: nobody has one."""
        return self._deadlines.heap[0][0] if self._deadlines.heap else None

    def cancel(self, ticket: Ticket) -> bool:
        """Take one out that waits. False: it waits no more, and if it runs its slot is to be released."""
        if ticket.state is not TicketState.WAITING:
            return False
        self._drop(ticket, TicketState.CANCELLED)
        self._cancelled_count += 1
        self._deadlines.sweep(self.waiting)
        return True

    def release(self, ticket: Ticket, used_tokens: int | None, *, has_failed: bool = False) -> None:
        """Give the slot back, once, when the last byte of the answer is out or the request has failed.

        Args:
            used_tokens: prompt and answer; None: unknown, the estimate stands.

        Raises:
            NotRunning: it has no slot.
        """
        if ticket.state is not TicketState.RUNNING:
            raise NotRunning(
                f"a request of {ticket.tenant} for {self.model} has no slot to give back",
                f"it is {ticket.state.value}",
                "this is a bug of llmgw: please report it",
            )
        ticket.state = TicketState.FAILED if has_failed else TicketState.DONE
        self.running -= 1
        tally = self._tallies.get(ticket.band, ticket.tenant)
        tally.running -= 1
        used = ticket.cost_tokens if used_tokens is None else max(0, used_tokens)
        tally.used_tokens += used
        self._tallies.rest(ticket.band, ticket.tenant)
        self._bands[ticket.band].settle(ticket.tenant, ticket.cost_tokens, used)

    def retry_after_s(self, now: float) -> int:
        """In how many whole seconds one who is refused now may try again: what waits by the recent rate of dispatches.

        Between 1 and 60; 60 where somebody waits and nobody was dispatched yet.
        """
        if not self.waiting:
            return _RETRY_MIN_S
        if not self._recent:
            return _RETRY_MAX_S
        span_s = max(now - self._recent[0], 1.0)
        needed_s = math.ceil(self.waiting * span_s / len(self._recent))
        return min(max(needed_s, _RETRY_MIN_S), _RETRY_MAX_S)

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """Replace the tenants' shares, from the next turn on.

        Raises:
            ValueError: a weight below 1.
        """
        if any(weight < 1 for weight in weights.values()):
            raise ValueError("weights are 1 or more")
        self._weights.clear()
        self._weights.update(weights)

    def pause_tenant(self, tenant: str) -> None:
        """Keep a tenant's requests waiting, in every band."""
        self._paused.add(tenant)
        for band in self._bands:
            band.pause(tenant)

    def resume_tenant(self, tenant: str) -> None:
        """Serve a tenant again."""
        self._paused.discard(tenant)
        for band in self._bands:
            band.resume(tenant)

    def state(self, now: float) -> ModelState:
        """What an operator sees of it. Costs as much as there are tenants."""
        oldest = {
            (number, tenant): now - head.pushed_at
            for number, band in enumerate(self._bands)
            for tenant, _, head in band.heads()
        }
        names = dict(enumerate(self._names))
        tenants = tuple(
            TenantState(
                self.model,
                names.get(key.band, "(unknown)"),
                key.tenant,
                tally.waiting,
                tally.running,
                oldest.get(key),
                tally.admitted,
                tally.used_tokens,
                dict(tally.refused),
                self._weights.get(key.tenant, 1),
                key.tenant in self._paused,
            )
            for key, tally in self._tallies
        )
        return ModelState(
            self.model,
            self.slots,
            self.running,
            self.waiting,
            self._waiting_bytes,
            self.admitted,
            self._expired_count,
            self._cancelled_count,
            dict(self._refused),
            self.is_paused,
            self.is_draining,
            tenants,
        )

    def _find_refusal(self, band: str, tenant: str, size_bytes: int) -> Refusal | None:
        limits = self.limits
        if band not in self._names:
            return Refusal.UNKNOWN_BAND
        if self.is_draining:
            return Refusal.DRAINING
        # A free slot is room too: several may be pushed before the first is popped.
        if self.waiting >= limits.waiting + max(0, self.slots - self.running):
            return Refusal.MODEL_FULL
        number = self._names.index(band)
        if _is_full(self._band_waiting[number], limits.waiting_per_band):
            return Refusal.BAND_FULL
        if _is_full(self._tenant_waiting[tenant], limits.waiting_per_tenant):
            return Refusal.TENANT_FULL
        most = limits.waiting_bytes
        if most is not None and self._waiting_bytes + size_bytes > most:
            return Refusal.BYTES_FULL
        return None

    def _choose_band(self) -> int | None:
        """The first band that waits; each so often a lower one, in turn if there are several."""
        waiting = [number for number, band in enumerate(self._bands) if band.can_pop]
        if len(waiting) <= 1:
            self._since_floor = 0
            return waiting[0] if waiting else None
        self._since_floor += 1
        if not self._floor_every or self._since_floor < self._floor_every:
            return waiting[0]
        self._since_floor = 0
        chosen = min(waiting[1:], key=lambda number: (self._floor_at[number], -number))
        self._floor_at[chosen] = self.admitted + 1
        return chosen

    def _sweep(self, now: float) -> None:
        for ticket in self._deadlines.take_due(now):
            self._drop(ticket, TicketState.EXPIRED)
            self._expired_count += 1
            self._expired.append(ticket)

    def _drop(self, ticket: Ticket, end: TicketState) -> None:
        self._bands[ticket.band].remove(ticket)
        self._count_waiting(ticket, -1)
        self._tallies.rest(ticket.band, ticket.tenant)
        ticket.state = end

    def _count_waiting(self, ticket: Ticket, change: int) -> None:
        self.waiting += change
        self._waiting_bytes += change * ticket.size_bytes
        self._band_waiting[ticket.band] += change
        self._tallies.get(ticket.band, ticket.tenant).waiting += change
        left = self._tenant_waiting[ticket.tenant] + change
        if left:
            self._tenant_waiting[ticket.tenant] = left
        else:
            del self._tenant_waiting[ticket.tenant]


def _is_full(waiting: int, most: int | None) -> bool:
    return most is not None and waiting >= most
