"""Jump hosts that nodes share: one connection to each, for as long as somebody needs it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from llmgw_core.errors import ConfigError, ConnectTimeout, LlmgwError
from llmgw_core.fleet.ssh_config import Destination, parse_jump

JUMP_TIMEOUT_S = 30.0
Hops = tuple[Destination, ...]


class Hop(Protocol):
    """A connection to a jump host."""

    def is_closed(self) -> bool:
        """Whether it is of no more use."""

    async def close(self) -> None:
        """End it within some seconds."""


C = TypeVar("C", bound=Hop)


class SharedHops(ABC, Generic[C]):
    """Connections to jump hosts, one for all the nodes behind it.

    One login per node would run into the jump host's MaxStartups, which drops logins at random.
    """

    def __init__(self) -> None:
        self._tunnels: dict[Hops, _Tunnel[C]] = {}

    @asynccontextmanager
    async def lease(
        self, node: str, hops: Hops, environ: Mapping[str, str], behind: Hops
    ) -> AsyncIterator[C]:
        """The connection to the last of `hops`; closed when the last node has given it back.

        Raises:
            LlmgwError: what is wrong with the jump host, under the name of the node.
        """
        tunnel = self._tunnels.setdefault(hops, _Tunnel[C]())
        tunnel.users += 1
        try:
            yield await self._reach(tunnel, node, hops, environ, behind)
        finally:
            tunnel.users -= 1
            if tunnel.users == 0:
                self._tunnels.pop(hops, None)
                await tunnel.close()

    async def _reach(
        self,
        tunnel: "_Tunnel[C]",
        node: str,
        hops: Hops,
        environ: Mapping[str, str],
        behind: Hops,
    ) -> C:
        if tunnel.is_lost():
            tunnel.let_go()
            tunnel.dialling = asyncio.create_task(self.open_hop(hops, environ, behind))
        assert tunnel.dialling is not None  # noqa: S101 - for mypy
        try:
            # Shielded: that one node stops waiting must not take the jump host from the others.
            async with asyncio.timeout(JUMP_TIMEOUT_S):
                return await asyncio.shield(tunnel.dialling)
        except TimeoutError as error:
            raise ConnectTimeout(
                f"jump host {hops[-1].host} did not answer in {JUMP_TIMEOUT_S:.0f} s",
                "it, or one before it, is slow",
                f"try: ssh {hops[-1].host}",
                node,
            ) from error
        except LlmgwError as error:
            what = f"jump host {hops[-1].host}: {error.what}"
            raise type(error)(what, error.why, error.fix, node) from error

    @abstractmethod
    async def open_hop(self, hops: Hops, environ: Mapping[str, str], behind: Hops) -> C:
        """Return a connection to the last of `hops`, which goes by those before it.

        Raises:
            LlmgwError: what is wrong with it.
        """


@dataclass
class _Tunnel(Generic[C]):
    """One jump host: dialled once for all who wait for it, and again after it was lost."""

    users: int = 0
    dialling: "asyncio.Task[C] | None" = field(default=None)
    ending: set["asyncio.Task[None]"] = field(default_factory=set)

    def is_lost(self) -> bool:
        """True where there is nothing to wait for or to use."""
        task = self.dialling
        if task is None or not task.done():
            return task is None
        return task.cancelled() or task.exception() is not None or task.result().is_closed()

    def let_go(self) -> None:
        """Forget the connection that was lost; what is left of it here ends meanwhile."""
        task, self.dialling = self.dialling, None
        if task is not None:
            self.ending.add(ending := asyncio.create_task(_end(task)))
            ending.add_done_callback(self.ending.discard)

    async def close(self) -> None:
        self.let_go()
        await asyncio.gather(*self.ending)


async def _end(task: "asyncio.Task[C]") -> None:
    task.cancel()  # of no effect once it is done
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().close()


def find_hops(jump: str, behind: Hops, written: str, node: str) -> Hops:
    """Return the jump hosts on the way to `written`, first hop first.

    Args:
        behind: the jump hosts that wait for this way.

    Raises:
        ConfigError: a loop, or a value that cannot be read.
    """
    hops = parse_jump(jump)
    if hops[-1] in behind:
        raise ConfigError(
            f"the jump hosts on the way to {written} form a loop",
            f"{hops[-1].host} is to be reached through itself",
            "correct the ProxyJump lines of the ssh configuration",
            node,
        )
    return hops


def spell_hops(hops: Hops) -> str | None:
    """Return them as ProxyJump takes them; None where there is none."""
    return ",".join(_spell(hop) for hop in hops) or None


def _spell(hop: Destination) -> str:
    user = f"{hop.user}@" if hop.user else ""
    host = f"[{hop.host}]" if ":" in hop.host else hop.host
    return f"{user}{host}:{hop.port}" if hop.port else f"{user}{host}"
