"""By which interface the ranks of a launch meet, on each node. Pure.

Left alone, NCCL takes the first interface that is not called docker or lo, torch takes what the host name resolves to,
and vLLM what the default route leaves by: on a node with several networks these are three answers.

Source: NCCL src/misc/socket.cc; pytorch/gloo gloo/transport/tcp/device.cc; vllm/utils get_ip.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmgw_core.domain import network as net
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.network import Interface, NodeNetwork
from llmgw_core.domain.units import natural_key

CODE = "boot-interface"
_GOOD = (net.PHYSICAL, net.BOND, net.VLAN, net.IPOIB)
_FIX = "name it in cluster.toml: cluster_address = IP, or interface = NAME, for each node"
_MOST_TOLD = 6

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class InterfaceHint:
    """What is known of a node's place in the network apart from its own facts."""

    cluster_address: str | None = None  # the operator's word
    interface: str | None = None  # the operator's word
    ssh_address: str | None = (
        None  # by which it is reached; a name that is no address tells nothing
    )


@dataclass(frozen=True)
class ChosenInterface:
    """Where the ranks of one node meet the others."""

    interface: str
    address: str
    reason: str


@dataclass(frozen=True)
class InterfaceChoice:
    """The interface of each node, of all or of none, and what there is to say."""

    chosen: Mapping[str, ChosenInterface]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class _Candidate:
    """An address that peers could come to."""

    interface: Interface
    address: IPAddress
    network: IPNetwork

    @property
    def rank(self) -> int:
        """0: a network of the node; 2: of containers, virtual machines or a tunnel."""
        is_way_out = self.interface.default_route and self.interface.kind != net.TUNNEL
        if self.interface.kind in _GOOD or is_way_out:
            return 0
        return 2 if self.interface.kind in (net.BRIDGE, net.TUNNEL) else 1


def choose_interfaces(
    facts: Mapping[str, NodeNetwork | None], hints: Mapping[str, InterfaceHint]
) -> InterfaceChoice:
    """One interface and address for each node, so that all reach one another as far as their own facts tell.

    First the operator's word; then a network that all nodes have an address in, best one that holds the addresses
    they are reached by; then what their default routes leave by.

    Args:
        facts: by node; None: the node did not tell.
    """
    if len(facts) <= 1:
        return InterfaceChoice({})
    found: dict[str, _Candidate] = {}
    told: dict[str, str] = {}
    errors: list[Finding] = []
    candidates = {name: list_candidates(network) for name, network in facts.items()}
    for name, network in facts.items():
        hint = hints.get(name, InterfaceHint())
        if network is None or network.interfaces is None:
            errors.append(_tell_unknown(name, network))
        elif hint.cluster_address or hint.interface:
            word = _take_word(name, hint, candidates[name])
            if isinstance(word, Finding):
                errors.append(word)
            else:
                found[name], told[name] = word, "cluster.toml says so"
    if errors:
        return InterfaceChoice({}, tuple(errors))
    held = {name: _find_held(hints.get(name), facts[name], candidates[name]) for name in facts}
    open_ = [name for name in facts if name not in found]
    if open_:
        more, reason = _choose_together(facts, open_, candidates, found, held)
        found.update(more)
        told.update(dict.fromkeys(more, reason))
    lost = [name for name in facts if name not in found]
    if lost:
        return InterfaceChoice({}, tuple(_tell_lost(name, candidates[name]) for name in lost))
    chosen = {
        name: ChosenInterface(item.interface.name, str(item.address), told[name])
        for name, item in found.items()
    }
    return InterfaceChoice(chosen, tuple(_review(facts, found)))


def list_candidates(network: NodeNetwork | None) -> list["_Candidate"]:
    """The addresses of the node's running interfaces that others could come to."""
    found = []
    for item in (network.interfaces if network else None) or ():
        if not (item.up and item.running) or item.kind == net.LOOPBACK:
            continue
        for one in item.addresses:
            try:
                interface = ipaddress.ip_interface(f"{one.address}/{one.prefix}")
            except ValueError:
                continue  # a node may say anything
            ip = interface.ip
            if not (ip.is_link_local or ip.is_loopback or ip.is_unspecified or ip.is_multicast):
                found.append(_Candidate(item, ip, interface.network))
    return found


def _take_word(
    name: str, hint: InterfaceHint, candidates: Sequence[_Candidate]
) -> _Candidate | Finding:
    fitting = [
        item
        for item in candidates
        if hint.interface in (None, item.interface.name)
        and hint.cluster_address in (None, str(item.address))
    ]
    if fitting:
        return min(fitting, key=lambda item: item.address.version)
    wanted = " with ".join(filter(None, (hint.interface, hint.cluster_address)))
    what = f"cluster.toml gives it {wanted}, and no running interface there has that"
    has = _list(candidates) or "no address that others could come to"
    return Finding(CODE, Severity.ERROR, f"{name} network", f"{what}; it has {has}", _FIX, name)


def _choose_together(
    facts: Mapping[str, NodeNetwork | None],
    names: Sequence[str],
    candidates: Mapping[str, Sequence[_Candidate]],
    fixed: Mapping[str, _Candidate],
    held: Mapping[str, _Candidate | None],
) -> tuple[dict[str, _Candidate], str]:
    """A choice for those whom the operator did not name: complete, or empty for the lost ones; and its reason."""
    common = _find_common(names, candidates, fixed)
    if common:
        network = min(common, key=lambda one: _rank_network(one, common[one], held))
        return common[network], f"{network} is common to all nodes"
    addressed = [candidates[name] for name in facts if candidates[name]]
    version = 4 if all(any(map(_is_v4, own)) for own in addressed) else 6
    if fixed:
        version = next(iter(fixed.values())).address.version
    found = {}
    for name in names:
        able = [item for item in candidates[name] if item.address.version == version]
        ways = [item for item in able if item == held[name]]
        ways = ways or [item for item in able if item.interface.default_route]
        ways = ways or _find_routed(name, facts, able, candidates)
        ways = ways or (able if len(able) == 1 else [])
        if ways:
            found[name] = ways[0]
    return found, "no network is common to all nodes: its way out, by routes"


def _find_routed(
    name: str,
    facts: Mapping[str, NodeNetwork | None],
    able: Sequence[_Candidate],
    candidates: Mapping[str, Sequence[_Candidate]],
) -> list[_Candidate]:
    """Those whose interface the kernel sends packets by to an address of every other node."""
    network = facts[name]
    routes = (network.routes if network else None) or ()
    found = []
    for item in able:
        reached = [
            ipaddress.ip_network(route.destination, strict=False)
            for route in routes
            if route.interface == item.interface.name and is_network(route.destination)
        ]
        if all(
            any(peer.address in area for peer in candidates[other] for area in reached)
            for other in facts
            if other != name
        ):
            found.append(item)
    return found


def is_network(text: str) -> bool:
    """Whether a node's word for a network can be read as one."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _find_common(
    names: Sequence[str],
    candidates: Mapping[str, Sequence[_Candidate]],
    fixed: Mapping[str, _Candidate],
) -> dict[IPNetwork, dict[str, _Candidate]]:
    """The networks in which each node has an address of its own. Bridges of containers have the same one everywhere."""
    found: dict[IPNetwork, dict[str, _Candidate]] = {}
    for name in names:
        for item in sorted(candidates[name], key=lambda item: item.rank):
            found.setdefault(item.network, {}).setdefault(name, item)
    complete = {}
    for network, members in found.items():
        others = [str(item.address) for item in fixed.values()]
        addresses = [str(item.address) for item in members.values()] + others
        is_joined = all(item.address in network for item in fixed.values())
        if len(members) == len(names) and len(set(addresses)) == len(addresses) and is_joined:
            complete[network] = members
    return complete


def _rank_network(
    network: IPNetwork,
    members: Mapping[str, _Candidate],
    held: Mapping[str, _Candidate | None],
) -> tuple[object, ...]:
    """Sorts the better network first."""
    items = members.values()
    return (
        max(item.rank for item in items),
        -sum(item is not None and item.address in network for item in held.values()),
        -sum(item.interface.default_route for item in items),
        network.version,
        natural_key(str(network)),
    )


def _find_held(
    hint: InterfaceHint | None, network: NodeNetwork | None, candidates: Sequence[_Candidate]
) -> _Candidate | None:
    """The address by which the operator comes to the node, where it is the node's own."""
    known = (hint.ssh_address if hint else None, network.ssh_address if network else None)
    return next((item for item in candidates if str(item.address) in known), None)


def _is_v4(item: _Candidate) -> bool:
    return item.address.version == 4  # noqa: PLR2004 - of IP


def _tell_unknown(name: str, network: NodeNetwork | None) -> Finding:
    why = "its agent is of an earlier version" if network is None else ", ".join(network.unread)
    what = f"its interfaces are not known: {why}"
    return Finding(CODE, Severity.ERROR, f"{name} network", what, "connect anew", name)


def _tell_lost(name: str, candidates: Sequence[_Candidate]) -> Finding:
    what = "no interface leads to the other nodes as far as can be told"
    has = _list(candidates) or "no address that others could come to"
    return Finding(CODE, Severity.ERROR, f"{name} network", f"{what}; it has {has}", _FIX, name)


def _list(candidates: Sequence[_Candidate]) -> str:
    told = [f"{item.interface.name} {item.address}" for item in candidates[:_MOST_TOLD]]
    more = len(candidates) - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def _review(
    facts: Mapping[str, NodeNetwork | None], found: Mapping[str, _Candidate]
) -> list[Finding]:
    """What to know of a choice that stands."""
    findings: list[Finding] = []

    def tell(severity: Severity, name: str, what: str, fix: str = "") -> None:
        findings.append(Finding(CODE, severity, f"{name} network", what, fix, name))

    for name, item in found.items():
        network = facts[name]
        interfaces = (network.interfaces if network else None) or ()
        chosen = item.interface.name
        same = [
            other.name
            for other in interfaces
            if any(one.address == str(item.address) for one in other.addresses)
        ]
        if len(same) > 1:
            what = f"{item.address} is on {' and '.join(same)}: answers may leave by another than {chosen}"
            tell(Severity.WARNING, name, what, "give each interface an address of its own")
        if not _is_v4(item):
            what = f"{chosen} is reached by IPv6 alone: NCCL is told so, other programs may not be"
            tell(Severity.WARNING, name, what, "give the nodes a common IPv4 network")
        ways = [other.name for other in interfaces if other.default_route]
        if ways and chosen not in ways:
            what = (
                f"the default route leaves by {ways[0]}, the ranks meet on {chosen} "
                f"({item.address}): what guesses by itself will be wrong"
            )
            tell(Severity.WARNING, name, what, "check that both are meant")
        alone = guess_as_nccl(interfaces)
        if alone not in (None, chosen, *ways):
            what = f"left alone NCCL would take {alone}; {chosen} is what leads to the other nodes"
            tell(Severity.INFO, name, what)
    return findings


def guess_as_nccl(interfaces: Sequence[Interface]) -> str | None:
    """The interface that NCCL would take without being told; None: none."""
    able = [item.name for item in interfaces if item.running and item.addresses]
    groups = (
        [name for name in able if name.startswith("ib")],
        [name for name in able if not name.startswith(("docker", "lo", "virbr"))],
        [name for name in able if name.startswith("docker")],
    )
    return next((group[0] for group in groups if group), None)
