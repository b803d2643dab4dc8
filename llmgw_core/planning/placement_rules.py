"""Rules on a request in its place: the node's names and ports, the GPUs' health, class and types. Pure."""

# ruff: noqa: ARG001
# All rules have one signature, so that they can be listed; not each looks at the request.

from typing import Callable, Iterator, Sequence, Tuple

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.planning.mig import check_slices
from llmgw_core.planning.placement import Placement, list_ports
from llmgw_core.planning.quantization_rules import (
    FP8_CAPABILITY,
    group_by_capability,
    show_capability,
)

BF16_CAPABILITY = 80


def check_placement(request: LaunchRequest, placement: Placement) -> Tuple[Finding, ...]:
    """Everything wrong with the request at that place, in a fixed order. Empty means fine."""
    return tuple(finding for rule in RULES for finding in rule(request, placement))


def check_name_is_free(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """One living engine of a name on a node."""
    for engine in placement.node.engines:
        if engine.name == request.name and not engine.state.is_over:
            yield _error(
                "name-taken",
                placement,
                "name",
                f"{request.name} is {engine.state.value} there as {engine.id}",
                f"choose another name, or stop it: llmgw stop {engine.id}",
            )


def check_name_elsewhere(
    request: LaunchRequest, places: Sequence[Placement], nodes: Sequence[Node]
) -> Iterator[Finding]:
    """The same name on another node is allowed (a replica), and makes commands by name ask which."""
    own = {place.node.name for place in places}
    others = [
        node.name
        for node in nodes
        if node.name not in own
        and any(item.name == request.name and not item.state.is_over for item in node.engines)
    ]
    if others:
        yield Finding(
            "name-elsewhere",
            Severity.WARNING,
            "name",
            f"{request.name} is also on {', '.join(others)}",
            "commands by name will ask for --node",
        )


def check_port_is_free(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """No other engine of the node has the port; strangers are found by the node's own preflight."""
    if placement.port is None:
        return
    holder = list_ports(placement.node).get(placement.port)
    if holder is not None:
        yield _error(
            "port-taken",
            placement,
            "port",
            f"{placement.port} is the port of {holder}",
            "choose another port, or leave it out",
        )


def check_gpus_are_available(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """An operator would launch on each of them."""
    for gpu in placement.gpus:
        if gpu.available:
            continue
        reasons = [flag.message for flag in gpu.health if flag.severity is Severity.ERROR]
        if gpu.engine is not None:
            reasons.insert(0, f"engine {gpu.engine} holds it")
        yield _error(
            "gpu-taken" if gpu.engine is not None else "gpu-unfit",
            placement,
            f"GPU {gpu.index}",
            "; ".join(reasons) or "it is not available",
            "choose another GPU, or free this one",
        )


def check_one_class(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """A tensor-parallel group runs at the pace, and within the memory, of its smallest card."""
    classes = sorted({gpu.gpu_class or "unknown" for gpu in placement.gpus})
    if len(classes) > 1:
        yield _error(
            "mixed-classes",
            placement,
            "gpus",
            f"they are of classes {', '.join(classes)}",
            "choose GPUs of one class",
        )


def check_slices_of_gpus(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """A rank has one MIG slice, or whole GPUs."""
    return check_slices(placement.node.name, placement.gpus)


def check_class_asked_for(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """Explicit GPUs of another class than the explicit class are a contradiction."""
    if request.gpu_class is None:
        return
    for gpu in placement.gpus:
        if gpu.gpu_class != request.gpu_class:
            yield _error(
                "class-differs",
                placement,
                f"GPU {gpu.index}",
                f"it is {gpu.gpu_class or 'of unknown class'}, {request.gpu_class} is asked for",
                "choose other GPUs, or leave the class out",
            )


def check_types(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """bfloat16, and FP8 in the KV cache, have floors of their own."""
    wants_fp8_kv = (request.kv_cache_dtype or "").startswith("fp8")
    for capability, gpus in group_by_capability(placement.gpus).items():
        if capability is None:
            continue
        if request.dtype == "bfloat16" and capability < BF16_CAPABILITY:
            yield _error(
                "dtype-capability",
                placement,
                gpus,
                f"bfloat16 needs compute capability 8.0, this is {show_capability(capability)}",
                "use --dtype half",
            )
        if wants_fp8_kv and capability < FP8_CAPABILITY:
            yield _error(
                "fp8-kv-capability",
                placement,
                gpus,
                f"an FP8 KV cache needs compute capability 8.9, this is {show_capability(capability)}",
                "leave the KV cache's type out, or take it: --override fp8-kv-capability",
            )


Rule = Callable[[LaunchRequest, Placement], Iterator[Finding]]
RULES: Tuple[Rule, ...] = (
    check_name_is_free,
    check_port_is_free,
    check_gpus_are_available,
    check_one_class,
    check_slices_of_gpus,
    check_class_asked_for,
    check_types,
)


def _error(code: str, placement: Placement, subject: str, what: str, fix: str) -> Finding:
    node = placement.node.name
    return Finding(code, Severity.ERROR, f"{node} {subject}", what, fix, node)
