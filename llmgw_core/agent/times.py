"""The two clocks of the node side: one for people, one for deadlines."""

import time


def rfc3339() -> str:
    """The time now, UTC, for people: no deadline depends on it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def boottime() -> float:
    """Seconds since boot, sleep included: no change of the clock moves it, and it outlives the daemon."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
