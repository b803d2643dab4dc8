"""The only file that awaits the fleet: turns its pictures into messages, and commands into calls to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol
from uuid import uuid4

from textual.message import Message

from llmgw_core.domain.engine import EngineStatus, LogChunk
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest
from llmgw_core.domain.queue import GatewaysPicture
from llmgw_core.errors import EngineNotFound, LlmgwError
from llmgw_tui.messages import (
    ActAccepted,
    ActionFailed,
    GatewaysArrived,
    LaunchFailed,
    LaunchSucceeded,
    LogArrived,
    LogInterrupted,
    PlanArrived,
    SnapshotArrived,
    SteerRequested,
)
from llmgw_tui.present.acts import Act

LOG_CHUNK_BYTES = 65536
LOG_START_BYTES = 262144  # how far before its end a log is read from
LOG_IDLE_SECONDS = 0.5
LOG_BREATH_SECONDS = 0.01  # between chunks while there is more: the screen gets its turn
RETRY_SECONDS = 2.0


class LogReader(Protocol):
    """What the feed needs of a node's client."""

    async def read_log(self, engine: str, offset: int, max_bytes: int) -> LogChunk:
        """A piece of a log; a negative offset counts from the end."""
        ...


class FleetPort(Protocol):
    """What the feed needs of a fleet."""

    def snapshots(self) -> AsyncIterator[FleetSnapshot]:
        """Pictures, the latest at once, then on change."""
        ...

    def client(self, node: str) -> LogReader:
        """The node's client; raises the node's error when it is not connected."""
        ...


class Operations(Protocol):
    """What the console asks a fleet to do."""

    async def plan(self, request: LaunchRequest, launch_id: str) -> LaunchPlan:
        """Plan a launch, with what its nodes say of it."""
        ...

    async def launch(self, plan: LaunchPlan) -> tuple[EngineStatus, ...]:
        """Carry out a plan."""
        ...

    async def stop(self, node: str, engine_id: str, grace_seconds: float | None) -> None:
        """Begin to stop an engine."""
        ...

    async def forget(self, node: str, engine_id: str) -> None:
        """Remove the record and the log of an engine that is over."""
        ...

    async def restart(self, ranks: Sequence[tuple[str, str]], launch_id: str) -> None:
        """Stop all ranks of an engine, and launch the same again."""
        ...

    async def refresh(self) -> None:
        """Read all nodes again; try at once those that wait for their next try."""
        ...


class Gateways(Protocol):
    """What the feed needs of the gateways."""

    def pictures(self) -> AsyncIterator[GatewaysPicture]:
        """Pictures, the latest at once, then on change."""
        ...

    async def steer(self, node: str, socket: str, verb: str, kind: str, name: str) -> None:
        """Pause, resume or drain a model, a tenant or an engine."""
        ...

    def search_now(self) -> None:
        """Look for gateways at once."""
        ...


class NoGateways:
    """In the place of gateways where none can be reached: beside a saved inventory."""

    async def pictures(self) -> AsyncIterator[GatewaysPicture]:
        """Say once that there are none, and wait."""
        yield GatewaysPicture(is_searched=True)
        await asyncio.Event().wait()

    async def steer(self, node: str, socket: str, verb: str, kind: str, name: str) -> None:
        """Do nothing: there is no row to do it to."""

    def search_now(self) -> None:
        """Do nothing: there is nowhere to look."""


class Feed:
    """Posts what happens in the fleet to the app. Each method is one worker of the app; none changes a widget."""

    def __init__(
        self,
        fleet: FleetPort,
        operations: Operations,
        new_id: Callable[[], str] | None = None,
        gateways: Gateways | None = None,
    ) -> None:
        self._fleet = fleet
        self._gateways = gateways or NoGateways()
        self._operations = operations
        self._new_id = new_id or (lambda: uuid4().hex)

    async def watch(self, post: Callable[[Message], object]) -> None:
        """Post every picture of the fleet. A stream that breaks is said so, and taken up again."""
        while True:
            try:
                async for snapshot in self._fleet.snapshots():
                    post(SnapshotArrived(snapshot))
            except LlmgwError as error:
                post(ActionFailed("watching the cluster", error))
            await asyncio.sleep(RETRY_SECONDS)

    async def watch_gateways(self, post: Callable[[Message], object]) -> None:
        """Post every picture of the gateways' queues."""
        async for picture in self._gateways.pictures():
            post(GatewaysArrived(picture))

    async def steer(self, wanted: SteerRequested, post: Callable[[Message], object]) -> None:
        """Pause, resume or drain; the next picture shows it."""

        async def do() -> None:
            await self._gateways.steer(
                wanted.node, wanted.socket, wanted.verb, wanted.kind, wanted.name
            )
            done = {"pause": "paused", "resume": "resumed", "drain": "draining"}[wanted.verb]
            post(ActAccepted(wanted.verb, f"{wanted.kind} {wanted.name} is {done}."))

        await self._try(f"{wanted.verb} {wanted.kind} {wanted.name}", do(), post)

    async def plan(
        self, number: int, request: LaunchRequest, post: Callable[[Message], object]
    ) -> None:
        """Plan a launch under an id of its own: launching that plan twice starts one engine."""
        try:
            plan = await self._operations.plan(request, self._new_id())
        except LlmgwError as error:
            post(PlanArrived(number, None, error))
        else:
            post(PlanArrived(number, plan))

    async def launch(self, plan: LaunchPlan, post: Callable[[Message], object]) -> None:
        """Carry out the plan that was shown."""
        try:
            engines = await self._operations.launch(plan)
        except LlmgwError as error:
            post(LaunchFailed(plan, error))
        else:
            post(LaunchSucceeded(plan, engines))

    async def act(
        self, act: str, targets: Sequence[tuple[str, ...]], post: Callable[[Message], object]
    ) -> None:
        """Stop, restart or forget engines; how a stop goes on is seen in the pictures. One failure keeps no other."""
        ranks = [(target[0], target[1]) for target in targets]
        if act == Act.RESTART:
            names = ", ".join(f"{name} on {node}" for node, name in ranks)
            post(ActAccepted(act, f"{names} is being stopped, to be started again."))
            restart = self._operations.restart(ranks, self._new_id())
            await self._try(f"restart {names}", restart, post)
            return
        await asyncio.gather(*(self._act_on(act, node, name, post) for node, name in ranks))

    async def _act_on(
        self, act: str, node: str, engine_id: str, post: Callable[[Message], object]
    ) -> None:
        async def do() -> None:
            if act == Act.FORGET:
                await self._operations.forget(node, engine_id)
                post(ActAccepted(act, f"{engine_id} on {node} is forgotten."))
            else:
                await self._operations.stop(node, engine_id, None)
                post(ActAccepted(act, f"{engine_id} on {node} is being stopped."))

        await self._try(f"{act} {engine_id} on {node}", do(), post)

    async def refresh(self, post: Callable[[Message], object]) -> None:
        """Read all nodes again now."""
        self._gateways.search_now()
        await self._try("refresh", self._operations.refresh(), post)

    async def _try(
        self,
        action: str,
        doing: Awaitable[None],
        post: Callable[[Message], object],
    ) -> None:
        try:
            await doing
        except LlmgwError as error:
            post(ActionFailed(action, error))

    async def follow_log(
        self, node: str, engine_id: str, offset: int | None, post: Callable[[Message], object]
    ) -> None:
        """Post a log piece by piece until it ends, across lost connections."""
        place = -LOG_START_BYTES if offset is None else offset
        trouble: str | None = None
        is_first = True
        while True:
            try:
                client = self._fleet.client(node)
                chunk = await client.read_log(engine_id, place, LOG_CHUNK_BYTES)
            except LlmgwError as error:
                if error.code != trouble:
                    post(LogInterrupted(node, engine_id, error))
                    trouble = error.code
                if isinstance(error, EngineNotFound):
                    return
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if is_first or trouble or chunk.data or chunk.skipped or chunk.ended:
                post(LogArrived(node, chunk))
            if chunk.ended:
                return
            trouble, is_first = None, False
            has_more = chunk.next_offset < chunk.end_offset
            place = chunk.next_offset
            await asyncio.sleep(LOG_BREATH_SECONDS if has_more else LOG_IDLE_SECONDS)


class FleetOperations:
    """The real thing: plans and acts through `llmgw_core.fleet.operations`."""

    def __init__(self, fleet: object, environ: Mapping[str, str]) -> None:
        from llmgw_core.fleet.fleet import Fleet

        if not isinstance(fleet, Fleet):
            raise TypeError(f"not a fleet: {fleet!r}")
        self._fleet = fleet
        self._environ = environ

    async def plan(self, request: LaunchRequest, launch_id: str) -> LaunchPlan:
        """Plan a launch, with what its nodes say of it."""
        from llmgw_core.fleet.operations import plan_launch

        return await plan_launch(self._fleet, request, launch_id)

    async def launch(self, plan: LaunchPlan) -> tuple[EngineStatus, ...]:
        """Carry out a plan; secrets that it names come from the operator's environment."""
        from llmgw_core.fleet.operations import launch_plan

        return await launch_plan(self._fleet, plan, self._environ)

    async def stop(self, node: str, engine_id: str, grace_seconds: float | None) -> None:
        """Begin to stop an engine."""
        from llmgw_core.fleet.operations import stop_engine

        await stop_engine(self._fleet, node, engine_id, grace_seconds)

    async def forget(self, node: str, engine_id: str) -> None:
        """Remove the record and the log of an engine that is over."""
        await self._fleet.client(node).forget(uuid4().hex, engine_id)

    async def restart(self, ranks: Sequence[tuple[str, str]], launch_id: str) -> None:
        """Stop all ranks of an engine, and launch the same again."""
        from llmgw_core.fleet.restarting import restart_engine

        await restart_engine(self._fleet, ranks, launch_id, self._environ)

    async def refresh(self) -> None:
        """Read all connected nodes again, each of which reports by itself; try the others at once."""
        names = [target.name for target in self._fleet.targets]
        await asyncio.gather(*(self._refresh_node(name) for name in names))

    async def _refresh_node(self, name: str) -> None:
        try:
            await self._fleet.client(name).inventory(max_age_s=0.0)
        except LlmgwError:
            # The node's row says so already.
            self._fleet.retry_now(name)
