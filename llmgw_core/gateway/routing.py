"""Which engine a request goes to: the table of replicas, by served model name. No I/O.

A replica takes requests while it is ready, not draining, has a free slot, and its own queue is short: what waits shall
wait here, where it can still go elsewhere, and not in an engine.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from itertools import count

ENGINE_WAITING_MOST = (
    2  # in an engine's own queue; beyond, it gets nothing more until it was read again
)


class ReplicaState(Enum):
    """What is known of an engine."""

    LOADING = "loading"  # not ready yet
    READY = "ready"  # healthy, lists its model, and a token came back
    SUSPECT = "suspect"  # a request failed at it: no other is sent before it has proven itself anew
    DOWN = "down"  # it does not answer


class ModelStatus(Enum):
    """Whether requests for a model may come."""

    UNKNOWN = "unknown"
    LOADING = "loading"
    DOWN = "down"
    OPEN = "open"  # ready, or about to be proven so again


@dataclass(eq=False)
class Replica:
    """One engine that serves one or more models."""

    url: str  # base, without a slash at the end
    name: str
    slots: int
    models: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    state: ReplicaState = ReplicaState.LOADING
    trouble: str = ""
    is_draining: bool = False
    cards: dict[str, dict[str, object]] = field(default_factory=dict)  # of /v1/models
    running: int = 0  # ours
    served: int = 0  # ours, so far
    failures: int = 0  # ours, so far
    engine_running: int | None = None  # as it says itself; None: not known
    engine_waiting: int | None = None
    kv_usage: float | None = None  # 0 to 1
    foreign: int = 0  # of the last reading, what was not ours

    @property
    def free_slots(self) -> int:
        """Requests it may get now."""
        if self.state is not ReplicaState.READY or self.is_draining:
            return 0
        if (self.engine_waiting or 0) > ENGINE_WAITING_MOST and self.running:
            return 0
        return max(0, self.slots - self.running)

    def note_load(self, running: int, waiting: int, kv_usage: float | None) -> None:
        """What its metrics say."""
        self.engine_running, self.engine_waiting, self.kv_usage = running, waiting, kv_usage
        self.foreign = max(0, running + waiting - self.running)


class Table:
    """All replicas. Whoever changes one calls `index`."""

    def __init__(self, *, has_affinity: bool = False) -> None:
        """Make an empty table.

        Args:
            has_affinity: prefer the replica that saw the same begin of a prompt, as long as it is not much busier.
        """
        self.has_affinity = has_affinity
        self._replicas: dict[str, Replica] = {}
        self._by_model: dict[str, tuple[Replica, ...]] = {}
        self._turn = count()

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All of them, in the order they came."""
        return tuple(self._replicas.values())

    @property
    def models(self) -> tuple[str, ...]:
        """All model names, sorted."""
        return tuple(sorted(self._by_model))

    def of_model(self, model: str) -> tuple[Replica, ...]:
        """Those that serve a model, ready or not."""
        return self._by_model.get(model, ())

    def add(self, replica: Replica) -> None:
        """Take one in."""
        self._replicas[replica.url] = replica
        self.index()

    def remove(self, url: str) -> None:
        """Take one out. What runs at it goes on."""
        gone = self._replicas.pop(url, None)
        if gone is not None:
            gone.state = ReplicaState.DOWN
        self.index()

    def index(self) -> None:
        """Sort the replicas by model again."""
        found: dict[str, list[Replica]] = {}
        for replica in self._replicas.values():
            for model in replica.models:
                found.setdefault(model, []).append(replica)
        self._by_model = {model: tuple(replicas) for model, replicas in found.items()}

    def status(self, model: str) -> ModelStatus:
        """Whether requests for a model may come."""
        states = {replica.state for replica in self.of_model(model)}
        if not states:
            return ModelStatus.UNKNOWN
        if ReplicaState.READY in states or ReplicaState.SUSPECT in states:
            return ModelStatus.OPEN
        return ModelStatus.LOADING if ReplicaState.LOADING in states else ModelStatus.DOWN

    def free_slots(self, model: str) -> int:
        """Requests that may be sent for a model now."""
        return sum(replica.free_slots for replica in self.of_model(model))

    def choose(self, model: str, prefix: str = "") -> Replica | None:
        """The least loaded of those with a free slot, in turn among equals; None: there is none."""
        free = [replica for replica in self.of_model(model) if replica.free_slots]
        if len(free) <= 1:
            return free[0] if free else None
        shift = next(self._turn) % len(free)
        least = min(free[shift:] + free[:shift], key=_load)
        if self.has_affinity and prefix:
            mine = max(free, key=lambda replica: _rank(replica.url, prefix))
            if _load(mine) <= _load(least) + 0.25:
                return mine
        return least


def models_of(replicas: Iterable[Replica]) -> set[str]:
    """All names they serve."""
    return {model for replica in replicas for model in replica.models}


def _load(replica: Replica) -> float:
    """0: idle, 1: as full as we make it; more where others use it too."""
    return (replica.running + replica.foreign) / replica.slots


def _rank(url: str, prefix: str) -> bytes:
    """The replica of the highest rank gets a prefix; when it is away, only its own prefixes move."""
    return blake2b(f"{url} {prefix}".encode("utf-8", "replace"), digest_size=8).digest()
