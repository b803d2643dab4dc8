"""What admission costs and how fair it is: `python -m benchmarks.admission`.

Cost: push, cancel and pop, each alone, on one core, with exactly 10 000 and 1 000 000 waiting, 100 tenants in three bands
and a deadline for each request. Both queues are warmed up and measured in turn, so that what disturbs the machine meets
both; the median of the rounds counts. Bars: 5 µs at 10 000, and a hundred times as many must not cost twice as much.

Fairness: simulated time, no clock. Jain's index over the tokens of four tenants that always have something waiting;
the longest wait of a quiet tenant beside a flooder, as a share of the flooder's; what the low band gets of dispatches.
"""

import heapq
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from llmgw_core.admission.queue import FLOOR_EVERY, ModelQueue
from llmgw_core.admission.tickets import Limits, Ticket

BANDS = ("high", "normal", "low")
CALLS = 1000
ROUNDS = 30
WARM_UP_ROUNDS = 5
FEW, MANY = 10_000, 1_000_000
MAX_COST_US = 5.0
MAX_RATIO = 2.0
MIN_JAIN = 0.95
MAX_WAIT_RATIO = 0.05
TOKENS_PER_S = 50.0


class Bench:
    """A queue in which so many wait, before and after each round."""

    def __init__(self, waiting: int) -> None:
        self.rng = random.Random(7)  # noqa: S311 - the same load each time
        self.queue = ModelQueue("m", Limits(slots=0, waiting=10**9), BANDS)
        self.costs: dict[str, list[float]] = {"push": [], "cancel": [], "pop": []}
        self.number = 0
        for _ in range(waiting):
            self.push()

    def push(self) -> Ticket:
        """One more of the usual load."""
        self.number += 1
        band, tenant = BANDS[self.number % 3], f"t{self.rng.randrange(100)}"
        cost = self.rng.randrange(1, 4000)
        return self.queue.push(band, tenant, cost, now=0.0, wait_s=60.0 + self.number)

    def round(self) -> None:
        """Time so many calls of each kind."""
        queue, rng = self.queue, self.rng
        words = [
            (BANDS[n % 3], f"t{rng.randrange(100)}", rng.randrange(1, 4000)) for n in range(CALLS)
        ]
        pushed: list[Ticket] = []

        def push(number: int) -> None:
            band, tenant, cost = words[number]
            pushed.append(queue.push(band, tenant, cost, now=0.0, wait_s=60.0 + number))

        self._time("push", push)
        rng.shuffle(pushed)
        self._time("cancel", lambda number: queue.cancel(pushed[number]))
        queue.slots = CALLS
        popped: list[Ticket | None] = []
        self._time("pop", lambda _: popped.append(queue.pop(0.0)))
        for ticket in popped:
            assert ticket is not None
            queue.release(ticket, None)
            self.push()
        queue.slots = 0

    def _time(self, name: str, call: Callable[[int], object]) -> None:
        began = time.perf_counter()
        for number in range(CALLS):
            call(number)
        self.costs[name].append((time.perf_counter() - began) / CALLS * 1e6)


def measure_costs() -> bool:
    """Print the table. Returns whether the bars are met."""
    benches = (Bench(FEW), Bench(MANY))
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        if number == WARM_UP_ROUNDS:
            for bench in benches:
                for costs in bench.costs.values():
                    costs.clear()
        for bench in benches:
            bench.round()
    sys.stdout.write(f"{'':8}{FEW:>10} waiters{MANY:>10} waiters   ratio\n")
    is_met = True
    for name in ("push", "cancel", "pop"):
        few, many = (statistics.median(bench.costs[name]) for bench in benches)
        is_met &= few < MAX_COST_US and many / few < MAX_RATIO
        sys.stdout.write(f"{name:8}{few:>15.2f} µs{many:>15.2f} µs   {many / few:.2f}\n")
    return is_met


def jain(shares: Sequence[float]) -> float:
    """1.0: all have the same; 1/n: one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def simulate(
    queue: ModelQueue, slots: int, until_s: float, refill: Callable[[float], None]
) -> list[tuple[float, Ticket]]:
    """Serve in simulated time at so many tokens a second and slot. Returns when each one was dispatched."""
    now, running, dispatched = 0.0, [(0.0, -1)], []
    tickets: dict[int, Ticket] = {}
    queue.slots = slots
    while now < until_s:
        now, number = heapq.heappop(running)
        if number in tickets:
            queue.release(tickets.pop(number), None)
        refill(now)
        while (ticket := queue.pop(now)) is not None:
            dispatched.append((now, ticket))
            tickets[len(dispatched)] = ticket
            heapq.heappush(running, (now + ticket.cost_tokens / TOKENS_PER_S, len(dispatched)))
    return dispatched


def measure_jain(slots: int) -> float:
    """Four tenants that always wait, with requests of 500 to 7 000 tokens."""
    queue = ModelQueue("m", Limits(0, 10**9), ("x",))
    costs = {"a": 500, "b": 1000, "c": 3000, "d": 7000}
    waiting: Counter[str] = Counter()

    def refill(now: float) -> None:
        for state in queue.state(now).tenants:
            waiting[state.tenant] = state.waiting
        for tenant, cost in costs.items():
            for _ in range(slots + 4 - waiting[tenant]):
                queue.push("x", tenant, cost, now=now)

    used: Counter[str] = Counter()
    for _, ticket in simulate(queue, slots, 600.0 if slots > 1 else 6000.0, refill):
        used[ticket.tenant] += ticket.cost_tokens
    return jain([float(used[tenant]) for tenant in costs])


def measure_quiet_wait(slots: int) -> float:
    """The longest wait of a tenant that asks once in 40 s beside one that sent all of its 5 000 at once."""
    queue = ModelQueue("m", Limits(0, 10**9), ("x",))
    for _ in range(5000):
        queue.push("x", "flooder", 400, now=0.0)
    asked = 0

    def refill(now: float) -> None:
        nonlocal asked
        while asked * 40.0 <= now:
            queue.push("x", "quiet", 400, now=asked * 40.0)
            asked += 1

    waits = {"flooder": 0.0, "quiet": 0.0}
    for now, ticket in simulate(queue, slots, 5000 * 400 / TOKENS_PER_S / slots, refill):
        waits[ticket.tenant] = max(waits[ticket.tenant], now - ticket.pushed_at)
    return waits["quiet"] / waits["flooder"]


def measure_floor() -> float:
    """What the low band gets of dispatches while the high one always waits."""
    queue = ModelQueue("m", Limits(1, 10**9), ("high", "low"))
    for band in ("high", "low"):
        for _ in range(4000):
            queue.push(band, "t", 100, now=0.0)
    low = 0
    for _ in range(1600):
        ticket = queue.pop(0.0)
        assert ticket is not None
        low += ticket.band
        queue.release(ticket, None)
    return low / 1600


def main() -> int:
    """Print all of it. Returns 1 when a bar is missed."""
    is_met = measure_costs()
    for slots in (1, 4, 16, 64):
        share, wait = measure_jain(slots), measure_quiet_wait(slots)
        is_met &= share >= MIN_JAIN and wait <= MAX_WAIT_RATIO
        sys.stdout.write(f"{slots:>3} slots: Jain over tokens {share:.4f} (bar {MIN_JAIN}), ")
        sys.stdout.write(f"quiet/flooder longest wait {wait:.4f} (bar {MAX_WAIT_RATIO})\n")
    low = measure_floor()
    is_met &= low >= 1 / FLOOR_EVERY
    sys.stdout.write(f"low band: {low:.4f} of dispatches (floor {1 / FLOOR_EVERY:.4f})\n")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
