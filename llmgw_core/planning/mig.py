"""Slices of GPUs in MIG mode, as units that a launch can take. Pure."""

import re
from dataclasses import replace
from typing import Iterator, Mapping, Optional, Sequence, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Gpu, MigInstance
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import RankPlan
from llmgw_core.planning.versions import parse_version

# "1g.18gb", "1c.3g.71gb", "1g.10gb+me": the memory is a nominal one, in GB; 4864 of 5 and 9728 of 10 MiB are there.
_MEMORY = re.compile(r"\.([0-9]{1,4})gb\b")
_OF_NOMINAL = 0.95
# vllm/platforms: up to 0.23 `int()` of each item of CUDA_VISIBLE_DEVICES, from 0.24 on by NVML.
_VLLM_TAKES_UUIDS = (0, 24)


def is_slice(gpu: Gpu) -> bool:
    """Whether this unit is a slice."""
    return (gpu.uuid or "").startswith("MIG-")


def list_slices(node: Node, wanted_class: Optional[str]) -> Tuple[Gpu, ...]:
    """The slices of that class as GPUs of their own; none where no class is asked for: nobody gets one unasked.

    A slice has its GPU's index, name, address and capability; its memory is reckoned from its profile.
    """
    return tuple(
        _as_gpu(gpu, item)
        for gpu in node.gpus
        for item in gpu.mig_instances
        if item.gpu_class is not None and item.gpu_class == wanted_class
    )


def list_slice_classes(nodes: Sequence[Node]) -> Tuple[str, ...]:
    """The classes of all slices that are free."""
    found = {
        item.gpu_class
        for node in nodes
        for gpu in node.gpus
        for item in gpu.mig_instances
        if item.available and item.gpu_class
    }
    return tuple(sorted(found))


def check_slices(name: str, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """CUDA shows a process the first slice of those it is given and no other, so ranks of several cannot run."""
    if len(gpus) > 1 and any(map(is_slice, gpus)):
        yield Finding(
            "mig-one-slice",
            Severity.ERROR,
            f"{name} gpus",
            f"{len(gpus)} MIG slices are asked for, and CUDA gives a process one",
            "take one larger slice, or whole GPUs",
            name,
        )


def check_engine(
    engine: EngineKind, ranks: Sequence[RankPlan], versions: Mapping[str, str]
) -> Iterator[Finding]:
    """Whether the engine takes a slice at all: only by its uuid can it be named, and older vLLMs want a number there.

    Args:
        versions: the engine's version by node, where it is known.
    """
    for rank in ranks:
        version = parse_version(versions.get(rank.node, ""))
        takes_uuids = version is None or version >= _VLLM_TAKES_UUIDS
        if (
            engine is EngineKind.VLLM
            and any(isinstance(unit, str) for unit in rank.units)
            and not takes_uuids
        ):
            yield Finding(
                "mig-engine",
                Severity.ERROR,
                f"{rank.node} gpus",
                f"vLLM {versions[rank.node]} ends on the uuid of a MIG slice: it takes them from 0.24 on",
                "install a newer vLLM, use SGLang, or take a whole GPU",
                rank.node,
            )


def _as_gpu(gpu: Gpu, item: MigInstance) -> Gpu:
    nominal = _MEMORY.search(item.profile)
    return replace(
        gpu,
        uuid=item.uuid,
        gpu_class=item.gpu_class,
        memory_total_mib=int(int(nominal[1]) * 1024 * _OF_NOMINAL) if nominal else None,
        memory_used_mib=None,
        memory_free_mib=None,
        available=item.available,
        engine=item.engine,
        mig_instances=(),
    )
