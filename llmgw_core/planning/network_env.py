"""What each node of a launch over several nodes must tell NCCL, and why. Pure.

A rank that picks another adapter than its peers does not fail: it hangs. So the list is computed for each node from its
own ports of the fabric that all nodes share, and a list that cannot be used ends the launch instead of falling back
to TCP in silence.

Source: NCCL docs/env.rst; src/transport/net_ib/connect.cc (GID, partition key), src/misc/socket.cc.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmgw_core.domain.fabric import ipv4_of
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Fabric, Node
from llmgw_core.planning.fabric_verdicts import label
from llmgw_core.planning.hca_filter import MAX_ENTRIES, format_hca_filter
from llmgw_core.planning.partitions import find_pkey_indices

CHOOSES_GID_ITSELF = (2, 21)  # NCCL from this version on finds the right GID index


@dataclass(frozen=True)
class Setting:
    """One variable of one node's ranks."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class NetworkEnv:
    """What to set on each node, and what speaks against it."""

    fabric: str | None  # None: TCP, or one node alone
    settings: Mapping[str, tuple[Setting, ...]]  # by node
    findings: tuple[Finding, ...] = ()


def plan_network_env(
    nodes: Sequence[Node],
    fabrics: Sequence[Fabric],
    nccl: tuple[int, ...] | None = None,
    *,
    wants_tcp: bool = False,
    fabric: str | None = None,
) -> NetworkEnv:
    """The variables of every node's ranks.

    Args:
        nodes: those of the launch, with `port.fabric` filled in.
        fabrics: of the inventory; a fabric of several networks has one for each rail.
        nccl: the version on the nodes; None: unknown, taken for one that finds GIDs itself.
        wants_tcp: the operator asked for plain TCP.
        fabric: the one to use; None: the best that all share.
    """
    if len(nodes) <= 1:
        return NetworkEnv(None, {node.name: () for node in nodes})
    fabric = None if wants_tcp else fabric or find_common_fabric(nodes)
    if fabric is None:
        told = () if wants_tcp else (_tell_no_common(nodes),)
        return NetworkEnv(None, {node.name: _TCP for node in nodes}, told)
    chosen = {node.name: list_fabric_ports(node, fabric) for node in nodes}
    settings: dict[str, tuple[Setting, ...]] = {}
    findings = [*_check_counts(chosen)]
    rails = next((item.networks for item in fabrics if item.id == fabric), ())
    for name, ports in chosen.items():
        more, found = _choose_addressing(name, ports, chosen, nccl)
        settings[name] = (*_choose_adapters(ports, fabric), *more, *_choose_rails(rails))
        findings += found
    return NetworkEnv(fabric, settings, tuple(findings))


def find_common_fabric(nodes: Sequence[Node]) -> str | None:
    """The fabric that every node has usable ports of; of several the one whose slowest node carries most."""
    shared = set.intersection(*({port.fabric for port in _usable(node)} for node in nodes))
    names = sorted(name for name in shared if name is not None)
    return max(names, key=lambda name: min(_carried(node, name) for node in nodes), default=None)


def list_fabric_ports(node: Node, fabric: str) -> tuple[Port, ...]:
    """The node's ports that engines use on that fabric."""
    return tuple(port for port in _usable(node) if port.fabric == fabric)


def _usable(node: Node) -> list[Port]:
    return [port for port in node.ports if port.usable and port.excluded is None]


def _carried(node: Node, fabric: str) -> float:
    return sum(port.rate_gbps or 0.0 for port in list_fabric_ports(node, fabric))


_TCP = (
    Setting("NCCL_IB_DISABLE", "1", "no node may use adapters that its peers cannot reach"),
    Setting("NCCL_NET", "Socket", "plain TCP on every node alike"),
)


def _choose_adapters(ports: Sequence[Port], fabric: str) -> tuple[Setting, ...]:
    count = len(ports)
    return (
        Setting(
            "NCCL_IB_HCA",
            format_hca_filter(ports),
            f"exactly this node's {count} usable port{'s' * (count > 1)} of {fabric}; without = names are prefixes",
        ),
        Setting("NCCL_NET", "IB", "a list that cannot be used fails at once: no silent TCP"),
        Setting(
            "NCCL_IGNORE_NET_MISMATCH", "0", "ranks with unequal adapters fail and do not hang"
        ),
    )


def _choose_addressing(
    name: str,
    ports: Sequence[Port],
    chosen: Mapping[str, Sequence[Port]],
    nccl: tuple[int, ...] | None,
) -> tuple[tuple[Setting, ...], tuple[Finding, ...]]:
    if ports[0].kind is PortKind.INFINIBAND:
        return _choose_pkey(name, chosen)
    family, findings = _choose_family(name, ports)
    if nccl is None or nccl[: len(CHOOSES_GID_ITSELF)] >= CHOOSES_GID_ITSELF:
        return family, findings
    indices = {port.gid_index for port in ports}
    index = indices.pop() if len(indices) == 1 else None
    version = ".".join(str(part) for part in nccl)
    if index is None:
        seen = ", ".join(f"{label(port)} at {port.gid_index}" for port in ports)
        finding = Finding(
            "gid-index-differs",
            Severity.ERROR,
            f"{name} RoCE",
            f"NCCL {version} takes one GID index for all ports, and they differ: {seen}",
            "use NCCL 2.21 or newer, which finds each by itself, or leave ports out by exclude_ports in cluster.toml",
            name,
        )
        return family, (*findings, finding)
    why = f"NCCL {version} would take index 0; the routable RoCE v2 address is at {index}"
    return (*family, Setting("NCCL_IB_GID_INDEX", str(index), why)), findings


def _choose_family(
    name: str, ports: Sequence[Port]
) -> tuple[tuple[Setting, ...], tuple[Finding, ...]]:
    is_v4 = {ipv4_of(port.gid) is not None for port in ports}
    if is_v4 == {False}:
        why = "the ports have IPv6 addresses alone, and NCCL looks for IPv4 unless told"
        return (Setting("NCCL_IB_ADDR_FAMILY", "AF_INET6", why),), ()
    if is_v4 == {True}:
        return (), ()
    what = "some of its RoCE ports have an IPv4 address and some IPv6 alone: NCCL takes one family for all"
    fix = "give every port an address of one family, or leave the others out by exclude_ports in cluster.toml"
    return (), (Finding("gid-family-mixed", Severity.ERROR, f"{name} RoCE", what, fix, name),)


def _choose_pkey(
    name: str, chosen: Mapping[str, Sequence[Port]]
) -> tuple[tuple[Setting, ...], tuple[Finding, ...]]:
    """NCCL takes the key at index 0 unless told."""
    indices = find_pkey_indices(chosen)
    if indices is None:
        what = "no partition joins all nodes: each needs its key at one index, at most one node as a limited member"
        fix = "ask who runs the subnet manager for a shared partition with full membership"
        return (), (Finding("pkey", Severity.ERROR, f"{name} InfiniBand", what, fix, name),)
    index = indices[name]
    why = (
        "the key at index 0 is not of a partition in which all nodes hear one another; this one is"
    )
    return (Setting("NCCL_IB_PKEY", str(index), why),) if index else (), ()


def _choose_rails(networks: Sequence[str]) -> tuple[Setting, ...]:
    if len(networks) <= 1:
        return ()
    why = f"{len(networks)} networks, one for each rail: nothing says that they reach one another"
    return (Setting("NCCL_CROSS_NIC", "0", why),)


def _check_counts(chosen: Mapping[str, Sequence[Port]]) -> list[Finding]:
    counts = {name: len(ports) for name, ports in chosen.items()}
    findings = [
        Finding(
            "too-many-adapters",
            Severity.ERROR,
            f"{name} adapters",
            f"{count} ports, and NCCL reads {MAX_ENTRIES} of the list",
            "leave some out by exclude_ports in cluster.toml",
            name,
        )
        for name, count in counts.items()
        if count > MAX_ENTRIES
    ]
    if len(set(counts.values())) > 1:
        seen = ", ".join(f"{name} {count}" for name, count in counts.items())
        what = f"the nodes have unequal numbers of usable ports: {seen}"
        fix = "repair the missing ones; with NCCL_IGNORE_NET_MISMATCH=0 the launch would fail, not hang"
        findings.append(Finding("adapter-count", Severity.ERROR, "adapters", what, fix))
    return findings


def _tell_no_common(nodes: Sequence[Node]) -> Finding:
    has = [
        f"{node.name}: {', '.join(sorted({port.fabric or '?' for port in _usable(node)})) or 'none'}"
        for node in nodes
    ]
    what = f"no fabric is common to all nodes ({'; '.join(has)})"
    fix = "choose nodes of one island, or ask for plain TCP by name"
    return Finding("no-common-fabric", Severity.ERROR, "fabric", what, fix)
