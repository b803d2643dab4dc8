"""Which nodes and GPUs a launch over several nodes takes. Pure.

The ranks of one launch stay within a fabric that all of their nodes have usable ports of, unless plain TCP is asked
for by name; every rank takes as many GPUs, of one class.
"""

from dataclasses import dataclass
from typing import AbstractSet, Dict, Iterator, List, Optional, Sequence, Tuple

from llmgw_core.domain.findings import Finding
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import Fabric, Node
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.domain.reach import Reach
from llmgw_core.domain.units import format_indices, natural_key
from llmgw_core.planning.network_env import list_fabric_ports
from llmgw_core.planning.placement import (
    Placement,
    choose_port,
    count_needed,
    error,
    find_candidates,
    group_free,
    list_ports,
    shorten,
    tell_choice,
)

TCP = "tcp"
# A block of ports per launch, below the ephemeral range that kernels hand out (32768 on).
FIRST_BLOCK, BLOCK_SIZE, BLOCKS = 24000, 16, 512


@dataclass(frozen=True)
class GangPlacement:
    """Where the ranks run: by rank."""

    places: Tuple[Placement, ...]
    fabric: Optional[str]  # "tcp"; None: a CPU engine, which has no use for adapters
    block: int  # the first of BLOCK_SIZE ports, the same on every node


@dataclass(frozen=True)
class _Choice:
    """One set of nodes that would do."""

    nodes: Tuple[Node, ...]
    gpus: Tuple[Tuple[Gpu, ...], ...]
    label: str
    fabric: Optional[str]
    spare: int  # free GPUs of the class that stay on these nodes


def choose_count(request: LaunchRequest, nodes: Sequence[Node]) -> Optional[int]:
    """Over how many nodes to run when nobody says: 1 unless no node has so many GPUs at all; None: no number will do."""
    needed = count_needed(request)
    sizes = sorted((len(node.gpus) for node in nodes if node.reachable), reverse=True)
    if needed == 0 or not sizes or sizes[0] >= needed or sizes[0] == 0:
        return 1
    for count in range(2, len(sizes) + 1):
        if needed % count == 0 and sizes[count - 1] >= needed // count:
            return count
    return None


def place_gang(
    request: LaunchRequest,
    nodes: Sequence[Node],
    count: int,
    fabrics: Sequence[Fabric],
    avoid_ports: AbstractSet[int] = frozenset(),
) -> Tuple[Optional[GangPlacement], Tuple[Finding, ...]]:
    """A place for each rank, and what there is to say of the choice; None where there is none, with the reason."""
    candidates, refusals = find_candidates(request, nodes)
    if not candidates:
        return None, refusals
    needed = count_needed(request)
    if needed % count:
        what = f"{needed} GPUs do not divide over {count} nodes"
        return None, (error("split", "node_count", what, "every node takes as many GPUs"),)
    if len(candidates) < count:
        names = shorten([node.name for node in candidates])
        what = f"{count} nodes are asked for, {len(candidates)} answer: {names}"
        return None, (error("too-few-nodes", "node_count", what, "see llmgw inventory"),)
    choices = list(_list_choices(request, candidates, count))
    if not choices:
        return None, (_tell_no_room(request, candidates, count),)
    best = min(choices, key=lambda choice: _rate(choice, fabrics))
    port, missing = choose_port(request, best.nodes[0], avoid_ports)
    block = _choose_block(request.name, best.nodes, avoid_ports)
    if port is None or block is None:
        return None, missing or (_tell_no_block(best.nodes[0]),)
    places = tuple(
        Placement(node, gpus, port if rank == 0 else None)
        for rank, (node, gpus) in enumerate(zip(best.nodes, best.gpus, strict=True))
    )
    told = tell_choice(best.nodes[0], _describe(request, best, len(choices)))
    return GangPlacement(places, best.fabric, block), (told,)


def _list_choices(
    request: LaunchRequest, candidates: Sequence[Node], count: int
) -> Iterator[_Choice]:
    """The tightest set of nodes for each fabric and class."""
    for fabric in _list_fabrics(request, candidates):
        joined = [node for node in candidates if _has(node, fabric)]
        if len(joined) < count:
            continue
        if request.gpus or count_needed(request) == 0:
            yield _choose_named(request, joined[:count], fabric)
        else:
            yield from _choose_free(request, joined, count, fabric)


def _list_fabrics(request: LaunchRequest, candidates: Sequence[Node]) -> Sequence[Optional[str]]:
    if count_needed(request) == 0:
        return [None]
    if request.fabric is not None:
        return [request.fabric]
    found = {port.fabric for node in candidates for port in node.ports if port.usable}
    return sorted(name for name in found if name is not None)


def _has(node: Node, fabric: Optional[str]) -> bool:
    return fabric in (None, TCP) or bool(list_fabric_ports(node, fabric or ""))


def _choose_named(request: LaunchRequest, nodes: Sequence[Node], fabric: Optional[str]) -> _Choice:
    """The same indices on each node; one that is missing there is found by its rule."""
    wanted = set(request.gpus)
    gpus = tuple(
        tuple(sorted((gpu for gpu in node.gpus if gpu.index in wanted), key=lambda gpu: gpu.index))
        for node in nodes
    )
    return _Choice(tuple(nodes), gpus, request.gpu_class or "", fabric, 0)


def _choose_free(
    request: LaunchRequest, nodes: Sequence[Node], count: int, fabric: Optional[str]
) -> Iterator[_Choice]:
    each = count_needed(request) // count
    by_label: Dict[str, List[Tuple[Node, Tuple[Gpu, ...]]]] = {}
    for node in nodes:
        for group in group_free(node, request.gpu_class):
            if len(group.gpus) >= each:
                by_label.setdefault(group.label, []).append((node, group.gpus))
    for label, found in sorted(by_label.items()):
        if len(found) < count:
            continue
        # Named nodes are all taken, in the order that was given: the first serves.
        if not request.nodes:
            found.sort(key=lambda item: (len(item[1]), natural_key(item[0].name)))
        chosen = found[:count]
        if not request.nodes:
            chosen.sort(key=lambda item: natural_key(item[0].name))
        yield _Choice(
            tuple(node for node, _ in chosen),
            tuple(_nearest(node, free, each, fabric) for node, free in chosen),
            label,
            fabric,
            sum(len(free) - each for _, free in chosen),
        )


def _nearest(node: Node, free: Sequence[Gpu], count: int, fabric: Optional[str]) -> Tuple[Gpu, ...]:
    """Those that some port of the fabric is nearest to first, then by index."""
    near = {
        address
        for port in (list_fabric_ports(node, fabric) if fabric else ())
        for address in port.nearest_gpus
    }
    ordered = sorted(free, key=lambda gpu: (gpu.pci_bus_id not in near, gpu.index))
    return tuple(sorted(ordered[:count], key=lambda gpu: gpu.index))


def _rate(choice: _Choice, fabrics: Sequence[Fabric]) -> Tuple[object, ...]:
    """Least is best: a fabric that is proven, then the one whose slowest node carries most, then the tightest fit."""
    carried = 0.0
    if choice.fabric not in (None, TCP):
        carried = min(
            sum(port.rate_gbps or 0.0 for port in list_fabric_ports(node, choice.fabric or ""))
            for node in choice.nodes
        )
    verdict = find_verdict(choice.fabric, fabrics)
    first = natural_key(choice.nodes[0].name)
    return (verdict is not Reach.PROVEN, -carried, choice.spare, first, choice.label)


def find_verdict(fabric: Optional[str], fabrics: Sequence[Fabric]) -> Optional[Reach]:
    """Whether the fabric's nodes reach one another; None: there is no such fabric."""
    return next((item.verdict for item in fabrics if item.id == fabric), None)


def _choose_block(name: str, nodes: Sequence[Node], avoid: AbstractSet[int]) -> Optional[int]:
    """The first port of a block that is free on all nodes as far as is known. By name, so that two launches planned at
    one time rarely meet, and the same request gives the same plan.
    """
    taken = set(avoid).union(*(list_ports(node) for node in nodes))
    start = sum(name.encode("utf-8", "surrogateescape")) % BLOCKS
    for number in range(BLOCKS):
        block = FIRST_BLOCK + (start + number) % BLOCKS * BLOCK_SIZE
        if not taken.intersection(range(block, block + BLOCK_SIZE)):
            return block
    return None


def _describe(request: LaunchRequest, choice: _Choice, choices: int) -> str:
    each = len(choice.gpus[0])
    per_node = f"{each} GPU{'s' * (each != 1)}" if each else "no GPU"
    if choice.label:
        per_node += f" ({choice.label})"
    split = "; ".join(
        f"{node.name} {format_indices([gpu.index for gpu in gpus])}".rstrip()
        for node, gpus in zip(choice.nodes, choice.gpus, strict=True)
    )
    degrees = " × ".join(
        f"{letters} {size}"
        for letters, size in (
            ("TP", request.tensor_parallel),
            ("PP", request.pipeline_parallel),
            ("DP", request.data_parallel),
        )
        if size > 1
    )
    over = f" over {choice.fabric}" if choice.fabric else ""
    best = f"; best of {choices} fabrics and classes that fit" if choices > 1 else ""
    return (
        f"{degrees or 'TP 1'} = {len(choice.nodes)} nodes with {per_node} each{over}: {split}{best}"
    )


def _tell_no_room(request: LaunchRequest, candidates: Sequence[Node], count: int) -> Finding:
    each = count_needed(request) // count
    free = [
        (node, len(group.gpus), group.label)
        for node in candidates
        for group in group_free(node, request.gpu_class)
    ]
    labels = [label for _, number, label in free if number >= each]
    if each == 0 or request.gpus or any(labels.count(label) >= count for label in labels):
        wanted = f"fabric {request.fabric}" if request.fabric else "one fabric"
        has = [f"{node.name}: {_list_own(node)}" for node in candidates]
        what = f"no {count} nodes with the GPUs free share {wanted} ({shorten(has)})"
        fix = "see llmgw fabric for why; or ask for plain TCP between the nodes (--fabric tcp)"
        return error("no-common-fabric", "fabric", what, fix)
    of_class = f"of class {request.gpu_class}" if request.gpu_class else "of one class"
    seen = shorten([f"{node.name} {number} {label}" for node, number, label in free]) or "none"
    what = f"no {count} nodes have {each} free GPUs {of_class} each: free are {seen}"
    fix = "see llmgw inventory for what holds them; stop something, or take fewer GPUs"
    return error("no-free-gpus", "gpus", what, fix)


def _list_own(node: Node) -> str:
    names = {port.fabric for port in node.ports if port.usable and port.fabric}
    return ", ".join(sorted(names)) or "none"


def _tell_no_block(node: Node) -> Finding:
    what = f"no {BLOCK_SIZE} ports in a row are free from {FIRST_BLOCK} on"
    return error("no-port", "ports", what, "stop engines that are not needed", node.name)
