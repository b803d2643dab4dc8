"""Rules on a request in its place: the node's names and ports, the GPUs' health, class and capability. Pure."""

# ruff: noqa: ARG001
# All rules have one signature, so that they can be listed; not each looks at the request.

from typing import Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.planning.placement import Placement, list_ports

FP8_CAPABILITY = 89  # native FP8 arithmetic; below it, weight-only kernels
BF16_CAPABILITY = 80
FP8_METHODS = frozenset(
    {"fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "w8a8_fp8", "modelopt"}
)
# Compute capability × 10 below which an engine refuses the method. Source: `get_min_capability` of vLLM 0.32 and
# SGLang 0.5.23; a method that is not here has no floor that is known.
FLOORS: Mapping[EngineKind, Mapping[str, int]] = {
    EngineKind.VLLM: {
        "awq": 75,
        "auto_awq": 75,
        "awq_marlin": 75,
        "gptq": 60,
        "auto_gptq": 60,
        "gptq_marlin": 75,
        "fp8": 75,
        "compressed-tensors": 70,
        "modelopt": 80,
        "modelopt_fp4": 75,
        "mxfp4": 80,
        "moe_wna16": 70,
        "int8_per_channel_weight_only": 75,
    },
    EngineKind.SGLANG: {
        "awq": 80,
        "awq_marlin": 80,
        "gptq": 60,
        "gptq_marlin": 80,
        "fp8": 80,
        "mxfp8": 100,
        "compressed-tensors": 70,
        "modelopt": 89,
        "modelopt_fp4": 80,
        "mxfp4": 80,
        "w8a8_int8": 75,
        "w8a8_fp8": 89,
        "w4afp8": 90,
        "moe_wna16": 70,
        "bitsandbytes": 70,
        "gguf": 60,
    },
}


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
    request: LaunchRequest, placement: Placement, nodes: Sequence[Node]
) -> Iterator[Finding]:
    """The same name on another node is allowed (a replica), and makes commands by name ask which."""
    others = [
        node.name
        for node in nodes
        if node.name != placement.node.name
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


def check_quantization(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """The method runs on every card: the engine's own floor, and FP8's by policy."""
    method = request.quantization
    if method is None:
        return
    floor = FLOORS[request.engine].get(method)
    for capability, gpus in _by_capability(placement.gpus).items():
        if capability is None:
            if floor is not None or method in FP8_METHODS:
                yield _unknown_capability(method, gpus, placement)
        elif floor is not None and capability < floor:
            yield _error(
                "quantization-capability",
                placement,
                gpus,
                f"{request.engine.value} runs {method} from compute capability {_show(floor)} on,"
                f" this is {_show(capability)}",
                "choose other GPUs, or another checkpoint; --override quantization-capability if you know better",
            )
        elif method in FP8_METHODS and capability < FP8_CAPABILITY:
            yield _error(
                "fp8-capability",
                placement,
                gpus,
                f"no FP8 arithmetic below compute capability 8.9, this is {_show(capability)}:"
                " the engine would run weight-only kernels, slowly",
                "choose other GPUs, or take it: --override fp8-capability",
            )


def check_types(request: LaunchRequest, placement: Placement) -> Iterator[Finding]:
    """bfloat16, and FP8 in the KV cache, have floors of their own."""
    wants_fp8_kv = (request.kv_cache_dtype or "").startswith("fp8")
    for capability, gpus in _by_capability(placement.gpus).items():
        if capability is None:
            continue
        if request.dtype == "bfloat16" and capability < BF16_CAPABILITY:
            yield _error(
                "dtype-capability",
                placement,
                gpus,
                f"bfloat16 needs compute capability 8.0, this is {_show(capability)}",
                "use --dtype half",
            )
        if wants_fp8_kv and capability < FP8_CAPABILITY:
            yield _error(
                "fp8-kv-capability",
                placement,
                gpus,
                f"an FP8 KV cache needs compute capability 8.9, this is {_show(capability)}",
                "leave the KV cache's type out, or take it: --override fp8-kv-capability",
            )


Rule = Callable[[LaunchRequest, Placement], Iterator[Finding]]
RULES: Tuple[Rule, ...] = (
    check_name_is_free,
    check_port_is_free,
    check_gpus_are_available,
    check_one_class,
    check_class_asked_for,
    check_quantization,
    check_types,
)


def parse_capability(text: Optional[str]) -> Optional[int]:
    """Compute capability × 10 (`8.9` → 89, `12.0` → 120); None when unknown. Compared as numbers: "10.0" > "8.9"."""
    major, dot, minor = (text or "").partition(".")
    if not dot or not major.isdecimal() or not minor.isdecimal():
        return None
    return int(major) * 10 + int(minor)


def _by_capability(gpus: Tuple[Gpu, ...]) -> Dict[Optional[int], str]:
    """Capability → the GPUs that have it, in words."""
    groups: Dict[Optional[int], list[str]] = {}
    for gpu in gpus:
        groups.setdefault(parse_capability(gpu.compute_capability), []).append(str(gpu.index))
    return {key: f"GPU {', '.join(indices)}" for key, indices in groups.items()}


def _unknown_capability(method: str, gpus: str, placement: Placement) -> Finding:
    return Finding(
        "capability-unknown",
        Severity.WARNING,
        f"{placement.node.name} {gpus}",
        f"whether it can run {method} is not known: its compute capability is not",
        "try it on one GPU first",
        placement.node.name,
    )


def _show(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def _error(code: str, placement: Placement, subject: str, what: str, fix: str) -> Finding:
    node = placement.node.name
    return Finding(code, Severity.ERROR, f"{node} {subject}", what, fix, node)
