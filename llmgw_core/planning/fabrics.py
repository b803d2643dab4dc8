"""Fabrics and islands across nodes. Pure.

A fabric is what ports of equal key make up, less the nodes that the same key cannot hold; an island is a set of nodes
that share one. The operator's word for a node wins over what was found.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from llmgw_core.domain.fabric import OTHER_FABRIC, is_capable
from llmgw_core.domain.hardware import Port, PortKind, PortNote
from llmgw_core.domain.inventory import INVENTORY_SCHEMA, Fabric, Inventory, Island, Node
from llmgw_core.domain.port_choice import choose_kind, judge_ports
from llmgw_core.domain.reach import Reach
from llmgw_core.domain.units import natural_key
from llmgw_core.planning.fabric_keys import Members, Ports, refine_keys

UNKNOWN_KIND = "unknown"  # of a fabric that the operator named and no usable port is seen of


def assign_fabrics(
    nodes: Sequence[Node],
    overrides: Mapping[str, str] | None = None,
    proven: Collection[frozenset[str]] = (),
) -> tuple[tuple[Node, ...], tuple[Fabric, ...], tuple[Island, ...]]:
    """The nodes in natural order with `island` and each port's `fabric` filled in, the fabrics, and the islands.

    Every node is in exactly one island. Nodes that share a fabric are one; of several fabrics InfiniBand comes first,
    then the higher rate per node. An island of several nodes is named by its fabric, of one by the node. A node that
    does not answer stays where its last reading put it.

    Args:
        overrides: the operator's fabric by node name; all its usable ports, or the node as it is, belong to that.
        proven: pairs of nodes that a probe has connected.
    """
    chosen = overrides or {}
    ordered = sorted(nodes, key=lambda node: natural_key(node.name))
    ports = {node.name: _override_ports(node, chosen.get(node.name)) for node in ordered}
    networks = refine_keys(ordered, ports, chosen)
    members = _list_members(ordered, ports, chosen)
    by_name = {node.name: replace(node, ports=ports[node.name]) for node in ordered}
    islands = _group_islands(members, by_name)
    island_of = {name: island for island in islands for name in island.nodes}
    filled = tuple(_settle(by_name[node.name], island_of[node.name]) for node in ordered)
    fabrics = tuple(
        _judge(
            Fabric(
                key,
                _kind_of(key, [by_name[name] for name in names]),
                tuple(names),
                networks.get(key, ()),
            ),
            chosen,
            proven,
        )
        for key, names in sorted(members.items(), key=lambda item: natural_key(item[0]))
    )
    return filled, fabrics, islands


def build_inventory(
    nodes: Sequence[Node], generated_at: str, overrides: Mapping[str, str] | None = None
) -> Inventory:
    """The whole document: same nodes, same document.

    Args:
        generated_at: RFC 3339, UTC.
    """
    filled, fabrics, islands = assign_fabrics(nodes, overrides)
    return Inventory(INVENTORY_SCHEMA, generated_at, filled, fabrics, islands)


def count_gpu_classes(nodes: Iterable[Node]) -> dict[str, int]:
    """How many GPUs of each class there are, healthy or not; those of no known class are left out."""
    counted = Counter(
        gpu.gpu_class for node in nodes for gpu in node.gpus if gpu.gpu_class is not None
    )
    return dict(sorted(counted.items(), key=lambda item: natural_key(item[0])))


def _override_ports(node: Node, fabric: str | None) -> Ports:
    """A port that is not capable is of no fabric, whatever the node or the operator says."""
    return tuple(_in_fabric(port, fabric or port.fabric) for port in node.ports)


def _in_fabric(port: Port, fabric: str | None) -> Port:
    """The same object where nothing changes, as mostly: this runs at each picture of the fleet."""
    wanted = fabric if is_capable(port) else None
    return port if port.fabric == wanted else replace(port, fabric=wanted)


def _list_members(
    nodes: Sequence[Node], ports: Mapping[str, Ports], overrides: Mapping[str, str]
) -> Members:
    """Node names by fabric, in the nodes' order."""
    members: Members = {}
    for node in nodes:
        keys = {port.fabric for port in ports[node.name] if port.fabric is not None}
        if node.name in overrides:
            keys.add(overrides[node.name])
        for key in keys:
            members.setdefault(key, []).append(node.name)
    return members


def _settle(node: Node, island: Island) -> Node:
    """The node in its island. Among several nodes only ports of what they share are of use."""
    ports = node.ports
    if len(island.nodes) > 1 and island.fabric is not None:
        ports = _choose_shared(ports, island.fabric)
    return replace(node, ports=ports, island=island.id)


def _choose_shared(ports: Ports, fabric: str) -> Ports:
    shared = [port for port in ports if port.fabric == fabric]
    if shared and not any(port.usable for port in shared):
        # What is best on this node alone is of no use to the others.
        ports = judge_ports(ports, choose_kind(shared))
    note = PortNote(OTHER_FABRIC, f"not of {fabric}, by which the island's nodes are joined")
    return tuple(
        replace(port, usable=False, excluded=note)
        if port.usable and port.fabric != fabric
        else port
        for port in ports
    )


def _judge(
    fabric: Fabric, overrides: Mapping[str, str], proven: Collection[frozenset[str]]
) -> Fabric:
    """The fabric with the verdict on its nodes."""
    if len(fabric.nodes) < 2:  # noqa: PLR2004 - a pair
        return fabric
    pairs = (frozenset(pair) for pair in combinations(fabric.nodes, 2))
    if all(overrides.get(name) == fabric.id for name in fabric.nodes):
        verdict, reason = Reach.PROVEN, "cluster.toml says so"
    elif proven and all(pair in proven for pair in pairs):
        verdict, reason = Reach.PROVEN, "a probe connected each pair"
    elif fabric.kind == PortKind.INFINIBAND.value:
        verdict, reason = Reach.POSSIBLE, "equal subnet prefix; separate subnets look the same"
    else:
        verdict = Reach.POSSIBLE
        reason = "ports in the same IP networks; such networks are reused on other cables"
    return replace(fabric, verdict=verdict, reason=reason)


def _group_islands(
    members: Mapping[str, Sequence[str]], nodes: Mapping[str, Node]
) -> tuple[Island, ...]:
    """Take the best fabric's nodes, then the next one's of those that are left, until none joins two."""
    placed: set[str] = set()
    islands: list[Island] = []
    ranked = sorted(members, key=lambda key: _rank(key, [nodes[name] for name in members[key]]))
    for key in ranked:
        free = [name for name in members[key] if name not in placed]
        if len(free) > 1:
            placed.update(free)
            # An operator may name a fabric as a node is named, which can be an island too.
            island_id = f"fabric-{key}" if key in nodes else key
            islands.append(_make_island(island_id, key, free, nodes))
    for name in nodes:
        if name not in placed:
            best = next((key for key in ranked if name in members[key]), None)
            islands.append(_make_island(name, best, [name], nodes))
    return tuple(sorted(islands, key=lambda island: natural_key(island.nodes[0])))


def _make_island(
    island_id: str, fabric: str | None, names: Sequence[str], nodes: Mapping[str, Node]
) -> Island:
    counts = count_gpu_classes(nodes[name] for name in names)
    return Island(island_id, fabric, tuple(names), counts)


def _rank(
    key: str, nodes: Sequence[Node]
) -> tuple[bool, int, float, tuple[tuple[int, object], ...]]:
    """Sorts the better fabric first: of ports that nodes prefer, InfiniBand, the rate each node has at least, name."""
    is_preferred = all(any(_is_preferred(port, key) for port in node.ports) for node in nodes)
    is_infiniband = _kind_of(key, nodes) == PortKind.INFINIBAND.value
    rate = min(_rate_gbps(node, key) for node in nodes)
    return (not is_preferred, 0 if is_infiniband else 1, -rate, natural_key(key))


def _is_preferred(port: Port, key: str) -> bool:
    return port.fabric == key and port.excluded is None


def _rate_gbps(node: Node, key: str) -> float:
    return sum(port.rate_gbps or 0.0 for port in node.ports if port.fabric == key)


def _kind_of(key: str, nodes: Sequence[Node]) -> str:
    """The kind of most of its ports; a fabric that the operator named may mix them."""
    kinds = Counter(port.kind.value for node in nodes for port in node.ports if port.fabric == key)
    ranked = sorted(kinds, key=lambda kind: (-kinds[kind], kind))
    return ranked[0] if ranked else UNKNOWN_KIND
