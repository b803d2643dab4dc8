"""Whether the ranks of a launch reach one another by TCP, both ways, at the addresses that the plan gives them.

Each node listens where its rank would, on a port that the kernel picks, as NCCL and Gloo do; the others connect from where
theirs would. What a firewall lets through to port 22 says nothing of that.
"""

import asyncio
import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.reach import FabricConnection, FabricListener
from llmgw_core.errors import LlmgwError
from llmgw_core.planning.interfaces import ChosenInterface

CODE = "tcp-reach"
ALL_PAIRS_UP_TO = 8  # nodes; above, every node and the first one, and a ring
CALLERS_PER_LISTENER = 6  # a listener looks at 8, strangers included
FRESH_S = 2.0  # a listener ends after 5 s
BUSY_PAUSE_S = 0.5
MAX_CALLS = 8  # of one node at a time: its agent does no more at once
TRY_TIMEOUT_S = 30.0
MOST_TOLD = 16
_FIX = (
    "open all TCP ports among the nodes (firewall, security group): ranks meet on ports that the "
    "kernel picks; or name another address by cluster_address in cluster.toml"
)


class Prober(Protocol):
    """What an agent's client does here."""

    async def fabric_listen(
        self, token: str, address: str | None, netdev: str | None
    ) -> FabricListener:
        """Wait for connections on an address."""
        ...

    async def fabric_connect(
        self, token: str, peer: str, port: int, address: str | None, netdev: str | None
    ) -> FabricConnection:
        """Connect from an address."""
        ...


@dataclass(frozen=True)
class PeerTry:
    """One direction between two nodes."""

    caller: str
    listener: str
    connected: bool | None  # None: it could not be tried
    detail: str = ""


async def probe_peers(
    clients: Mapping[str, Prober], chosen: Mapping[str, ChosenInterface]
) -> tuple[PeerTry, ...]:
    """Every direction that was tried, in the order of `list_directions`. Few nodes take at most some 10 s.

    Args:
        clients: of every node in `chosen`.
        chosen: where each node's ranks meet the others, the first rank's node first.
    """
    calls = {name: asyncio.Semaphore(MAX_CALLS) for name in chosen}
    doors = {name: _Door(clients[name], chosen[name].address) for name in chosen}

    async def call(caller: str, listener: str) -> PeerTry:
        # The caller's turn first: a listener does not wait long.
        async with calls[caller]:
            try:
                async with asyncio.timeout(TRY_TIMEOUT_S):
                    token, port = await doors[listener].enter()
                    if port is None:
                        why = f"{listener} cannot listen there: {token}"
                        return PeerTry(caller, listener, False, why)
                    came = await clients[caller].fabric_connect(
                        token, chosen[listener].address, port, chosen[caller].address, None
                    )
            except (LlmgwError, TimeoutError) as error:
                return PeerTry(caller, listener, None, _explain(error))
        if came.connected:
            return PeerTry(caller, listener, True, f"{came.milliseconds} ms")
        return PeerTry(caller, listener, False, describe_refusal(came.error))

    return tuple(await asyncio.gather(*(call(*way) for way in list_directions(tuple(chosen)))))


class _Door:
    """Where one node listens now: a port serves a few callers for a few seconds, then there is another."""

    def __init__(self, client: Prober, address: str) -> None:
        self._client = client
        self._address = address
        self._turn = asyncio.Lock()
        self._token = ""
        self._port: int | None = None
        self._opened_at = float("-inf")
        self._callers = 0

    async def enter(self) -> tuple[str, int | None]:
        """(token, port) to call now; (errno's name, None) when the node cannot listen there."""
        async with self._turn:
            now = asyncio.get_running_loop().time()
            is_fresh = self._port is not None and now - self._opened_at < FRESH_S
            if is_fresh and self._callers < CALLERS_PER_LISTENER:
                self._callers += 1
                return self._token, self._port
            self._token = secrets.token_hex(16)
            heard = await self._client.fabric_listen(self._token, self._address, None)
            while heard.error == "EMFILE":  # as many as the agent keeps: they end after seconds
                await asyncio.sleep(BUSY_PAUSE_S)
                heard = await self._client.fabric_listen(self._token, self._address, None)
            self._port, self._callers = heard.port, 1
            self._opened_at = asyncio.get_running_loop().time()
            return (self._token, heard.port) if heard.port is not None else (f"{heard.error}", None)


def list_directions(nodes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(who calls, who listens): all pairs both ways of few nodes; of many a star around the first, and a ring."""
    if len(nodes) <= ALL_PAIRS_UP_TO:
        return tuple((one, other) for one in nodes for other in nodes if one != other)
    pairs = [(nodes[0], other) for other in nodes[1:]]
    pairs += list(itertools.pairwise(nodes[1:]))
    return tuple(dict.fromkeys(way for one, other in pairs for way in ((one, other), (other, one))))


def judge_tries(
    tries: Iterable[PeerTry], chosen: Mapping[str, ChosenInterface]
) -> tuple[Finding, ...]:
    """An error for each direction that did not connect, a warning for what could not be tried."""
    failed = [item for item in tries if not item.connected]
    findings = [_tell(item, chosen) for item in failed[:MOST_TOLD]]
    if len(failed) > MOST_TOLD:
        what = f"{len(failed) - MOST_TOLD} more directions between nodes did not connect"
        findings.append(Finding(CODE, Severity.ERROR, "TCP", what, _FIX))
    return tuple(findings)


def _tell(item: PeerTry, chosen: Mapping[str, ChosenInterface]) -> Finding:
    subject = f"{item.caller} → {item.listener}"
    here, there = chosen[item.caller], chosen[item.listener]
    if item.connected is None:
        what = f"could not be tried: {item.detail}"
        return Finding(CODE, Severity.WARNING, subject, what, "try again", item.listener)
    what = (
        f"no TCP connection from {here.address} ({here.interface}) to {there.address} "
        f"({there.interface}): {item.detail}"
    )
    return Finding(CODE, Severity.ERROR, subject, what, _FIX, item.listener)


def describe_refusal(error: str | None) -> str:
    """What the errno's name means among nodes of a launch."""
    means = {
        "ETIMEDOUT": "nobody answered: a firewall drops it, or it is another network",
        "ECONNREFUSED": "refused: a firewall, or another machine has that address",
        "ECONNRESET": "reset: a firewall",
        "ECONNABORTED": "aborted: a firewall",
        "EHOSTUNREACH": "no way to it: another network, or a firewall",
        "ENETUNREACH": "no route to its network",
        "EACCES": "this node's own firewall forbids it",
        "EPERM": "this node's own firewall forbids it",
        "EADDRNOTAVAIL": "the address to call from is no longer this node's",
        "wrong-peer": "another machine answers at that address",
    }
    return f"{error}, {means[error]}" if error in means else f"{error}"


def _explain(error: Exception) -> str:
    return error.message if isinstance(error, LlmgwError) else f"no answer in {TRY_TIMEOUT_S:g} s"
