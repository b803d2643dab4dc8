"""The gateways on the nodes of a fleet, and on this machine: found and followed through the agents, without an open port."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from llmgw_core.agent import gateways as here
from llmgw_core.domain.inventory import NodeFault
from llmgw_core.domain.queue import GatewaysPicture, GatewayView, QueueState
from llmgw_core.errors import LlmgwError, NodeError, ProtocolError
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.schema import parse_reply

LOOK_S = 1.0  # between two looks at a gateway
SEARCH_S = 10.0  # between two searches of all nodes
AWAY_S = 1.0  # between two tries of nodes that are not connected yet
PICTURE_GAP_S = 0.25
MAX_SEARCHES = 64  # nodes asked at a time
HERE = ""  # this machine
Place = tuple[str, str]  # (node, socket)


class GatewayWatch:
    """Follows every gateway that it finds, while `pictures` is read.

    Args:
        environ: the operator's, for gateways on this machine.
        now: UTC epoch seconds.
    """

    def __init__(
        self, fleet: Fleet, environ: Mapping[str, str], now: Callable[[], float] = time.time
    ) -> None:
        self._fleet = fleet
        self._environ = environ
        self._now = now
        self._views: dict[Place, GatewayView] = {}
        self._looking: dict[Place, asyncio.Task[None]] = {}
        self._asked: set[str] = set()
        self._away: set[str] = set()
        self._is_searched = False
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()

    async def pictures(self) -> AsyncIterator[GatewaysPicture]:
        """Yield what is known at once, then after each change, at most four times a second."""
        searching = asyncio.create_task(self._search_for_ever(), name="gateways")
        for place in self._views:
            self._look(place)
        try:
            while True:
                self._changed.clear()
                yield self._draw()
                await asyncio.sleep(PICTURE_GAP_S)
                await self._changed.wait()
        finally:
            tasks = [searching, *self._looking.values()]
            self._looking = {}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def steer(self, node: str, socket: str, verb: str, kind: str, name: str) -> None:
        """Pause, resume or drain a model, a tenant or an engine of that gateway.

        Raises:
            LlmgwError: it refuses, or cannot be reached.
        """
        if node == HERE:
            await asyncio.to_thread(here.steer_gateway, socket, verb, kind, name)
        else:
            wanted = {"socket": socket, "verb": verb, "kind": kind, "name": name}
            await self._fleet.client(node).ask_gateways(dict[str, object], "steer", **wanted)
        with suppress(LlmgwError):
            await self._read((node, socket))

    def search_now(self) -> None:
        """Ask all nodes at once."""
        self._hurry.set()

    def _draw(self) -> GatewaysPicture:
        # One that several names lead to, such as this machine and a node that it is, is one.
        seen: set[str] = set()
        views = []
        for place in sorted(self._views, key=lambda item: (item[0] == HERE, item)):
            view = self._views[place]
            known = view.state.gateway if view.state else None
            if known is None or known.id not in seen:
                views.append(view)
            if known is not None:
                seen.add(known.id)
        away = tuple(sorted(self._away))
        return GatewaysPicture(tuple(views), len(self._asked), away, self._is_searched)

    async def _search_for_ever(self) -> None:
        names = [target.name for target in self._fleet.targets]
        due = [HERE, *names]
        next_full = 0.0
        while True:
            now = asyncio.get_running_loop().time()
            if now >= next_full or self._hurry.is_set():
                self._hurry.clear()
                due, next_full = [HERE, *names], now + SEARCH_S
            await _gather_some(self._search(name) for name in due)
            self._is_searched = True
            self._changed.set()
            due = [name for name in due if name in self._away]  # a node that comes up is asked soon
            wait_s = AWAY_S if due else max(0.0, next_full - asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._hurry.wait()

    async def _search(self, node: str) -> None:
        try:
            if node == HERE:
                found = await asyncio.to_thread(here.find_gateways, self._environ)
            else:
                found = await self._fleet.client(node).ask_gateways(tuple[str, ...], "list")
        except ProtocolError:
            found = ()  # an agent of an earlier version
        except LlmgwError:
            if node != HERE:
                self._away.add(node)
            return
        self._away.discard(node)
        if node != HERE:
            self._asked.add(node)
        for socket in found:
            place = (node, socket)
            self._views.setdefault(place, GatewayView(node, socket))
            self._look(place)

    def _look(self, place: Place) -> None:
        if place not in self._looking:
            task = asyncio.create_task(self._look_for_ever(place), name=f"gateway {place[1]}")
            self._looking[place] = task

    async def _look_for_ever(self, place: Place) -> None:
        while True:
            try:
                await self._read(place)
            except LlmgwError as error:
                self._fail(place, error)
            # The edge: a bug met at one gateway must not take the others from the screen.
            except Exception as error:  # noqa: BLE001
                self._fail(place, NodeError(f"llmgw stumbled over {type(error).__name__}: {error}"))
            self._changed.set()
            await asyncio.sleep(LOOK_S)

    async def _read(self, place: Place) -> None:
        node, socket = place
        if node == HERE:
            data = await asyncio.to_thread(here.read_queue, socket, here.MOST_TENANTS)
            state = parse_reply(QueueState, data, "/admin/queue", "this machine")
        else:
            state = await self._fleet.client(node).ask_gateways(QueueState, "queue", socket=socket)
        self._views[place] = GatewayView(node, socket, state, self._now())
        self._changed.set()

    def _fail(self, place: Place, error: LlmgwError) -> None:
        """Keep what was last seen, with its age, and why there is nothing newer."""
        fault = NodeFault(error.code, error.message, error.fix)
        self._views[place] = replace(self._views[place], fault=fault)


async def _gather_some(work: Iterator[Coroutine[Any, Any, None]]) -> None:
    turns = asyncio.Semaphore(MAX_SEARCHES)

    async def one(item: Coroutine[Any, Any, None]) -> None:
        async with turns:
            await item

    await asyncio.gather(*(one(item) for item in work))
