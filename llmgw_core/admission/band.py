"""One priority band: tenants take turns by deficit round robin on tokens. Pure.

Each turn credits a tenant one quantum times its weight, and it is served while its credit is above zero; a request may
take it below, into debt, which later turns pay off. The quantum is fixed: were it to follow the largest request, one
tenant could make everybody's turns as coarse as it likes. Turns in which nobody could be served are skipped by
arithmetic, so that a pop costs no more after a large request. A tenant that goes idle keeps its debt and loses its credit: nobody saves
up by being away, or sheds a debt by leaving for a moment.

Source: Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round-Robin", 1995 (with surplus instead of deficit).
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from llmgw_core.admission.tickets import Ticket

QUANTUM_TOKENS = 2048  # about one usual request: more would make a turn coarse, less a pop slow
DEBTORS_MOST = (
    1024  # tenants that are away whose debt is remembered; beyond, the one longest away is forgiven
)


class Band:
    """The waiting requests of one band of one model."""

    def __init__(self, weights: Mapping[str, int], *, by_tokens: bool = True) -> None:
        """Make an empty band.

        Args:
            weights: a tenant's share against others, at least 1, which is also that of tenants not named.
            by_tokens: False: plain turns, one request each (times the weight), whatever they cost.
        """
        self._weights = weights
        self._by_tokens = by_tokens
        self._quantum = QUANTUM_TOKENS if by_tokens else 1
        self._turns: OrderedDict[str, OrderedDict[Ticket, None]] = OrderedDict()  # in order of turn
        self._parked: dict[str, OrderedDict[Ticket, None]] = {}  # of paused tenants
        self._paused: set[str] = set()
        self._credit: dict[str, int] = {}  # of tenants whose turn comes
        self._debt: OrderedDict[str, int] = OrderedDict()  # below zero, of others
        self._is_in_turn: str | None = None  # has had this turn's quantum already

    @property
    def can_pop(self) -> bool:
        """Whether anybody waits who is not paused."""
        return bool(self._turns)

    def push(self, ticket: Ticket) -> None:
        """Let it wait behind its tenant's own. O(1)."""
        tenant = ticket.tenant
        if tenant in self._paused:
            self._parked.setdefault(tenant, OrderedDict())[ticket] = None
            return
        if tenant not in self._turns:
            self._enter(tenant, OrderedDict())
        self._turns[tenant][ticket] = None

    def pop(self) -> Ticket:
        """Take out the next one. Costs nothing for those who wait; at most two rounds of the band's tenants.

        Raises:
            LookupError: nobody waits who is not paused.
        """
        passed = 0  # tenants whose turn it was and who are in debt
        while True:
            tenant = next(iter(self._turns), None)
            if tenant is None:
                raise LookupError("nobody waits")
            if self._is_in_turn != tenant:
                self._is_in_turn = tenant
                self._credit[tenant] += self._share_of(tenant)
            if self._credit[tenant] > 0:
                break
            self._end_turn(tenant)
            passed += 1
            if passed == len(self._turns):
                self._skip_rounds()
        queue = self._turns[tenant]
        ticket, _ = queue.popitem(last=False)
        self._credit[tenant] -= self._price(ticket.cost_tokens)
        if not queue:
            self._leave(tenant)
        elif self._credit[tenant] <= 0:
            self._end_turn(tenant)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """Take out one that waits, wherever it stands. O(1)."""
        tenant = ticket.tenant
        home = self._parked if tenant in self._parked else self._turns
        queue = home[tenant]
        del queue[ticket]
        if queue:
            return
        if home is self._parked:
            del self._parked[tenant]
        else:
            self._leave(tenant)

    def settle(self, tenant: str, estimate_tokens: int, used_tokens: int) -> None:
        """Correct what a request was taken for by what it used."""
        if not self._by_tokens:
            return
        if tenant in self._turns:
            self._credit[tenant] += estimate_tokens - used_tokens
        else:
            self._note_debt(tenant, self._debt.get(tenant, 0) + estimate_tokens - used_tokens)

    def pause(self, tenant: str) -> None:
        """Keep its requests waiting, and serve others meanwhile."""
        self._paused.add(tenant)
        queue = self._turns.get(tenant)
        if queue is not None:
            self._leave(tenant)
            self._parked[tenant] = queue

    def resume(self, tenant: str) -> None:
        """Serve it again, from the end of the turns."""
        self._paused.discard(tenant)
        queue = self._parked.pop(tenant, None)
        if queue is not None:
            self._enter(tenant, queue)

    def heads(self) -> Iterator[tuple[str, int, Ticket]]:
        """Each tenant that waits: its name, how many of its requests, the oldest of them."""
        for home in (self._turns, self._parked):
            for tenant, queue in home.items():
                yield tenant, len(queue), next(iter(queue))

    def _price(self, cost_tokens: int) -> int:
        return max(1, cost_tokens) if self._by_tokens else 1

    def _share_of(self, tenant: str) -> int:
        return self._quantum * self._weights.get(tenant, 1)

    def _skip_rounds(self) -> None:
        """Everybody is in debt: credit the rounds that would serve nobody, so that the next one serves somebody."""
        rounds = min(-self._credit[tenant] // self._share_of(tenant) for tenant in self._turns)
        for tenant in self._turns:
            self._credit[tenant] += rounds * self._share_of(tenant)

    def _end_turn(self, tenant: str) -> None:
        self._turns.move_to_end(tenant)
        self._is_in_turn = None

    def _enter(self, tenant: str, queue: OrderedDict[Ticket, None]) -> None:
        self._turns[tenant] = queue
        self._credit[tenant] = self._debt.pop(tenant, 0)

    def _leave(self, tenant: str) -> None:
        del self._turns[tenant]
        if self._is_in_turn == tenant:
            self._is_in_turn = None
        self._note_debt(tenant, self._credit.pop(tenant))

    def _note_debt(self, tenant: str, credit: int) -> None:
        """What is left of a tenant that is away: its debt, never a credit."""
        self._debt.pop(tenant, None)
        if credit < 0:
            self._debt[tenant] = credit
            if len(self._debt) > DEBTORS_MOST:
                self._debt.popitem(last=False)
