"""Whether the cards run the model's quantization: by the request, or by the checkpoint's own word. Pure."""

from collections.abc import Iterator

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.domain.model import ModelShape, Quantization
from llmgw_core.planning.engines.floors import FLOORS, FP8_METHODS
from llmgw_core.planning.versions import Version, since

FP8_CAPABILITY = 89  # native FP8 arithmetic
# Names that an engine takes for one another: given the one, it runs the other's checkpoint.
_FAMILIES = (
    {"awq", "auto_awq", "awq_marlin", "moe_wna16"},
    {"gptq", "auto_gptq", "gptq_marlin", "gptq_marlin_24", "gptq_bitblas", "moe_wna16"},
    {"fp8", "w8a8_fp8", "deepseek_v4_fp8", "w4afp8"},
    {"modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed", "w4afp8"},
    {"modelopt_fp4", "petit_nvfp4"},
    {"compressed-tensors", "w8a8_fp8", "w8a8_int8"},
    {"mxfp4", "gpt_oss_mxfp4"},
    {"bitsandbytes"},
)


def check_quantization(
    request: LaunchRequest,
    node: str,
    gpus: tuple[Gpu, ...],
    shape: ModelShape | None,
    version: Version | None,
) -> Iterator[Finding]:
    """The method runs on every card: the engine's own floor at its version, and FP8's by policy.

    Args:
        shape: of the model; None: only what the request says is judged.
        version: of the engine on that node; None: where versions differ, that is told.
    """
    given = None if shape is None else shape.quantization
    yield from _check_agreement(request, node, given)
    methods = _list_methods(request, given)
    if not methods:
        return
    source = "" if request.quantization is not None else "config.json says so"
    for capability, words in group_by_capability(gpus).items():
        for method in methods:
            found = _judge(
                request.engine, method, capability, _find_floors(request.engine, method, version)
            )
            if found is not None:
                code, severity, what, fix = found
                yield Finding(code, severity, f"{node} {words}", what, fix, node, source)


def parse_capability(text: str | None) -> int | None:
    """Compute capability × 10 (`8.9` → 89, `12.0` → 120); None when unknown. Compared as numbers: "10.0" > "8.9"."""
    major, dot, minor = (text or "").partition(".")
    if not dot or not major.isdecimal() or not minor.isdecimal():
        return None
    return int(major) * 10 + int(minor)


def show_capability(capability: int) -> str:
    """89 → `8.9`."""
    return f"{capability // 10}.{capability % 10}"


def group_by_capability(gpus: tuple[Gpu, ...]) -> dict[int | None, str]:
    """Capability → the GPUs that have it, in words."""
    groups: dict[int | None, list[str]] = {}
    for gpu in gpus:
        groups.setdefault(parse_capability(gpu.compute_capability), []).append(str(gpu.index))
    return {key: f"GPU {', '.join(indices)}" for key, indices in groups.items()}


def _list_methods(request: LaunchRequest, given: Quantization | None) -> list[str]:
    """What decides: the checkpoint's schemes where it tells them, else the request's word, else the checkpoint's."""
    if given is not None and given.method == "compressed-tensors" and given.schemes:
        return [f"{given.method} {scheme}" for scheme in given.schemes]
    if request.quantization is not None:
        return [request.quantization]
    return [] if given is None else [given.method]


def _check_agreement(
    request: LaunchRequest, node: str, given: Quantization | None
) -> Iterator[Finding]:
    asked = request.quantization
    if asked is None or given is None or asked == given.method:
        return
    known = [family for family in _FAMILIES if given.method in family]
    judged = any(asked in family for family in _FAMILIES)
    if not known or not judged or any(asked in family for family in known):
        return
    yield Finding(
        "quantization-differs",
        Severity.ERROR,
        "quantization",
        f"{asked} is asked for, and the checkpoint is {given.method}",
        "leave quantization out: the engine reads it from the checkpoint",
        node,
        "config.json names its own method, and the engine refuses another",
    )


def _find_floors(engine: EngineKind, method: str, version: Version | None) -> set[int]:
    """The floor at that version; those of all versions where it is not known; none where none is known."""
    changes = FLOORS[engine].get(method, ())
    if changes and version is not None:
        return {since(changes, version)}
    return {floor for _, floor in changes}


def _judge(
    engine: EngineKind, method: str, capability: int | None, floors: set[int]
) -> tuple[str, Severity, str, str] | None:
    """(code, severity, what, fix); None: it runs."""
    is_fp8 = method in FP8_METHODS
    if capability is None:
        what = f"whether it can run {method} is not known: its compute capability is not"
        unknown = ("capability-unknown", Severity.WARNING, what, "try it on one GPU first")
        return unknown if floors or is_fp8 else None
    shown = show_capability(capability)
    if floors and capability < min(floors):
        what = f"{engine.value} runs {method} from compute capability {show_capability(min(floors))} on, this is {shown}"
        fix = "choose other GPUs, or another checkpoint; --override quantization-capability if you know better"
        return "quantization-capability", Severity.ERROR, what, fix
    if floors and capability < max(floors):
        either = f"{show_capability(min(floors))} or {show_capability(max(floors))}"
        what = f"{engine.value} runs {method} from compute capability {either} on, by its version; this is {shown}"
        fix = "look which version is installed on the node"
        return "quantization-version", Severity.WARNING, what, fix
    if is_fp8 and capability < FP8_CAPABILITY:
        what = f"no FP8 arithmetic below compute capability 8.9, this is {shown}: the engine would run weight-only kernels, slowly"
        fix = "choose other GPUs, or take it: --override fp8-capability"
        return "fp8-capability", Severity.ERROR, what, fix
    return None
