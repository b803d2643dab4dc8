"""Whether the model's files are there, and whether it splits as asked for: by what the nodes read of it. Pure.

Source: `vllm/config/model.py` (verify_with_parallel_config), `vllm/model_executor/layers/linear.py` (QKV, divide),
`sglang/srt/configs/model_config.py`; docs/cli.md says what is judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.domain.model import LaunchFacts, ModelFacts, ModelShape
from llmgw_core.planning.engines.arguments import find_value, has_flag

_LONGER = {
    EngineKind.VLLM: "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    EngineKind.SGLANG: "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
}
_PLAIN_FORMATS = frozenset({"", "auto", "safetensors", "pt", "hf"})
_LISTED = 3


@dataclass(frozen=True)
class ModelOnNode:
    """What one node of the launch knows of the model."""

    node: str
    facts: LaunchFacts


def check_files(request: LaunchRequest, known: Sequence[ModelOnNode]) -> Iterator[Finding]:
    """Each node has all of the model's files, whole, and the same ones."""
    for place in known:
        if place.facts.model is None:
            yield from _check_absent(request, place)
        else:
            yield from _check_present(request, place.node, place.facts.model)
    yield from _check_same(known)


def check_split(request: LaunchRequest, shape: ModelShape) -> Iterator[Finding]:
    """Heads, KV heads, layers and the feed-forward layer divide as the degrees of parallelism ask."""
    tp = attention_tp(request)
    if tp is None:
        return
    if shape.heads is not None and shape.heads % tp:
        what = f"{shape.heads} attention heads do not divide by {tp}"
        fix = f"choose one of {_list_divisors(shape.heads)}; --override heads-split if you know better"
        yield _error("heads-split", "tensor_parallel", what, fix)
    elif shape.kv_lora_rank is None and shape.kv_heads is not None:
        yield from _check_kv_heads(shape.kv_heads, tp)
    elif shape.kv_lora_rank is not None and tp > 1:
        what = (
            f"latent attention (MLA): its KV cache is not divided by {tp}, each GPU keeps all of it"
        )
        yield Finding("mla-replicated", Severity.INFO, "tensor_parallel", what)
    if shape.layers is not None and request.pipeline_parallel > shape.layers:
        what = f"{request.pipeline_parallel} stages for {shape.layers} layers"
        fix = f"at most {shape.layers}"
        yield _error("layers-split", "pipeline_parallel", what, fix)
    yield from _check_feed_forward(request, shape)


def check_length(request: LaunchRequest, shape: ModelShape) -> Iterator[Finding]:
    """No longer context than the model was made for, unless its engine is told to go on."""
    asked, longest = request.max_model_len, shape.max_positions
    if asked is None or longest is None or asked <= longest:
        return
    variable = _LONGER[request.engine]
    allowed = request.env.get(variable, "").lower() in {"1", "true"}
    yield Finding(
        "model-len-above",
        Severity.WARNING if allowed else Severity.ERROR,
        "max_model_len",
        f"{asked} tokens are asked for, the model's own limit is {longest}",
        f"at most {longest}; or {variable}=1 in env, where its position encoding can be stretched",
        None,
        "config.json" + (f"; {variable} lets the engine go on" if allowed else ""),
    )


def attention_tp(request: LaunchRequest) -> int | None:
    """Over how many GPUs one copy of the attention layers is divided; None: the arguments make it something else."""
    tp = request.tensor_parallel
    if request.engine is EngineKind.SGLANG:
        copies = find_value(request.args, "--attn-dp-size") or "1"
        if has_flag(request.args, "--enable-dp-attention"):
            copies = str(request.data_parallel)
        if not copies.isdecimal() or int(copies) < 1 or tp % int(copies):
            return None
        return tp // int(copies)
    if has_flag(request.args, "--hf-overrides"):
        return None
    return tp


def _check_absent(request: LaunchRequest, place: ModelOnNode) -> Iterator[Finding]:
    """A path that is not there is the node's own error; a hub's model would be downloaded."""
    if request.model.startswith(("/", ".", "~")) or ":" in request.model:
        return
    offline = request.env.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}
    yield Finding(
        "model-not-cached",
        Severity.ERROR if offline else Severity.WARNING,
        "model",
        f"{request.model} is not in the cache of {place.node}"
        + (", and HF_HUB_OFFLINE forbids to download it" if offline else ": it will be downloaded"),
        "download it first, to every node, or give a path; whether it fits is not known until then",
        place.node,
        f"looked in {place.facts.model_note}" if place.facts.model_note else "",
    )


def _check_present(request: LaunchRequest, node: str, model: ModelFacts) -> Iterator[Finding]:
    if model.torn_files:
        what = f"{_list(model.torn_files)} is not as long as its own header says"
        fix = "copy it again; a download that was cut leaves this"
        yield Finding("model-torn", Severity.ERROR, "model", what, fix, node, model.path)
    loads_plainly = (find_value(request.args, "--load-format") or "") in _PLAIN_FORMATS
    if model.missing_files or (model.weight_files == 0 and loads_plainly):
        absent = _list(model.missing_files) or "every weight file"
        if model.is_cached:
            what = f"{absent} is not in the cache: it will be downloaded"
            fix = "download it first, to every node"
            yield Finding(
                "model-not-cached", Severity.WARNING, "model", what, fix, node, model.path
            )
        else:
            fix = "copy the whole directory; the index names what belongs to it"
            what = f"{absent} is missing"
            yield Finding("weights-missing", Severity.ERROR, "model", what, fix, node, model.path)
    if model.unread:
        what = f"not all of it could be read: {'; '.join(model.unread[:_LISTED])}"
        fix = "what it says was not judged"
        yield Finding("model-unread", Severity.INFO, "model", what, fix, node, model.path)


def _check_same(known: Sequence[ModelOnNode]) -> Iterator[Finding]:
    """Ranks of one launch must load the same weights: nothing in an engine would notice."""
    prints: dict[str, list[str]] = {}
    for place in known:
        model = place.facts.model
        if model is not None and model.fingerprint is not None:
            prints.setdefault(model.fingerprint, []).append(place.node)
    if len(prints) < 2:  # noqa: PLR2004 - all have one
        return
    groups = [", ".join(nodes) for nodes in prints.values()]
    yield _error(
        "model-differs",
        "model",
        f"the model's files are not the same: {' | '.join(groups)}",
        "copy one of them to all nodes, or give one revision",
        "config, index, and the names and sizes of the weight files are compared",
    )


def _check_kv_heads(kv_heads: int, tp: int) -> Iterator[Finding]:
    if kv_heads % tp == 0:
        return
    if tp % kv_heads == 0:
        what = f"{kv_heads} KV heads over {tp} GPUs: each is kept {tp // kv_heads} times"
        yield Finding("kv-heads-replicated", Severity.INFO, "tensor_parallel", what)
        return
    what = f"{kv_heads} KV heads and {tp} GPUs: neither divides by the other"
    fix = "choose a degree that divides them, or a multiple of them; --override kv-heads-split if you know better"
    yield _error("kv-heads-split", "tensor_parallel", what, fix)


def _check_feed_forward(request: LaunchRequest, shape: ModelShape) -> Iterator[Finding]:
    """Of dense models: experts are divided in ways of their own."""
    width, tp = shape.intermediate_size, request.tensor_parallel
    if width is None or shape.experts is not None or tp == 1:
        return
    if width % tp:
        what = f"the feed-forward layer's {width} columns do not divide by {tp}"
        fix = f"choose one of {_list_divisors(width)}; --override width-split if you know better"
        yield _error("width-split", "tensor_parallel", what, fix)
        return
    group = None if shape.quantization is None else shape.quantization.group_size
    if group is not None and width // tp % group:
        what = f"{width // tp} columns on each GPU are no multiple of the quantization's {group}"
        fix = "choose a smaller degree, or another checkpoint"
        yield Finding("group-split", Severity.WARNING, "tensor_parallel", what, fix)


def _list_divisors(number: int) -> str:
    """Those up to 64 that anybody has GPUs for."""
    return ", ".join(str(size) for size in range(1, 65) if number % size == 0)


def _list(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _error(code: str, subject: str, what: str, fix: str, why: str = "config.json") -> Finding:
    return Finding(code, Severity.ERROR, subject, what, fix, None, why)
