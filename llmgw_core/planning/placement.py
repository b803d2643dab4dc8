"""Which node, GPUs and port a launch takes: the operator's own choice, else the tightest fit. Pure."""

import difflib
from dataclasses import dataclass
from typing import AbstractSet, Dict, List, Optional, Sequence, Tuple

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.domain.units import natural_key
from llmgw_core.planning.mig import list_slice_classes, list_slices

FIRST_PORT = 8000
LAST_PORT = 65535
_LISTED = 8


@dataclass(frozen=True)
class Placement:
    """Where one rank runs."""

    node: Node
    gpus: Tuple[Gpu, ...]  # by index; none: a CPU engine
    port: Optional[int]  # None: a rank that serves nothing


@dataclass(frozen=True)
class FreeGroup:
    """The free GPUs of one class on one node."""

    node: Node
    label: str
    gpus: Tuple[Gpu, ...]


_Choice = Tuple[Optional[Tuple[Node, Tuple[Gpu, ...]]], Tuple[Finding, ...]]


def place(
    request: LaunchRequest, nodes: Sequence[Node], avoid_ports: AbstractSet[int] = frozenset()
) -> Tuple[Optional[Placement], Tuple[Finding, ...]]:
    """A place for the request, and what there is to say of the choice; None where there is none, with the reason.

    GPUs and a port that the operator names are taken as they are, free or not: rules judge them.

    Args:
        avoid_ports: ports that are known to be taken, when the port is chosen here.
    """
    candidates, refusals = find_candidates(request, nodes)
    if not candidates:
        return None, refusals
    choice, findings = _choose_gpus(request, candidates)
    if choice is None:
        return None, findings
    node, gpus = choice
    port, missing = choose_port(request, node, avoid_ports)
    if port is None:
        return None, (*findings, *missing)
    return Placement(node, gpus, port), findings


def choose_port(
    request: LaunchRequest, node: Node, avoid: AbstractSet[int]
) -> Tuple[Optional[int], Tuple[Finding, ...]]:
    """The request's port, else the node's first free one from 8000 on; None with the reason."""
    if request.port is not None:
        return request.port, ()
    taken = avoid | set(list_ports(node))
    port = next((port for port in range(FIRST_PORT, LAST_PORT + 1) if port not in taken), None)
    if port is not None:
        return port, ()
    what = f"no port from {FIRST_PORT} to {LAST_PORT} is free on {node.name}"
    return None, (error("no-port", "port", what, "name one", node.name),)


def list_ports(node: Node) -> Dict[int, str]:
    """Engine id by port, of the node's engines that are not over."""
    found: Dict[int, str] = {}
    for engine in node.engines:
        port = None if engine.url is None else _port_of(engine.url)
        if port is not None and not engine.state.is_over:
            found[port] = engine.id
    return found


def count_nodes(request: LaunchRequest) -> Optional[int]:
    """Over how many nodes the request is to run; None: as few as have the GPUs."""
    if request.nodes:
        return len(request.nodes)
    return 1 if request.node is not None and request.node_count is None else request.node_count


def count_needed(request: LaunchRequest) -> int:
    """How many GPUs the request takes on all nodes. 0: a CPU engine."""
    if request.gpus:
        return len(set(request.gpus)) * (count_nodes(request) or 1)
    if request.gpu_count is not None:
        return max(request.gpu_count, 0)
    return request.tensor_parallel * request.pipeline_parallel * request.data_parallel


def _port_of(url: str) -> Optional[int]:
    """The port of a base URL: `http://127.0.0.1:8000` → 8000, `http://[::1]:8000` → 8000."""
    tail = url.rstrip("/").rpartition(":")[2]
    return int(tail) if tail.isascii() and tail.isdigit() else None


def find_candidates(
    request: LaunchRequest, nodes: Sequence[Node]
) -> Tuple[Tuple[Node, ...], Tuple[Finding, ...]]:
    """Nodes that may be used, those that are named in their order, else in natural order; or none and the reason."""
    ordered = tuple(sorted(nodes, key=lambda node: natural_key(node.name)))
    wanted = request.nodes or ((request.node,) if request.node is not None else ())
    if wanted:
        by_name = {node.name: node for node in ordered}
        troubles = [_tell_unknown(name, ordered) for name in wanted if name not in by_name]
        named = tuple(by_name[name] for name in wanted if name in by_name)
        troubles += [_tell_unreachable(node) for node in named if not node.reachable]
        return ((), tuple(troubles)) if troubles else (named, ())
    answering = tuple(node for node in ordered if node.reachable)
    if answering:
        return answering, ()
    if len(ordered) == 1:
        return (), (_tell_unreachable(ordered[0]),)
    what = "no node answers" if ordered else "there is no node"
    return (), (error("node-unreachable", "node", what, "see llmgw inventory for each's reason"),)


def _tell_unknown(name: str, nodes: Sequence[Node]) -> Finding:
    names = [node.name for node in nodes]
    near = difflib.get_close_matches(name, names, 1)
    fix = f"did you mean {near[0]}?" if near else f"the nodes are: {shorten(names) or 'none'}"
    return error("node-unknown", "node", f"there is no node {name}", fix)


def _tell_unreachable(node: Node) -> Finding:
    why = f": {node.error.message}" if node.error else ""
    fix = node.error.hint if node.error and node.error.hint else "see llmgw inventory"
    what = f"{node.name} does not answer{why}"
    return error("node-unreachable", "node", what, fix, node.name)


def _choose_gpus(request: LaunchRequest, candidates: Sequence[Node]) -> _Choice:
    if request.gpus:
        return _choose_named(request, candidates)
    if count_needed(request) == 0:
        return _choose_none(candidates)
    return _choose_free(request, candidates)


def _choose_named(request: LaunchRequest, candidates: Sequence[Node]) -> _Choice:
    """The first node where all of the named GPUs are free, else the first that has them, else the first."""
    wanted = set(request.gpus)

    def rank(node: Node) -> int:
        free = {gpu.index for gpu in node.gpus if gpu.available}
        present = {gpu.index for gpu in node.gpus}
        return 0 if wanted <= free else 1 if wanted <= present else 2

    node = min(candidates, key=rank)
    gpus = tuple(sorted((g for g in node.gpus if g.index in wanted), key=lambda g: g.index))
    missing = sorted(wanted - {gpu.index for gpu in gpus})
    have = ", ".join(str(gpu.index) for gpu in node.gpus) or "none"
    findings = tuple(
        error(
            "gpu-unknown",
            f"{node.name} GPU {index}",
            f"{node.name} has no GPU {index}",
            f"its GPUs are: {have}",
            node.name,
        )
        for index in missing
    )
    return (node, gpus), findings


def _choose_none(candidates: Sequence[Node]) -> _Choice:
    """A node without GPUs first, which a CPU engine keeps nobody from; then the one with the fewest engines."""
    node = min(
        candidates,
        key=lambda node: (bool(node.gpus), _count_engines(node), natural_key(node.name)),
    )
    if len(candidates) == 1:
        return (node, ()), ()
    what = f"{node.name} is chosen of {len(candidates)} nodes; a CPU engine takes no GPU"
    return (node, ()), (tell_choice(node, what),)


def _count_engines(node: Node) -> int:
    return sum(not engine.state.is_over for engine in node.engines)


def _choose_free(request: LaunchRequest, candidates: Sequence[Node]) -> _Choice:
    """Lowest indices of the group with the fewest GPUs left over, so that large launches keep finding room."""
    needed = count_needed(request)
    groups = [group for node in candidates for group in group_free(node, request.gpu_class)]
    fitting = [group for group in groups if len(group.gpus) >= needed]
    if not fitting:
        return None, (tell_no_room(request, candidates, groups),)
    best = min(
        fitting,
        key=lambda group: (len(group.gpus) - needed, natural_key(group.node.name), group.label),
    )
    gpus = best.gpus[:needed]
    indices = ", ".join(str(gpu.index) for gpu in gpus)
    what = (
        f"{best.node.name} GPU {indices} ({best.label}): the tightest of {len(fitting)} that fit;"
        f" {len(best.gpus) - needed} of that class stay free there"
    )
    return (best.node, gpus), (tell_choice(best.node, what),)


def group_free(node: Node, wanted_class: Optional[str]) -> List[FreeGroup]:
    """Free GPUs by class, and slices if their class is wanted. Those of no known class go by their name."""
    groups: Dict[str, List[Gpu]] = {}
    units = (*node.gpus, *list_slices(node, wanted_class))
    for gpu in sorted(units, key=lambda gpu: gpu.index):
        if gpu.available and wanted_class in (None, gpu.gpu_class):
            label = gpu.gpu_class or gpu.name or "unknown class"
            groups.setdefault(label, []).append(gpu)
    return [FreeGroup(node, label, tuple(gpus)) for label, gpus in sorted(groups.items())]


def tell_no_room(
    request: LaunchRequest, candidates: Sequence[Node], groups: Sequence[FreeGroup]
) -> Finding:
    """That one node does not have the GPUs free, and what may help."""
    needed = count_needed(request)
    of_class = f"of class {request.gpu_class}" if request.gpu_class else "of one class"
    free = shorten([f"{group.node.name} {len(group.gpus)} {group.label}" for group in groups])
    what = f"no node has {needed} free GPUs {of_class}: free are {free or 'none'}"
    fix = "see llmgw inventory for what holds them; stop something, or take fewer GPUs"
    slices = list_slice_classes(candidates) if request.gpu_class is None else ()
    if slices:
        fix += f"; or take a MIG slice by its class: {shorten(slices)}"
    if any(len(node.gpus) >= needed for node in candidates) and len(candidates) > 1:
        fix += "; to take them of several nodes, say over how many (--node-count 2)"
    if not any(node.gpus for node in candidates):
        fix = "for an engine on the CPU ask for 0 GPUs (--gpu-count 0)"
    node = candidates[0].name if len(candidates) == 1 else None
    return error("no-free-gpus", "gpus", what, fix, node)


def shorten(items: Sequence[str]) -> str:
    """The first of them, and that there are more."""
    return ", ".join(items[:_LISTED]) + (", …" if len(items) > _LISTED else "")


def tell_choice(node: Node, what: str) -> Finding:
    """What was chosen, as something worth knowing."""
    return Finding("placement", Severity.INFO, "placement", what, "", node.name)


def error(code: str, subject: str, what: str, fix: str, node: Optional[str] = None) -> Finding:
    """A finding that stops the launch."""
    return Finding(code, Severity.ERROR, subject, what, fix, node)
