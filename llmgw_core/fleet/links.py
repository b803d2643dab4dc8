"""One node's link: connects, follows the node's state, and after any failure tries again, for as long as it runs."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import cast

from llmgw_core.domain.inventory import Contact, Node, NodeFault, NodeView
from llmgw_core.errors import AgentTimeout, LlmgwError, LoginCut, NodeError, Unreachable
from llmgw_core.fleet.bootstrap import bootstrap
from llmgw_core.fleet.bundle import Bundle
from llmgw_core.fleet.client import AgentClient
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.history import NodeHistory
from llmgw_core.fleet.transport import Transport
from llmgw_core.planning.port_override import exclude_ports

RETRY_MIN_S = 1.0
RETRY_MAX_S = 60.0
LOGIN_PAUSES_S = (1.0, 2.0, 4.0)
STEADY_S = 30.0  # a link that held so long starts its retries anew
SILENCE_S = 30.0  # a watched node says something every 5 s, even when nothing changed


@dataclass(frozen=True)
class LinkSettings:
    """What all links of a fleet share."""

    connect: Callable[[Target], Transport]
    bundle: Callable[[], Awaitable[Bundle]]
    gate: asyncio.Semaphore  # so many logins at a time: their cryptography runs on the event loop
    interval_s: float
    on_change: Callable[[], None]
    rng: random.Random
    now: Callable[[], float] = time.time  # UTC epoch seconds


class NodeLink:
    """Holds what is known of one node. `run` keeps it current and ends only when cancelled."""

    def __init__(self, target: Target, settings: LinkSettings) -> None:
        self.target = target
        self.view = NodeView(
            Node(target.name, address=target.address, reachable=False), Contact.CONNECTING
        )
        self._history = NodeHistory()
        self.has_outcome = asyncio.Event()  # set once the node has answered or failed
        self._settings = settings
        self._client: AgentClient | None = None
        self._fault: LlmgwError | None = None
        self._backoff = Backoff(settings.rng)
        self._hurry = asyncio.Event()

    @property
    def client(self) -> AgentClient:
        """The client of the node's agent.

        Raises:
            LlmgwError: why there is none now.
        """
        if self._client is not None:
            return self._client
        if self._fault is not None:
            raise self._fault
        raise Unreachable(
            "not connected yet", "the first try goes on", "wait a moment", self.target.name
        )

    async def run(self) -> None:
        """Connect and follow, again and again."""
        while True:
            started_at = time.monotonic()
            try:
                await self._follow_node()
            except LlmgwError as error:
                self._fail(error, started_at)
            # The edge: a bug met on one node must not take the others' links with it.
            except Exception as error:  # noqa: BLE001
                self._fail(_stumbled(error, self.target.name), started_at)
            await self._pause()

    def retry_now(self) -> None:
        """Try at once where the link waits for its next try; nothing where it holds."""
        self._hurry.set()

    async def _pause(self) -> None:
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.delay_s):
                await self._hurry.wait()

    async def _follow_node(self) -> None:
        """One connection from its opening to its end, which is always an error."""
        async with AsyncExitStack() as ending:
            transport = self._settings.connect(self.target)
            ending.push_async_callback(transport.close)
            client = await self._connect(transport)
            states = cast("AsyncGenerator[Node, None]", client.watch(self._settings.interval_s))
            ending.push_async_callback(states.aclose)
            # Ended first: the watch would otherwise take its leave of a node that may not answer.
            ending.push_async_callback(client.close)
            self._take(await client.inventory())
            self._client = client
            ending.callback(self._drop_client)
            while True:
                self._take(await self._next_state(states))

    def _drop_client(self) -> None:
        self._client = None

    async def _connect(self, transport: Transport) -> AgentClient:
        """Log in. An sshd with too many logins at once drops some at random: those are tried again before it counts."""
        for longest_s in LOGIN_PAUSES_S:
            try:
                async with self._settings.gate:
                    return await self._start_agent(transport)
            except LoginCut:
                # Outside the gate, and each for another while: else they would all come back together.
                await asyncio.sleep(longest_s * self._settings.rng.uniform(0.25, 1.0))
        async with self._settings.gate:
            return await self._start_agent(transport)

    async def _start_agent(self, transport: Transport) -> AgentClient:
        target = self.target
        bundle = await self._settings.bundle()
        shell = await transport.open_shell()
        venv_pythons = (f"{target.venv}/bin/python",) if target.venv else ()
        channel = await bootstrap(shell, bundle, target.python, venv_pythons, target.name)
        client = AgentClient(channel, target.name, bundle.hash)
        try:
            await client.start()
        except BaseException:
            await client.close()
            raise
        return client

    async def _next_state(self, states: AsyncIterator[Node]) -> Node:
        limit_s = max(SILENCE_S, 5 * self._settings.interval_s)
        try:
            async with asyncio.timeout(limit_s):
                return await anext(states)
        except TimeoutError:
            raise AgentTimeout(
                f"the agent has said nothing for {limit_s:.0f} s",
                "the connection is there; its daemon is stopped, or the node is overloaded",
                "look at the node's load and its daemon.log",
                self.target.name,
            ) from None

    def _take(self, node: Node) -> None:
        """A reading. The node knows itself by its host name; here it has the operator's name."""
        named = exclude_ports(
            replace(node, name=self.target.name, address=self.target.address),
            self.target.exclude_ports,
        )
        self._history.record(named, time.monotonic())
        self.view = NodeView(
            named, Contact.CONNECTED, updated_at=self._settings.now(), history=self._history
        )
        self._fault = None
        self._settle()

    def _fail(self, error: LlmgwError, started_at: float) -> None:
        """Keep the last reading, with its age, and say why there is no newer one."""
        error.node = error.node or self.target.name
        self._fault = error
        if time.monotonic() - started_at > STEADY_S:
            self._backoff.reset()
        self._backoff.advance()
        fault = NodeFault(error.code, error.message, error.fix)
        self.view = replace(
            self.view,
            node=replace(self.view.node, reachable=False, error=fault),
            contact=Contact.UNREACHABLE,
            retry_at=self._settings.now() + self._backoff.delay_s,
        )
        self._settle()

    def _settle(self) -> None:
        self.has_outcome.set()
        self._settings.on_change()


class Backoff:
    """Pauses between tries: 1, 2, 4 … 60 s, each shortened by up to a half so that nodes do not come in step."""

    def __init__(self, rng: random.Random) -> None:
        self.delay_s = 0.0
        self._rng = rng
        self._next_s = RETRY_MIN_S

    def reset(self) -> None:
        """Begin again at the shortest pause."""
        self._next_s = RETRY_MIN_S

    def advance(self) -> None:
        """Set `delay_s` to the next pause."""
        self.delay_s = self._next_s * self._rng.uniform(0.5, 1.0)
        self._next_s = min(self._next_s * 2, RETRY_MAX_S)


def _stumbled(error: Exception, node: str) -> NodeError:
    return NodeError(
        f"llmgw stumbled over {type(error).__name__}",
        str(error),
        "this is a bug of llmgw: please report it; the other nodes go on",
        node,
    )
