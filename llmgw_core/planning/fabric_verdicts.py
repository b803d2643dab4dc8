"""Whether two nodes can be on one fabric, and why. Pure.

What sysfs says can disprove a common fabric and never prove one: every InfiniBand subnet comes with the same default
prefix, subnet managers sit on low LIDs, and private IP networks are reused on cables of their own.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from llmgw_core.domain.fabric import is_capable
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.reach import PairVerdict, Reach
from llmgw_core.domain.units import natural_key
from llmgw_core.planning.partitions import FULL_MEMBER, read_pkey

_PREFIX_CHARS = 19  # of a GID: four groups
_MAX_EXCLUDED_TOLD = 3
_MAX_LMC = 7  # of three bits; a node may claim anything
Ports: TypeAlias = tuple[Port, ...]


@dataclass(frozen=True)
class _Side:
    """One node of a pair, with all of it that a verdict looks at. Read once: pairs are many."""

    node: Node
    ports: Ports  # those that engines could use
    traits: Hashable  # equal for two nodes that stand alike to a third, but for `marks`
    marks: frozenset[object]  # what two nodes have in common only as a disproof, or as one machine


def _look_at(node: Node) -> _Side:
    ports = tuple(port for port in node.ports if is_capable(port))
    traits = tuple((port.kind, label(port), port.fabric, *_traits(port)) for port in ports)
    marks = {(subnet_of(port), lid) for port in ports for lid in lids_of(port)}
    guids = {(port.gid, port.node_guid) for port in ports if port.gid is not None}
    return _Side(node, ports, traits, frozenset(marks | guids))


# Of ports by their traits. Most nodes of a cluster are alike: a thousand make half a million pairs of a few kinds.
_Known: TypeAlias = dict[tuple[Hashable, Hashable], PairVerdict]


def judge_pairs(
    nodes: Sequence[Node],
    overrides: Mapping[str, str] | None = None,
    proven: Iterable[frozenset[str]] = (),
) -> tuple[PairVerdict, ...]:
    """Every pair of the nodes, in natural order.

    Args:
        overrides: the operator's fabric by node name.
        proven: pairs that a probe has connected.
    """
    sides = [_look_at(node) for node in sorted(nodes, key=lambda node: natural_key(node.name))]
    pairs = set(proven)
    known: _Known = {}
    return tuple(
        _judge_sides(one, other, overrides or {}, pairs, known)
        for number, one in enumerate(sides)
        for other in sides[number + 1 :]
    )


def judge_pair(
    one: Node,
    other: Node,
    overrides: Mapping[str, str] | None = None,
    *,
    is_proven: bool = False,
) -> PairVerdict:
    """What is known of two nodes. The operator's word wins, then a probe, then what the ports show."""
    proven = {frozenset((one.name, other.name))} if is_proven else set()
    return _judge_sides(_look_at(one), _look_at(other), overrides or {}, proven, {})


def _judge_sides(
    one: _Side,
    other: _Side,
    overrides: Mapping[str, str],
    proven: Collection[frozenset[str]],
    known: _Known,
) -> PairVerdict:
    names = (one.node.name, other.node.name)
    said = _judge_by_operator(names, overrides)
    if said is not None:
        return said
    bare = [side.node for side in (one, other) if not side.ports]
    lacking = [node for node in bare if not _is_unheard(node)]
    if lacking:
        return PairVerdict(names, Reach.DIFFERENT, _explain_lack(lacking[0]))
    if bare:
        reason = f"{bare[0].name} has not answered: its ports are not known"
        return PairVerdict(names, Reach.POSSIBLE, reason)
    found = _recall_by_ports(names, one, other, known)
    if found.verdict is Reach.POSSIBLE and proven and frozenset(names) in proven:
        return PairVerdict(
            names, Reach.PROVEN, "a probe connected their ports", found.fabric, found.ports
        )
    return found


def _recall_by_ports(
    names: tuple[str, str], one: _Side, other: _Side, known: _Known
) -> PairVerdict:
    """As `_judge_by_ports`, judged once for all pairs that stand alike."""
    if not one.marks.isdisjoint(other.marks):
        return _judge_by_ports(names, one.ports, other.ports)
    found = known.get((one.traits, other.traits))
    if found is not None:
        return PairVerdict(names, found.verdict, found.reason, found.fabric, found.ports)
    found = _judge_by_ports(names, one.ports, other.ports)
    if not {port.kind for port in one.ports}.isdisjoint(port.kind for port in other.ports):
        # Else its reason names the two.
        known[(one.traits, other.traits)] = found
    return found


def _judge_by_operator(names: tuple[str, str], overrides: Mapping[str, str]) -> PairVerdict | None:
    first, second = (overrides.get(name) for name in names)
    if first is None or second is None:
        return None
    if first == second:
        return PairVerdict(names, Reach.PROVEN, f"cluster.toml puts both on {first}", first)
    return PairVerdict(names, Reach.DIFFERENT, f"cluster.toml puts them on {first} and on {second}")


def _is_unheard(node: Node) -> bool:
    return not node.reachable and not node.ports


def _explain_lack(node: Node) -> str:
    if not node.ports:
        return f"{node.name} has no InfiniBand or RoCE adapter"
    told = [
        f"{port.hca}:{port.port} {port.excluded.reason if port.excluded else port.state}"
        for port in node.ports[:_MAX_EXCLUDED_TOLD]
    ]
    more = len(node.ports) - len(told)
    text = "; ".join(told) + (f"; and {more} more" if more else "")
    return f"{node.name} has no port that engines could use: {text}"


def _judge_by_ports(
    names: tuple[str, str], first: Sequence[Port], second: Sequence[Port]
) -> PairVerdict:
    """By the best kind that both have; InfiniBand goes first."""
    reasons = []
    for kind in (PortKind.INFINIBAND, PortKind.ROCE):
        ours = [port for port in first if port.kind is kind]
        theirs = [port for port in second if port.kind is kind]
        if not ours or not theirs:
            continue
        judge = _judge_infiniband if kind is PortKind.INFINIBAND else _judge_roce
        found = judge(names, ours, theirs)
        if found.verdict is not Reach.DIFFERENT:
            return found
        reasons.append(found.reason)
    if not reasons:
        kinds = [_kinds_of(ports) for ports in (first, second)]
        reasons = [f"link layers differ: {names[0]} has {kinds[0]}, {names[1]} has {kinds[1]}"]
    return PairVerdict(names, Reach.DIFFERENT, "; ".join(reasons))


def _kinds_of(ports: Sequence[Port]) -> str:
    return " and ".join(sorted({port.kind.value for port in ports}))


def _judge_infiniband(
    names: tuple[str, str], first: Sequence[Port], second: Sequence[Port]
) -> PairVerdict:
    shared = find_shared_lid(first, second)
    if shared is not None:
        return PairVerdict(names, Reach.DIFFERENT, shared)
    disproofs: list[str] = []
    possible: list[tuple[str, ...]] = []
    labels = [label(port) for port in second]
    known: dict[object, str | None] = {}  # ports of one node are mostly alike, and pairs are many
    for ours in first:
        for theirs, name in zip(second, labels, strict=True):
            alike = (*_traits(ours), *_traits(theirs))
            if alike not in known:
                known[alike] = disprove_infiniband(ours, theirs)
            disproof = known[alike]
            if disproof is None:
                possible.append((label(ours), name))
            elif disproof not in disproofs:
                disproofs.append(disproof)
    if not possible:
        return PairVerdict(names, Reach.DIFFERENT, "; ".join(disproofs[:_MAX_EXCLUDED_TOLD]))
    reason = (
        f"equal prefix {subnet_prefix(first[0])} and nothing that tells them apart; "
        "separate InfiniBand subnets look the same: probe"
    )
    if any(is_same_port(ours, theirs) for ours in first for theirs in second):
        reason = "GUIDs and LIDs are equal: is it one machine under two names?"
    by_label = {label(port): port for port in first}
    return PairVerdict(
        names, Reach.POSSIBLE, reason, by_label[possible[0][0]].fabric, tuple(possible)
    )


def _traits(port: Port) -> tuple[object, ...]:
    """All that `disprove_infiniband` looks at."""
    return subnet_prefix(port), port.sm_lid, port.pkeys


def disprove_infiniband(ours: Port, theirs: Port) -> str | None:
    """Why two InfiniBand ports cannot be of one subnet; None when nothing says so."""
    prefixes = subnet_prefix(ours), subnet_prefix(theirs)
    if None not in prefixes and prefixes[0] != prefixes[1]:
        return f"subnet prefixes differ: {prefixes[0]} and {prefixes[1]}"
    managers = ours.sm_lid, theirs.sm_lid
    if None not in managers and managers[0] != managers[1]:
        return f"subnet managers differ: LID {managers[0]} and LID {managers[1]}"
    if not share_pkey(ours.pkeys, theirs.pkeys):
        return (
            f"no partition in common where one is a full member: {' '.join(ours.pkeys)} "
            f"and {' '.join(theirs.pkeys)}"
        )
    return None


def find_shared_lid(first: Sequence[Port], second: Sequence[Port]) -> str | None:
    """The best disproof: two ports, each of which owns one LID, of what would be one subnet."""
    owners = {(subnet_of(port), lid): port for port in first for lid in lids_of(port)}
    for port in second:
        for lid in lids_of(port):
            ours = owners.get((subnet_of(port), lid))
            if ours is not None and not is_same_port(ours, port):
                return (
                    f"{label(ours)} and {label(port)} both have LID {lid:#x}, "
                    "which one subnet gives only once"
                )
    return None


def is_same_port(one: Port, other: Port) -> bool:
    """Whether two readings are of one port: a machine that goes by two names. A GID has the port's own GUID in it."""
    return one.gid is not None and (one.gid, one.node_guid) == (other.gid, other.node_guid)


def lids_of(port: Port) -> range:
    """The LIDs that the port owns, at most 128; empty when it has none."""
    if port.lid is None:
        return range(0)
    return range(port.lid, port.lid + (1 << max(0, min(port.lmc or 0, _MAX_LMC))))


def subnet_of(port: Port) -> tuple[str | None, int | None]:
    """What one subnet's ports have in common."""
    return subnet_prefix(port), port.sm_lid


def subnet_prefix(port: Port) -> str | None:
    """`fe80:0000:0000:0000` of the port's GID."""
    return None if port.gid is None else port.gid[:_PREFIX_CHARS]


def share_pkey(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two partition tables let the ports talk: one key in common, of which one is a full member.

    An empty table tells nothing, so it is True.
    """
    ours, theirs = ([key for key in map(read_pkey, keys) if key] for keys in (first, second))
    if not ours or not theirs:
        return True
    return any(
        (one ^ other) & ~FULL_MEMBER == 0 and (one | other) & FULL_MEMBER
        for one in ours
        for other in theirs
    )


def _judge_roce(
    names: tuple[str, str], first: Sequence[Port], second: Sequence[Port]
) -> PairVerdict:
    pairs = tuple(
        (label(ours), label(theirs))
        for ours in first
        for theirs in second
        if ours.fabric is not None and ours.fabric == theirs.fabric
    )
    if pairs:
        fabric = next(port.fabric for port in first if label(port) == pairs[0][0])
        reason = f"both have ports in {fabric}; such networks are reused on other cables: probe"
        return PairVerdict(names, Reach.POSSIBLE, reason, fabric, pairs)
    networks = [
        ", ".join(sorted({port.fabric or "none" for port in ports})) for ports in (first, second)
    ]
    reason = (
        f"no IP network in common ({networks[0]}; {networks[1]}), which disproves nothing where "
        "networks are routed: probe, or name the fabric in cluster.toml"
    )
    every = tuple((label(ours), label(theirs)) for ours, theirs in zip(first, second, strict=False))
    return PairVerdict(names, Reach.POSSIBLE, reason, None, every)


def label(port: Port) -> str:
    """`mlx5_0:1`."""
    return f"{port.hca}:{port.port}"
