"""Rules on ranks over several nodes: what a launch on one node need not think of. Pure."""

from typing import Iterator, Optional, Sequence, Tuple

from llmgw_core.domain.deployment import deployment_id, group_ranks
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.inventory import Fabric, Node
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.domain.reach import Reach
from llmgw_core.planning.gang_placement import TCP, GangPlacement
from llmgw_core.planning.ranks import ADAPTERS

# Set by the plan for all ranks alike; another value on one of them is how launches hang.
_LISTED = 8
_NETWORK = ("NCCL_", "GLOO_", "UCX_", "NVSHMEM_", "VLLM_HOST_IP", "SGLANG_HOST_IP")


def check_gang(
    request: LaunchRequest, gang: GangPlacement, fabrics: Sequence[Fabric]
) -> Tuple[Finding, ...]:
    """Everything worth a word about the ranks together, in a fixed order."""
    return (
        *ADAPTERS[request.engine].check_gang(request, len(gang.places)),
        *_check_classes(gang),
        *_check_drivers(gang),
        *_check_span(request, gang),
        *_check_fabric(gang, fabrics),
        *_check_own_env(request),
        *_check_workdir(request),
    )


def check_fenced(request: LaunchRequest, nodes: Sequence[Node]) -> Iterator[Finding]:
    """A rank on a node that does not answer may live, and would serve beside what is launched in its place.

    A rank's records tell of its launch until they are forgotten, so a node that ended its own still knows of the others.
    """
    silent = [node.name for node in nodes if not node.reachable]
    if not silent:
        return
    named = [
        (node.name, engine)
        for node in nodes
        for engine in node.engines
        if node.reachable and engine.name == request.name and engine.ranks > 1
    ]
    for ranks in group_ranks(named).values():
        head = ranks[0][1]
        unheard = head.ranks - len(ranks)
        if unheard > 0:
            what = (
                f"{unheard} of {head.ranks} ranks of {deployment_id(head)} were not heard of, and"
                f" {', '.join(silent[:_LISTED])} {'does' if len(silent) == 1 else 'do'} not answer"
            )
            fix = (
                "unreachable is not dead: bring the node back, or make sure that it is off (fence it)"
                " and take it upon you: --override not-fenced"
            )
            yield Finding("not-fenced", Severity.ERROR, "name", what, fix)


def _check_classes(gang: GangPlacement) -> Iterator[Finding]:
    """Each node's own GPUs are judged by the rule for one node."""
    by_class: dict[str, list[str]] = {}
    for place in gang.places:
        for gpu in place.gpus:
            by_class.setdefault(gpu.gpu_class or "unknown", []).append(place.node.name)
    if len(by_class) > 1:
        seen = "; ".join(f"{name} on {nodes[0]}" for name, nodes in by_class.items())
        what = f"the ranks' GPUs are of classes {seen}"
        fix = "choose nodes with GPUs of one class (--gpu-class)"
        yield Finding("mixed-classes", Severity.ERROR, "gpus", what, fix)


def _check_drivers(gang: GangPlacement) -> Iterator[Finding]:
    drivers = {
        place.node.driver_version: place.node.name
        for place in gang.places
        if place.gpus and place.node.driver_version
    }
    if len(drivers) > 1:
        seen = ", ".join(f"{name} has {version}" for version, name in drivers.items())
        what = f"the nodes' drivers differ: {seen}"
        fix = "it may run; if ranks disagree, bring the nodes to one version"
        yield Finding("driver-differs", Severity.WARNING, "driver", what, fix)


def _check_span(request: LaunchRequest, gang: GangPlacement) -> Iterator[Finding]:
    local = len(gang.places[0].gpus) or max(1, request.tensor_parallel // len(gang.places))
    if request.tensor_parallel > local:
        over = "plain TCP" if gang.fabric in (None, TCP) else gang.fabric
        what = f"each layer's {request.tensor_parallel} tensor-parallel parts meet over {over}, several times a token"
        fix = f"it runs; TP {local} with more pipeline stages sends far less between nodes"
        yield Finding("tp-over-nodes", Severity.WARNING, "tensor_parallel", what, fix)


def _check_fabric(gang: GangPlacement, fabrics: Sequence[Fabric]) -> Iterator[Finding]:
    if gang.fabric == TCP:
        what = "the ranks talk by plain TCP, as asked for by name"
        yield Finding(
            "plain-tcp", Severity.WARNING, "fabric", what, "expect a fraction of RDMA's rate"
        )
        return
    fabric: Optional[Fabric] = next((item for item in fabrics if item.id == gang.fabric), None)
    if fabric is not None and fabric.verdict is Reach.POSSIBLE:
        what = f"that the nodes reach one another over {fabric.id} is possible, not proven: {fabric.reason or 'untried'}"
        fix = "settle it: llmgw fabric --probe"
        yield Finding("fabric-unproven", Severity.WARNING, "fabric", what, fix)


def _check_own_env(request: LaunchRequest) -> Iterator[Finding]:
    for name in sorted(request.env):
        if name.startswith(_NETWORK):
            what = f"{name} is set by the launch for all ranks: the plan's own choice for each node gives way"
            fix = "leave it out unless you know better: nodes differ in names"
            yield Finding("network-env", Severity.WARNING, "env", what, fix)


def _check_workdir(request: LaunchRequest) -> Iterator[Finding]:
    if request.model.startswith("/") or request.workdir is not None:
        return
    if not request.model.startswith(("./", "../")):
        what = f"{request.model} is a hub name: each node loads it by itself"
        fix = "see that every node has it in its cache, or give a path that all share"
        yield Finding("hub-model-nodes", Severity.INFO, "model", what, fix)
