"""All nodes at once: a supervised link to each, and one picture of them that never waits."""

import asyncio
import importlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from llmgw_core.domain.inventory import Contact, FleetSnapshot, NodeFault, NodeView
from llmgw_core.domain.units import natural_key
from llmgw_core.errors import ConnectTimeout, UsageError
from llmgw_core.fleet.assembly import Assembler
from llmgw_core.fleet.bundle import Bundle, build_bundle
from llmgw_core.fleet.client import AgentClient
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.links import LinkSettings, NodeLink
from llmgw_core.fleet.local import LocalTransport
from llmgw_core.fleet.transport import Transport

MAX_LOGINS = 16  # at a time; with more, the event loop stalls long enough to be felt
MIN_SNAPSHOT_GAP_S = 0.25
SNAPSHOT_GAP_S_PER_NODE = 0.0005  # what a picture costs, here and where it is drawn, grows with it
# Times as long as making one took, so that a thousand nodes can come up meanwhile.
SNAPSHOT_REST = 4
_SSH_MODULE = "llmgw_core.fleet.ssh"


def default_transport(target: Target) -> Transport:
    """Return the way to a target: SSH, the system's `ssh`, or none for a target without an address."""
    if target.address is None:
        return LocalTransport(target.env)
    if target.transport == "openssh":
        from llmgw_core.fleet.openssh import OpenSshTransport

        return OpenSshTransport(target)
    # asyncssh takes 0.2 s to import, which a fleet of this machine alone shall not pay.
    from llmgw_core.fleet.ssh import SshTransport

    return SshTransport(target)


class Fleet:
    """Keeps a link to every target while it is entered (`async with`).

    Args:
        targets: the nodes; names are unique.
        connect: makes the way to a target; a new one for each try.
        interval_s: how often nodes are read while watched.
        rng: for the pauses between tries.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        connect: Callable[[Target], Transport] = default_transport,
        interval_s: float = 2.0,
        rng: random.Random | None = None,
    ) -> None:
        self.targets = tuple(sorted(targets, key=lambda target: natural_key(target.name)))
        self._connect = connect
        self._settings = LinkSettings(
            connect=connect,
            bundle=self._get_bundle,
            gate=asyncio.Semaphore(MAX_LOGINS),
            interval_s=interval_s,
            on_change=self._note_change,
            rng=rng or random.Random(),  # noqa: S311 - pauses, not secrets
        )
        self._links = {target.name: NodeLink(target, self._settings) for target in self.targets}
        if len(self._links) != len(self.targets):
            raise UsageError("two nodes have the same name", "", "a name is a node's identity")
        self._assembler = Assembler(
            {item.name: item.fabric for item in self.targets if item.fabric}
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._bundle: asyncio.Task[Bundle] | None = None
        self._changed = asyncio.Event()  # replaced by a new one at each change
        self._version = 0
        self._built = -1
        self._snapshot = FleetSnapshot(0.0)
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._bundle = asyncio.create_task(self._load())
        self._tasks = [
            asyncio.create_task(link.run(), name=f"link {name}")
            for name, link in self._links.items()
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed = True
        tasks = [*self._tasks, *([self._bundle] if self._bundle else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._note_change()

    def snapshot(self) -> FleetSnapshot:
        """Return all nodes as known now. Never waits; the same object until something changes."""
        if self._built != self._version:
            self._snapshot = self._assembler.assemble([link.view for link in self._links.values()])
            self._built = self._version
        return self._snapshot

    async def snapshots(self) -> AsyncIterator[FleetSnapshot]:
        """Yield the snapshot at once, then after changes, at most four a second, of 1000 nodes two; a slow reader gets the latest."""
        seen = -1
        while not self._is_closed:
            if seen == self._version:
                await self._changed.wait()
                continue
            seen = self._version
            began = asyncio.get_running_loop().time()
            picture = self.snapshot()
            cost_s = asyncio.get_running_loop().time() - began
            yield picture
            least_s = max(MIN_SNAPSHOT_GAP_S, SNAPSHOT_GAP_S_PER_NODE * len(self._links))
            await asyncio.sleep(max(least_s, SNAPSHOT_REST * cost_s))

    async def settle(self, timeout_s: float) -> FleetSnapshot:
        """Wait until each node has answered or failed once. Returns all nodes.

        A node that did neither in time is unreachable in what comes back, and its link goes on.
        """
        waiting = [asyncio.create_task(link.has_outcome.wait()) for link in self._links.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if all(link.has_outcome.is_set() for link in self._links.values()):
            return self.snapshot()
        return self._assembler.assemble(
            [_or_late(link, timeout_s) for link in self._links.values()]
        )

    def client(self, node: str) -> AgentClient:
        """Return the client of a node's agent.

        Raises:
            UsageError: there is no such node.
            LlmgwError: why the node is not connected now.
        """
        link = self._links.get(node)
        if link is None:
            names = ", ".join(self._links)
            raise UsageError(
                f"there is no node {node}", f"the nodes are {names}", "name one of them"
            )
        return link.client

    def retry_now(self, node: str) -> None:
        """Let a node that waits for its next try be tried at once."""
        link = self._links.get(node)
        if link is not None:
            link.retry_now()

    def _note_change(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _get_bundle(self) -> Bundle:
        if self._bundle is None:
            raise RuntimeError("the fleet was not entered")
        return await asyncio.shield(self._bundle)

    async def _load(self) -> Bundle:
        """The agent's archive. It and asyncssh take a while; a screen that is drawn meanwhile must not stand still."""
        if self._connect is default_transport and any(
            target.address and target.transport != "openssh" for target in self.targets
        ):
            await asyncio.to_thread(importlib.import_module, _SSH_MODULE)
        return await asyncio.to_thread(build_bundle)


def _or_late(link: NodeLink, timeout_s: float) -> NodeView:
    if link.has_outcome.is_set():
        return link.view
    fault = NodeFault(
        ConnectTimeout.code,
        f"it has not answered within {timeout_s:g} s",
        "wait longer, or look at it with ssh -v",
    )
    node = replace(link.view.node, reachable=False, error=fault)
    return replace(link.view, node=node, contact=Contact.CONNECTING)
