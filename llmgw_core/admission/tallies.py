"""What is counted for each tenant of each band, in bounded memory however many names come. Pure."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from llmgw_core.admission.tickets import Refusal

IDLE_MOST = 1024  # tenants with nothing waiting or running whose counts are kept apart
OTHERS = "(others)"  # the sum of those longest away


class Key(NamedTuple):
    """Whose counts they are."""

    band: int  # -1: of requests for a band that does not exist
    tenant: str


@dataclass
class Tally:
    """The counts of one tenant in one band."""

    waiting: int = 0
    running: int = 0
    admitted: int = 0
    used_tokens: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing waiting and nothing running."""
        return not self.waiting and not self.running

    def absorb(self, other: "Tally") -> None:
        """Take over the counts of one that is dropped."""
        self.admitted += other.admitted
        self.used_tokens += other.used_tokens
        self.refused.update(other.refused)


class Tallies:
    """All of one model's counts. Those of tenants long gone are summed up under `OTHERS`, so that totals stay."""

    def __init__(self, idle_most: int = IDLE_MOST) -> None:
        self._idle_most = idle_most
        self._busy: dict[Key, Tally] = {}
        self._idle: OrderedDict[Key, Tally] = OrderedDict()  # the longest away first
        self._others: dict[Key, Tally] = {}

    def get(self, band: int, tenant: str) -> Tally:
        """The tally of one who is about to have something waiting or running. Call `rest` when that may be over."""
        key = Key(band, tenant)
        found = self._busy.get(key)
        if found is None:
            found = self._idle.pop(key) if key in self._idle else Tally()
            self._busy[key] = found
        return found

    def rest(self, band: int, tenant: str) -> None:
        """Put a tally aside when it is idle, and sum up the one longest away when they are too many."""
        key = Key(band, tenant)
        found = self._busy.get(key)
        if found is None or not found.is_idle:
            return
        del self._busy[key]
        self._idle[key] = found
        if len(self._idle) > self._idle_most:
            oldest, dropped = self._idle.popitem(last=False)
            self._others.setdefault(Key(oldest.band, OTHERS), Tally()).absorb(dropped)

    def __iter__(self) -> Iterator[tuple[Key, Tally]]:
        """By band, then tenant."""
        kept = (*self._busy.items(), *self._idle.items(), *self._others.items())
        yield from sorted(kept, key=lambda item: item[0])
