"""The picture of all nodes out of each one's latest reading, at the cost of those that changed."""

import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from llmgw_core.domain.hardware import Port
from llmgw_core.domain.inventory import Fabric, FleetSnapshot, Island, Node, NodeView
from llmgw_core.fleet.changes import with_values
from llmgw_core.planning.fabrics import assign_fabrics

_Traits = tuple[Any, ...]
# All of a port that fabrics rest on; not what it carries at the moment, which changes each second.
_PORT_TRAITS = attrgetter(
    *("hca", "port", "kind", "state", "excluded", "fabric", "usable", "rate_gbps"),
    *("lid", "lmc", "sm_lid", "gid", "node_guid", "pkeys"),
)
# What planning decides of it.
_DECIDED = attrgetter("fabric", "usable", "excluded")


class Assembler:
    """Puts fabrics and islands into the nodes. They are found anew only when something that they rest on has changed.

    Args:
        fabrics: the operator's fabric by node name.
    """

    def __init__(self, fabrics: Mapping[str, str]) -> None:
        self._overrides = fabrics
        self._seen: dict[str, NodeView] = {}
        self._filled: dict[str, NodeView] = {}
        self._traits: dict[str, _Traits] = {}
        self._fabrics: tuple[Fabric, ...] = ()
        self._islands: tuple[Island, ...] = ()

    def assemble(self, views: Sequence[NodeView]) -> FleetSnapshot:
        """Return the picture of these nodes, in natural order of names. A view that is the same object stays so in it."""
        fresh = [view for view in views if self._seen.get(view.node.name) is not view]
        traits = {view.node.name: _list_traits(view.node) for view in fresh}
        stand = all(self._traits.get(name) == found for name, found in traits.items())
        if stand and len(views) == len(self._seen):
            for view in fresh:
                name = view.node.name
                self._filled[name] = with_values(view, node=_settle(view.node, self._filled[name]))
        else:
            self._find_anew(views)
        self._seen.update((view.node.name, view) for view in fresh)
        self._traits.update(traits)
        nodes = tuple(self._filled[view.node.name] for view in views)
        return FleetSnapshot(time.time(), nodes, self._fabrics, self._islands)

    def _find_anew(self, views: Sequence[NodeView]) -> None:
        nodes, self._fabrics, self._islands = assign_fabrics(
            [view.node for view in views], self._overrides
        )
        filled = {node.name: node for node in nodes}
        self._filled = {
            view.node.name: with_values(view, node=filled[view.node.name]) for view in views
        }
        self._seen = {view.node.name: view for view in views}


def _list_traits(node: Node) -> _Traits:
    """All that fabrics and islands rest on."""
    classes = tuple(gpu.gpu_class for gpu in node.gpus)
    return node.address, classes, tuple(map(_PORT_TRAITS, node.ports))


def _settle(node: Node, before: NodeView) -> Node:
    """The node with what was decided for it when its traits were the same."""
    ports = tuple(map(_settle_port, node.ports, before.node.ports))
    return with_values(node, island=before.node.island, ports=ports)


def _settle_port(port: Port, before: Port) -> Port:
    decided = _DECIDED(before)
    if _DECIDED(port) == decided:
        return port
    fabric, usable, excluded = decided
    return with_values(port, fabric=fabric, usable=usable, excluded=excluded)
