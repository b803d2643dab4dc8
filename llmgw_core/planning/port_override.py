"""The operator's word on single ports: what cluster.toml leaves out is never used. Pure."""

from collections.abc import Collection
from dataclasses import replace

from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import GpuHealth, Port, PortNote
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.port_choice import judge_ports
from llmgw_core.planning.fabric_verdicts import label

BY_OPERATOR = PortNote("operator", "left out by exclude_ports in cluster.toml")


def exclude_ports(node: Node, names: Collection[str]) -> Node:
    """The node without the use of these ports; the others are judged again as if those were not there.

    A name that fits no port of a node that has some is told as a warning of the node: mistyped, it protects nothing.

    Args:
        names: `mlx5_3` for every port of an HCA, `mlx5_3:2` for one.
    """
    if not names or not node.ports:
        return node
    left = [port for port in node.ports if not _names_of(port) & set(names)]
    judged = iter(judge_ports(left)) if len(left) < len(node.ports) else iter(left)
    kept = {id(port): judged_port for port, judged_port in zip(left, judged, strict=True)}
    ports = tuple(kept.get(id(port)) or _leave_out(port) for port in node.ports)
    known = {name for port in node.ports for name in _names_of(port)}
    unknown = sorted(set(names) - known)
    return replace(node, ports=ports, health=(*node.health, *map(_tell_unknown, unknown)))


def _names_of(port: Port) -> set[str]:
    return {port.hca, label(port)}


def _leave_out(port: Port) -> Port:
    return replace(port, usable=False, excluded=BY_OPERATOR, suspect=None, fabric=None)


def _tell_unknown(name: str) -> GpuHealth:
    message = f"exclude_ports in cluster.toml names {name}, and this node has no such port: correct or remove it"
    return GpuHealth("unknown-port", Severity.WARNING, message)
