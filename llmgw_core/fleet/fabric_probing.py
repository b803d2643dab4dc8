"""Settle whether two nodes are on one fabric: connect from ports of the one to ports of the other."""

import asyncio
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw_core.domain.fabric import ipv4_of
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.reach import FabricConnection, LinkProbe, PairVerdict, Reach
from llmgw_core.errors import LlmgwError, ProtocolError
from llmgw_core.fleet.client import AgentClient
from llmgw_core.planning.fabric_verdicts import label

MAX_LINKS = 8  # of one pair of nodes
MAX_PAIRS = 8  # at a time
NOT_INSTALLED = "not-installed"
# What another cable, another fabric or a firewall ends in. Other errors are of the node itself and tell nothing.
_NO_WAY = ("ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "ECONNREFUSED", "ECONNRESET", "wrong-peer")


@dataclass(frozen=True)
class Side:
    """One node of a pair."""

    client: AgentClient
    address: str | None  # where it is reached; None: it is this machine


async def probe_pairs(
    clients: Mapping[str, AgentClient], nodes: Sequence[Node], verdicts: Sequence[PairVerdict]
) -> tuple[tuple[PairVerdict, tuple[LinkProbe, ...]], ...]:
    """Each verdict with what was tried; those that are "possible" are settled where a try can."""
    by_name = {node.name: node for node in nodes}
    gate = asyncio.Semaphore(MAX_PAIRS)

    async def probe(verdict: PairVerdict) -> tuple[PairVerdict, tuple[LinkProbe, ...]]:
        first, second = verdict.nodes
        if verdict.verdict is not Reach.POSSIBLE or not {first, second} <= set(clients):
            return verdict, ()
        async with gate:
            links = choose_links(verdict, by_name[first], by_name[second])
            tried = [
                await _try_link(
                    Side(clients[first], by_name[first].address),
                    Side(clients[second], by_name[second].address),
                    ours,
                    theirs,
                )
                for ours, theirs in links
            ]
        return settle(verdict, tried), tuple(tried)

    return tuple(await asyncio.gather(*(probe(verdict) for verdict in verdicts)))


def choose_links(verdict: PairVerdict, first: Node, second: Node) -> tuple[tuple[Port, Port], ...]:
    """Pairs of ports to try: each port once."""
    ours = {label(port): port for port in first.ports}
    theirs = {label(port): port for port in second.ports}
    used: set[tuple[int, str]] = set()
    links = []
    for one, other in verdict.ports:
        if (0, one) in used or (1, other) in used or one not in ours or other not in theirs:
            continue
        used.update(((0, one), (1, other)))
        links.append((ours[one], theirs[other]))
    return tuple(links[:MAX_LINKS])


def settle(verdict: PairVerdict, tried: Sequence[LinkProbe]) -> PairVerdict:
    """The verdict after the tries: proven when all of them connected, different when none did."""
    known = [link for link in tried if link.connected is not None]
    passed = [link for link in known if link.connected]
    if not known:
        why = f"; {tried[0].detail}" if tried else ""
        return replace(verdict, reason=f"{verdict.reason}; no port could be tried{why}")
    if len(passed) == len(known):
        return replace(
            verdict,
            verdict=Reach.PROVEN,
            reason=f"a probe connected {len(passed)} of {len(known)} pairs of ports",
        )
    failed = next(link for link in known if not link.connected)
    example = f"{' to '.join(failed.ports)}: {failed.detail}"
    if passed:
        reason = f"a probe connected only {len(passed)} of {len(known)} pairs of ports; {example}"
        return replace(verdict, reason=reason)
    reason = f"a probe connected no pair of ports, {example}: another cable, or a firewall"
    return replace(verdict, verdict=Reach.DIFFERENT, reason=reason)


async def _try_link(caller: Side, listener: Side, ours: Port, theirs: Port) -> LinkProbe:
    """By RDMA where both sides can, else by TCP."""
    ports = (label(ours), label(theirs))
    try:
        rdma = await _ping(caller, listener, ours, theirs)
        if rdma is not None and rdma.connected:
            return LinkProbe(ports, True, f"by RDMA, ibv_rc_pingpong in {rdma.milliseconds} ms")
        tcp = await _connect(caller.client, listener.client, ours, theirs)
    except LlmgwError as error:
        return LinkProbe(ports, None, error.message)
    if rdma is None:
        is_open = tcp.connected is None
        more = "; ibv_rc_pingpong is not installed on both nodes" if is_open else ""
        return LinkProbe(ports, tcp.connected, f"{tcp.detail}{more}")
    # Where TCP passes, what the tool says may be about limits of this user as well as about the fabric.
    return LinkProbe(
        ports, None if tcp.connected else tcp.connected, f"TCP {tcp.detail}; {rdma.error}"
    )


async def _ping(caller: Side, listener: Side, ours: Port, theirs: Port) -> FabricConnection | None:
    """None where the tool is missing on either side, or no name of the listener is known to the caller."""
    peer = listener.address or ("127.0.0.1" if caller.address is None else None)
    if peer is None:
        return None
    try:
        heard = await listener.client.answer_pingpong(theirs.hca, theirs.port, _gid_index(theirs))
        if heard.port is None:
            return None
        came = await caller.client.call_pingpong(
            ours.hca, ours.port, _gid_index(ours), peer, heard.port
        )
    except ProtocolError:
        return None  # an agent of an earlier version
    return None if came.error == NOT_INSTALLED else came


def _gid_index(port: Port) -> int | None:
    return port.gid_index if port.kind is PortKind.ROCE else None


async def _connect(
    caller: AgentClient, listener: AgentClient, ours: Port, theirs: Port
) -> LinkProbe:
    token = secrets.token_hex(16)
    heard = await listener.fabric_listen(token, address_of(theirs), theirs.netdev)
    if heard.port is None or heard.address is None:
        detail = f"no address to listen on at {theirs.netdev or 'its netdev'}: {heard.error}"
        return LinkProbe((), None, detail)
    came = await caller.fabric_connect(
        token, heard.address, heard.port, address_of(ours), ours.netdev
    )
    if came.connected:
        how = f"by {ours.netdev} alone" if came.device_bound else "by the kernel's route"
        return LinkProbe((), True, f"{heard.address} in {came.milliseconds} ms, {how}")
    is_telling = came.error in _NO_WAY
    return LinkProbe((), False if is_telling else None, f"{heard.address} {came.error}")


def address_of(port: Port) -> str | None:
    """The IP address of a RoCE port, by its GID; None on InfiniBand, where the netdev has one or none."""
    if port.kind is not PortKind.ROCE or port.gid is None:
        return None
    ipv4 = ipv4_of(port.gid)
    return str(ipaddress.ip_address(port.gid) if ipv4 is None else ipaddress.IPv4Address(ipv4))
