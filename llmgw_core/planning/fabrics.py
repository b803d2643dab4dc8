"""Fabrics and islands across nodes. Pure.

A fabric is what ports of equal key make up; an island is a set of nodes that share one. The operator's word for a
node wins over what was found.
"""

from collections import Counter
from dataclasses import replace
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from llmgw_core.domain.fabric import is_usable
from llmgw_core.domain.hardware import PortKind
from llmgw_core.domain.inventory import INVENTORY_SCHEMA, Fabric, Inventory, Island, Node
from llmgw_core.domain.units import natural_key

UNKNOWN_KIND = "unknown"  # of a fabric that the operator named and no usable port is seen of


def assign_fabrics(
    nodes: Sequence[Node], overrides: Optional[Mapping[str, str]] = None
) -> Tuple[Tuple[Node, ...], Tuple[Fabric, ...], Tuple[Island, ...]]:
    """The nodes in natural order with `island` and each port's `fabric` filled in, the fabrics, and the islands.

    Every node is in exactly one island. Nodes that share a fabric are one; of several fabrics InfiniBand comes first,
    then the higher rate per node. An island of several nodes is named by its fabric, of one by the node. A node that
    does not answer stays where its last reading put it.

    Args:
        overrides: the operator's fabric by node name; all its usable ports, or the node as it is, belong to that.
    """
    chosen = overrides or {}
    ordered = sorted(nodes, key=lambda node: natural_key(node.name))
    ordered = [_override_ports(node, chosen.get(node.name)) for node in ordered]
    members = _list_members(ordered, chosen)
    by_name = {node.name: node for node in ordered}
    islands = _group_islands(members, by_name)
    island_of = {name: island.id for island in islands for name in island.nodes}
    filled = tuple(replace(node, island=island_of[node.name]) for node in ordered)
    fabrics = tuple(
        Fabric(key, _kind_of(key, [by_name[name] for name in names]), tuple(names))
        for key, names in sorted(members.items(), key=lambda item: natural_key(item[0]))
    )
    return filled, fabrics, islands


def build_inventory(
    nodes: Sequence[Node], generated_at: str, overrides: Optional[Mapping[str, str]] = None
) -> Inventory:
    """The whole document: same nodes, same document.

    Args:
        generated_at: RFC 3339, UTC.
    """
    filled, fabrics, islands = assign_fabrics(nodes, overrides)
    return Inventory(INVENTORY_SCHEMA, generated_at, filled, fabrics, islands)


def count_gpu_classes(nodes: Iterable[Node]) -> Dict[str, int]:
    """How many GPUs of each class there are, healthy or not; those of no known class are left out."""
    counted = Counter(
        gpu.gpu_class for node in nodes for gpu in node.gpus if gpu.gpu_class is not None
    )
    return dict(sorted(counted.items(), key=lambda item: natural_key(item[0])))


def _override_ports(node: Node, fabric: Optional[str]) -> Node:
    """A port that is not usable is of no fabric, whatever the node or the operator says."""
    ports = tuple(
        replace(port, fabric=(fabric or port.fabric) if is_usable(port) else None)
        for port in node.ports
    )
    return replace(node, ports=ports)


def _list_members(nodes: Sequence[Node], overrides: Mapping[str, str]) -> Dict[str, List[str]]:
    """Node names by fabric, in the nodes' order."""
    members: Dict[str, List[str]] = {}
    for node in nodes:
        keys = {port.fabric for port in node.ports if port.fabric is not None}
        if node.name in overrides:
            keys.add(overrides[node.name])
        for key in keys:
            members.setdefault(key, []).append(node.name)
    return members


def _group_islands(
    members: Mapping[str, Sequence[str]], nodes: Mapping[str, Node]
) -> Tuple[Island, ...]:
    """Take the best fabric's nodes, then the next one's of those that are left, until none joins two."""
    placed: Set[str] = set()
    islands: List[Island] = []
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
    island_id: str, fabric: Optional[str], names: Sequence[str], nodes: Mapping[str, Node]
) -> Island:
    counts = count_gpu_classes(nodes[name] for name in names)
    return Island(island_id, fabric, tuple(names), counts)


def _rank(key: str, nodes: Sequence[Node]) -> Tuple[int, float, Tuple[Tuple[int, object], ...]]:
    """Sorts the better fabric first: InfiniBand, then the rate that each node has at least, then the name."""
    is_infiniband = _kind_of(key, nodes) == PortKind.INFINIBAND.value
    rate = min(_rate_gbps(node, key) for node in nodes)
    return (0 if is_infiniband else 1, -rate, natural_key(key))


def _rate_gbps(node: Node, key: str) -> float:
    return sum(port.rate_gbps or 0.0 for port in node.ports if port.fabric == key)


def _kind_of(key: str, nodes: Sequence[Node]) -> str:
    """The kind of most of its ports; a fabric that the operator named may mix them."""
    kinds = Counter(port.kind.value for node in nodes for port in node.ports if port.fabric == key)
    ranked = sorted(kinds, key=lambda kind: (-kinds[kind], kind))
    return ranked[0] if ranked else UNKNOWN_KIND
