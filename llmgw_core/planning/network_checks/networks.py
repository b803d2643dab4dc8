"""IP networks of RoCE ports: rails, rings, two adapters in one network, unequal MTUs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network

from llmgw_core.domain.fabric import (
    ASSUMED_IPV4_PREFIX,
    OTHER_FABRIC,
    OTHER_NETWORK,
    ipv4_of,
    roce_mtu_bytes,
)
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.planning.fabric_verdicts import label
from llmgw_core.planning.network_checks.situation import Side, Situation, join, tell

CODE = "roce-subnet"
_WEAK_MTU = 1024  # of verbs, at a netdev's 1500
_MINDS_MTU = (2, 20)  # NCCL took the smaller one before
_MAX_PREFIX = 32
_ROUTED = (31, 32)

Networks = Mapping[IPv4Network, list[Port]]


def check_subnets(case: Situation) -> Iterator[Finding]:
    """Which ports reach which others is a question of IP networks on RoCE."""
    if not case.wants_rdma:
        return
    placed = {side.name: _place(side, side.candidates) for side in case.sides}
    for side in case.sides:
        yield from _tell_shared(side, placed[side.name])
    yield from _tell_unused(case.sides)
    own = [set(networks) for networks in placed.values()]
    if case.kind is PortKind.INFINIBAND or not own or not all(own):
        return
    common = set.intersection(*own)
    if len(case.sides) > 1 and not common:
        yield _tell_uncommon(case, placed)
    elif all(len(networks) > 1 for networks in own):
        count = len(set.union(*own))
        what = f"each adapter is in a network of its own ({count}): rails; whether they are joined is not known"
        is_told = all("NCCL_CROSS_NIC" in side.env for side in case.sides)
        fix = "" if is_told else "NCCL_CROSS_NIC=0 keeps to them; llmgw fabric --probe tells"
        yield tell(CODE, Severity.WARNING, None, "RoCE networks", what, fix)


def _place(side: Side, ports: Sequence[Port]) -> dict[IPv4Network, list[Port]]:
    """The ports by their IPv4 network."""
    found: dict[IPv4Network, list[Port]] = {}
    for port in ports:
        network = find_network(side, port)
        if network is not None:
            found.setdefault(network, []).append(port)
    return found


def find_network(side: Side, port: Port) -> IPv4Network | None:
    """The IPv4 network of a RoCE port, by its netdev; else by a prefix of 24."""
    number = ipv4_of(port.gid) if port.kind is PortKind.ROCE else None
    if number is None:
        return None
    address = str(IPv4Address(number))
    for item in side.list_interfaces():
        for one in item.addresses:
            if one.address == address and 0 <= one.prefix <= _MAX_PREFIX:
                return IPv4Network((number, one.prefix), strict=False)
    return IPv4Network((number, ASSUMED_IPV4_PREFIX), strict=False)


def _tell_shared(side: Side, networks: Networks) -> Iterator[Finding]:
    """Two netdevs in one network answer for each other, unless arp_ignore forbids it."""
    interfaces = {item.name: item for item in side.list_interfaces()}
    for network, ports in networks.items():
        names = sorted({port.netdev for port in ports if port.netdev})
        open_ = [name for name in names if (item := interfaces.get(name)) and item.arp_ignore == 0]
        if len(names) > 1 and open_:
            what = f"{join(names)} share {network} with arp_ignore 0: traffic may leave by the wrong one"
            fix = "give each a network of its own, or set net.ipv4.conf.all.arp_ignore=1 and arp_announce=2"
            yield tell(CODE, Severity.WARNING, side, "RoCE", what, fix)


def _tell_unused(sides: Sequence[Side]) -> Iterator[Finding]:
    """A network that nodes seem to share and the launch does not use may be other cables on each."""
    if len(sides) <= 1:
        return
    spare: list[set[IPv4Network]] = []
    for side in sides:
        left = [
            port
            for port in side.ports
            if port.excluded is not None and port.excluded.code in (OTHER_NETWORK, OTHER_FABRIC)
        ]
        spare.append(set(_place(side, left)))
    for network in sorted(set.intersection(*spare)):
        what = f"{network} is on every node too and is not used: it may be other cables on each"
        fix = "if it is one fabric, name it in cluster.toml; if not, nothing is to do"
        yield tell(CODE, Severity.WARNING, None, "RoCE networks", what, fix)


def _tell_uncommon(case: Situation, placed: Mapping[str, Networks]) -> Finding:
    told = join([f"{name} {'+'.join(map(str, own))}" for name, own in placed.items()])
    lengths = {network.prefixlen for own in placed.values() for network in own}
    if lengths <= set(_ROUTED):
        what = f"each port is in a network of its own ({told}), as routed fabrics have it: it disproves nothing"
        return tell(
            CODE, Severity.INFO, None, "RoCE networks", what, "llmgw fabric --probe settles it"
        )
    pairs = [set(own) for own in placed.values()]
    is_ring = len(pairs) > 2 and all(  # noqa: PLR2004 - two nodes are a cable, three a ring
        pairs[number] & pairs[number - 1] for number in range(len(pairs))
    )
    if is_ring:
        what = f"no network is common to all nodes: cables in a ring ({told})"
        fix = "NCCL_IB_SUBNET_AWARE_ROUTING=1 and NCCL_IB_MERGE_NICS=0, from NCCL 2.30 on"
        if case.is_nccl_before(2, 30):
            fix = "use NCCL 2.30 or newer, or ask for plain TCP by name"
            return tell(CODE, Severity.ERROR, None, "RoCE networks", what, fix)
    else:
        what, fix = f"no network is common to all nodes ({told})", "llmgw fabric --probe"
    return tell(CODE, Severity.WARNING, None, "RoCE networks", what, fix)


def check_mtu(case: Situation) -> Iterator[Finding]:
    """Verbs MTUs of one connection have to be equal; a small one costs some percent."""
    if not case.wants_rdma:
        return
    found: dict[int, list[str]] = {}
    for side in case.sides:
        for port in side.chosen:
            mtu = port.mtu_bytes or _mtu_of(side, port)
            if port.kind is PortKind.ROCE and mtu is not None:
                found.setdefault(mtu, []).append(f"{side.name} {label(port)}")
    if len(found) > 1:
        told = "; ".join(f"{mtu}: {join(ports)}" for mtu, ports in sorted(found.items()))
        what = f"the ports' MTUs, as verbs count them, differ ({told})"
        fix = "set one MTU on all netdevs of the fabric, and on its switches"
        is_fatal = not case.is_nccl_before(*_MINDS_MTU)
        severity = Severity.ERROR if is_fatal else Severity.WARNING
        yield tell("mtu", severity, None, "MTU", what, fix)
    elif found and min(found) <= _WEAK_MTU:
        what = f"the netdevs' MTU leaves {min(found)} bytes to verbs; 4200 or more gives 4096"
        yield tell("mtu", Severity.INFO, None, "MTU", what, "costs some percent of throughput")


def _mtu_of(side: Side, port: Port) -> int | None:
    """Verbs' MTU at the netdev: the largest power of two that fits beside the headers."""
    mtu = next((i.mtu_bytes for i in side.list_interfaces() if i.name == port.netdev), None)
    return roce_mtu_bytes(mtu)
