"""Watchers of the node's state: one reading for all of them, the latest one for each, never a queue."""

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Awaitable, Callable, Dict, Optional, Set

from llmgw_core.agent.event_log import EventLog
from llmgw_core.agent.protocol import GPU_INTERVAL_S
from llmgw_core.agent.rpc import make_notification
from llmgw_core.domain.delta import diff
from llmgw_core.domain.wire import to_jsonable

if TYPE_CHECKING:  # not loaded for a daemon's first answer
    from llmgw_core.domain.inventory import Node

MIN_INTERVAL_S = 1.0
MAX_INTERVAL_S = 3600.0
QUIET_INTERVAL_S = GPU_INTERVAL_S  # while no engine changes there is nothing newer to tell
HEARTBEAT_S = 5.0  # an unchanged node is told that often, so that a console can tell its age


class Watcher:
    """One connection's wish to be told. `send` may be slow: meanwhile readings replace one another."""

    def __init__(
        self,
        interval_s: float,
        send: Callable[[Dict[str, object]], Awaitable[None]],
        *,
        deltas: bool = False,
    ):
        self.interval_s = clamp_interval(interval_s)
        self._send = send
        self._deltas = deltas
        self._sent: Optional[Node] = None
        self._sequence = 0
        self._latest: Optional[Node] = None
        self._dirty = asyncio.Event()
        self._offered_at = float("-inf")

    def offer(self, node: "Node", has_changed: bool) -> None:
        """Take a reading; an unchanged one is passed on as a heartbeat only."""
        self._latest = node
        now = time.monotonic()
        # Half a reading's time less: a heartbeat must not wait for one reading more than it has to.
        is_due = now - self._offered_at >= max(HEARTBEAT_S, self.interval_s) - MIN_INTERVAL_S / 2
        if has_changed or is_due:
            self._offered_at = now
            self._dirty.set()

    async def run(self) -> None:
        """Send states until cancelled, at most one per interval."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._sequence += 1
            await self._send(make_notification("state", self._next_state()))
            await asyncio.sleep(self.interval_s)

    def _next_state(self) -> Dict[str, object]:
        node, before = self._latest, self._sent
        self._sent = node if self._deltas else None
        if node is None or before is None:
            return {"seq": self._sequence, "node": to_jsonable(node)}
        return {"seq": self._sequence, "changes": diff(before, node)}


class Sampler:
    """Reads the node for as long as somebody watches, as often as the most eager watcher wants.

    `end` is called when the last watcher has gone, and no reading is under way.
    """

    def __init__(
        self,
        read: "Callable[[float], Awaitable[Node]]",
        log: EventLog,
        end: Optional[Callable[[], Awaitable[None]]] = None,
    ) -> None:
        self._read = read
        self._log = log
        self._end = end
        self._watchers: Set[Watcher] = set()
        self._wake = asyncio.Event()
        self._last: Optional[Node] = None  # what is steady of it

    def add(self, watcher: Watcher) -> None:
        """Begin to offer it readings, the first one soon."""
        self._watchers.add(watcher)
        self._wake.set()

    def remove(self, watcher: Watcher) -> None:
        """No more for this one."""
        self._watchers.discard(watcher)
        if not self._watchers:
            self._wake.set()  # what runs for watchers ends now, not after the pause

    def hurry(self) -> None:
        """Something changed: do not wait for the next turn."""
        self._wake.set()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            has_read = False
            while self._watchers:
                began = time.monotonic()
                await self._sample()
                await self._rest(began)
                has_read = True
            if has_read and self._end is not None:
                await self._end()

    async def _sample(self) -> None:
        try:
            node = await self._read(MIN_INTERVAL_S / 2)
        except Exception as error:  # noqa: BLE001 - an edge: one failed reading must not end all watching
            self._log.write("sample-failed", kind=type(error).__name__, error=error)
            return
        steady = _steady(node)
        has_changed = steady != self._last
        self._last = steady
        for watcher in self._watchers:
            watcher.offer(node, has_changed)

    async def _rest(self, began: float) -> None:
        """Until the next reading is due; a change of an engine ends it early, but never within the shortest interval."""
        wanted_s = min((watcher.interval_s for watcher in self._watchers), default=MIN_INTERVAL_S)
        interval_s = max(wanted_s, QUIET_INTERVAL_S)
        await asyncio.sleep(max(0.0, MIN_INTERVAL_S - (time.monotonic() - began)))
        left = interval_s - (time.monotonic() - began)
        if left > 0 and self._watchers:
            try:
                await asyncio.wait_for(self._wake.wait(), left)
            except asyncio.TimeoutError:
                return
            self._wake.clear()


def clamp_interval(seconds: float) -> float:
    """The interval in force for the one asked for."""
    return min(max(seconds, MIN_INTERVAL_S), MAX_INTERVAL_S)


def _steady(node: "Node") -> "Node":
    """The node without what differs between any two readings; that much waits for a heartbeat."""
    host = replace(
        node.host,
        uptime_seconds=None,
        load_1m=None,
        memory_available_bytes=None,
        cpu_percent=None,
        model_cache_free_bytes=None,
    )
    ports = tuple(
        replace(port, rx_gbps=None, tx_gbps=None, error_rates=None) for port in node.ports
    )
    return replace(node, host=host, ports=ports)
