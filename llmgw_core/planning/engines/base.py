"""What the engines' adapters share. Pure."""

import math
from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.planning.mig import is_slice
from llmgw_core.planning.placement import Placement

_NVIDIA, _AMD = "nvidia", "amd"
_PATH_STARTS = ("/", "./", "../", "~")


@dataclass(frozen=True)
class Command:
    """What one rank runs, and what is added to the node's base environment."""

    argv: Tuple[str, ...]
    env: Dict[str, str]


_WHY = {
    "NO_COLOR": "a log without colour codes",
    "PYTHONUNBUFFERED": "lines reach the log when they are printed",
    "HF_HUB_OFFLINE": "the model is a path: nothing is to be asked of the hub",
    "CUDA_DEVICE_ORDER": "GPUs are counted as nvidia-smi counts them",
    "CUDA_VISIBLE_DEVICES": "the GPUs of this rank, and no others",
    "HIP_VISIBLE_DEVICES": "the GPUs of this rank, and no others",
    "VLLM_ENGINE_READY_TIMEOUT_S": "as long to load as the launch gives",
    "VLLM_NO_USAGE_STATS": "no reports to others",
    "VLLM_HOST_IP": "the address by which the engine's own processes reach this node",
    "SGLANG_HOST_IP": "the address by which the engine's own processes reach this node",
}


def explain_env(
    request: LaunchRequest, env: Mapping[str, str], network: Mapping[str, str]
) -> Dict[str, str]:
    """Why each variable is set as it is.

    Args:
        network: the reasons of those that the network decides.
    """
    return {
        name: "asked for by the launch"
        if request.env.get(name) == value
        else network.get(name) or _WHY.get(name, "set by llmgw")
        for name, value in env.items()
    }


def served_name(request: LaunchRequest) -> str:
    """The model's name in the engine's API: the operator's, else the engine's own."""
    return request.served_model_name or request.name


def is_path(model: str) -> bool:
    """Whether the model is a path on the node, not a hub name."""
    return model.startswith(_PATH_STARTS) or model in (".", "..")


def build_env(
    request: LaunchRequest, placement: Placement, own: Mapping[str, str]
) -> Dict[str, str]:
    """Defaults of all engines, `own` ones of this engine, then the request's, then what the placement decides.

    Indices count as nvidia-smi counts them only with CUDA_DEVICE_ORDER=PCI_BUS_ID. A CPU engine on a node with GPUs
    sees none, so that a GPU build does not take the first.
    """
    env = {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    if is_path(request.model):
        env["HF_HUB_OFFLINE"] = "1"
    env.update(own)
    env.update(request.env)
    env.update(_choose_devices(placement))
    return env


def _choose_devices(placement: Placement) -> Dict[str, str]:
    makers = {gpu.vendor for gpu in placement.gpus or placement.node.gpus}
    env: Dict[str, str] = {}
    if _NVIDIA in makers:
        if placement.gpus:
            env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        env["CUDA_VISIBLE_DEVICES"] = _list_visible(placement, _NVIDIA)
    if _AMD in makers:
        env["HIP_VISIBLE_DEVICES"] = _list_visible(placement, _AMD)
    return env


def _list_visible(placement: Placement, vendor: str) -> str:
    """The chosen GPUs of that maker as its own runtime counts them: from 0, without those of others."""
    own = sorted(gpu.index for gpu in placement.node.gpus if gpu.vendor == vendor)
    chosen = [gpu.index for gpu in placement.gpus if gpu.vendor == vendor]
    slices = [gpu.uuid for gpu in placement.gpus if gpu.uuid is not None and is_slice(gpu)]
    if slices:
        return ",".join(slices)  # they have no number
    if vendor == _NVIDIA:
        return ",".join(str(index) for index in chosen)  # numbered by nvidia-smi itself
    return ",".join(str(own.index(index)) for index in chosen)


def list_flags(pairs: Sequence[Tuple[str, object]]) -> Tuple[str, ...]:
    """The words of each (flag, value); a value of None leaves the flag out."""
    words: List[str] = []
    for flag, value in pairs:
        if value is not None:
            words += [flag, str(value)]
    return tuple(words)


def above_one(size: int) -> Optional[int]:
    """The size, or None where the engine's own default of 1 says it."""
    return size if size > 1 else None


def whole_seconds(seconds: float) -> str:
    """Rounded up, for variables that take whole seconds; a time without end is a day."""
    return str(math.ceil(seconds) if math.isfinite(seconds) else 86400)


def check_owned(request: LaunchRequest, owned: Mapping[str, str]) -> Iterator[Finding]:
    """Arguments that llmgw sets itself: given twice, the engine and the plan would not agree.

    Engines take shortened flags and `_` for `-`, so those count too.

    Args:
        owned: flag → the field of the request that sets it.
    """
    for argument in request.args:
        flag = argument.partition("=")[0]
        field = find_owner(flag, owned)
        if field is not None:
            what = f"{flag} is set by llmgw"
            fix = f"give it as {field} instead"
            yield Finding("args-owned", Severity.ERROR, "args", what, fix)


def find_owner(flag: str, owned: Mapping[str, str]) -> Optional[str]:
    """The field that sets this flag, or one that it is short for; None: it is the operator's."""
    if flag in owned:
        return owned[flag]
    if not flag.startswith("--") or flag == "--":
        return None
    long = flag.replace("_", "-")
    return next((field for known, field in owned.items() if known.startswith(long)), None)
