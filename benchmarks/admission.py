"""What one push, pop and cancel costs while many wait: `python -m benchmarks.admission`.

Counted is the call alone, on one core, with 100 tenants in three bands and a deadline for each request. The bar is a ratio:
a hundred times as many waiters must not cost twice as much.
"""

import random
import sys
import time
from collections.abc import Callable

from llmgw_core.admission.queue import ModelQueue
from llmgw_core.admission.tickets import Limits, Ticket

BANDS = ("high", "normal", "low")
CALLS = 20_000
FEW, MANY = 10_000, 1_000_000
BEST_OF = 3


def fill(waiting: int) -> tuple[ModelQueue, list[Ticket]]:
    """A queue in which so many wait."""
    rng = random.Random(7)  # noqa: S311 - the same load each time
    queue = ModelQueue("m", Limits(slots=10**9, waiting=10**9), BANDS)
    tickets = [
        queue.push(
            BANDS[number % 3],
            f"t{rng.randrange(100)}",
            rng.randrange(1, 4000),
            now=0.0,
            wait_s=60.0 + number,
        )
        for number in range(waiting)
    ]
    return queue, tickets


def time_calls(call: Callable[[int], object]) -> float:
    """Microseconds for one call, the best of some runs."""
    best = float("inf")
    for run in range(BEST_OF):
        began = time.perf_counter()
        for number in range(CALLS):
            call(run * CALLS + number)
        best = min(best, time.perf_counter() - began)
    return best / CALLS * 1e6


def measure(waiting: int) -> dict[str, float]:
    """Microseconds of each operation while so many wait."""
    queue, tickets = fill(waiting)
    spare = [queue.push("normal", "t1", 10, now=0.0, wait_s=9e9) for _ in range(BEST_OF * CALLS)]
    found = {
        "cancel": time_calls(lambda number: queue.cancel(spare[number])),
        "push": time_calls(
            lambda number: queue.push("normal", f"t{number % 100}", 500, now=0.0, wait_s=60.0)
        ),
    }
    queue.limits = Limits(slots=BEST_OF * CALLS, waiting=10**9)
    found["pop"] = time_calls(lambda _: queue.pop(0.0))
    del tickets
    return found


def main() -> int:
    """Print the table."""
    few, many = measure(FEW + BEST_OF * CALLS), measure(MANY)
    sys.stdout.write(
        f"{'':8}{FEW + BEST_OF * CALLS:>12} waiters{MANY:>12} waiters   ratio (bar 2)\n"
    )
    for name, cost_us in few.items():
        ratio = many[name] / cost_us
        sys.stdout.write(f"{name:8}{cost_us:>16.2f} µs{many[name]:>17.2f} µs   {ratio:.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
