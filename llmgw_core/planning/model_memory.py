"""Whether a model fits its GPUs: weights, KV cache, and what is assumed of the rest, each told. Pure.

Weights and KV cache follow from the model's own files; activations and what CUDA, NCCL and graphs take are rough. So a
launch is refused where the first two alone do not fit, and warned of where the rest tips it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.domain.model import MemorySplit, ModelFacts, ModelShape
from llmgw_core.planning.engines.arguments import find_value, has_flag
from llmgw_core.planning.model_rules import attention_tp
from llmgw_core.planning.versions import Version, since

_MIB, _GIB = 1 << 20, 1 << 30
# Of GPU memory that the engine fills when nobody says. Source: vllm/config/cache.py of each version.
VLLM_FRACTION: tuple[tuple[Version, float], ...] = (((0,), 0.9), ((0, 20), 0.92))
# SGLang sets aside what it expects of activations and graphs (memory_hook.py): between 0.83 and 0.92 on usual cards.
SGLANG_FRACTION = 0.88
CUDA_BYTES = 1 * _GIB  # context, kernels, and graphs of one GPU
NCCL_BYTES = _GIB // 2  # buffers, where several GPUs work together
_LARGE_GPU_BYTES = 70 * _GIB
_BATCHED_TOKENS, _BATCHED_TOKENS_LARGE = 2048, 8192  # vLLM's own choice, by the card
_SAMPLED_SEQUENCES = 256
_LOGITS_BYTES = 12  # per sequence and word: logits as float32, their sort, probabilities
_TYPE_BYTES = {"float32": 4.0, "float": 4.0, "fp4": 0.5625, "nvfp4": 0.5625}
_FULL_TYPES = frozenset({"float32", "float"})
# Quantized while it is loaded: bytes left of each byte of a 16-bit checkpoint.
_ONLINE = {
    "fp8": 0.5,
    "fp8_per_tensor": 0.5,
    "fp8_per_block": 0.5,
    "fp8_per_channel": 0.5,
    "w8a8_fp8": 0.5,
    "w8a8_int8": 0.5,
    "mxfp8": 0.5,
    "experts_int8": 0.5,
    "int8_per_channel_weight_only": 0.5,
    "bitsandbytes": 0.25,
    "nvfp4_per_token": 0.25,
    "nvfp4_online": 0.25,
}
# With these the engine divides its memory in ways that are not counted here.
_UNCOUNTED = (
    "--cpu-offload-gb",
    "--kv-cache-memory-bytes",
    "--kv-transfer-config",
    "--kv-offloading-size",
)


@dataclass(frozen=True)
class KvCost:
    """What the KV cache takes on each GPU."""

    bytes_per_token: float
    is_upper_bound: bool  # some layers keep less: a window, or a state of fixed size
    tokens: int  # of one sequence of the longest length


def split_memory(
    request: LaunchRequest,
    node: str,
    gpus: tuple[Gpu, ...],
    model: ModelFacts,
    version: Version | None,
) -> MemorySplit | None:
    """What each GPU of the node would hold. None: a CPU engine, or the card's or the weights' size is not known.

    Args:
        version: of the engine on that node; None: the newest one's defaults.
    """
    sizes = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
    if not gpus or len(sizes) < len(gpus) or model.weight_bytes is None:
        return None
    total = min(sizes) * _MIB
    fraction = choose_fraction(request, version)
    shape = model.shape or ModelShape()
    kv = cost_kv(request, shape)
    world = request.tensor_parallel * request.pipeline_parallel
    return MemorySplit(
        node=node,
        gpus=len(gpus),
        memory_bytes=total,
        fraction=fraction,
        budget_bytes=int(total * fraction),
        weights_bytes=weigh(request, model),
        kv_bytes=None if kv is None else int(kv.bytes_per_token * kv.tokens),
        kv_tokens=None if kv is None else kv.tokens,
        kv_bytes_per_token=None if kv is None else int(kv.bytes_per_token),
        kv_is_upper_bound=kv is not None and kv.is_upper_bound,
        activation_bytes=_guess_activations(request, shape, total),
        overhead_bytes=CUDA_BYTES + (NCCL_BYTES if world > 1 else 0),
    )


def choose_fraction(request: LaunchRequest, version: Version | None) -> float:
    """The part of the GPU's memory that the engine may fill: the operator's, else the version's own default."""
    if request.gpu_memory_fraction is not None:
        return request.gpu_memory_fraction
    if request.engine is EngineKind.SGLANG:
        return SGLANG_FRACTION
    return VLLM_FRACTION[-1][1] if version is None else since(VLLM_FRACTION, version)


def weigh(request: LaunchRequest, model: ModelFacts) -> int:
    """Bytes of weights on each GPU, if all stages were alike; with experts at least, as they may be divided further."""
    total = float(model.weight_bytes or 0)
    shape = model.shape or ModelShape()
    if shape.quantization is None:
        total *= _ONLINE.get(request.quantization or "", 1.0)
        if shape.dtype in _FULL_TYPES and request.dtype not in _FULL_TYPES:
            total /= 2  # engines load such checkpoints in 16 bits
        elif shape.dtype not in _FULL_TYPES and request.dtype in _FULL_TYPES:
            total *= 2
    parts = request.tensor_parallel * request.pipeline_parallel
    if shape.experts is not None and request.engine is EngineKind.VLLM:
        parts *= request.data_parallel
    return int(total / parts)


def cost_kv(request: LaunchRequest, shape: ModelShape) -> KvCost | None:
    """What one sequence of the longest length takes on each GPU; None when config.json does not say enough."""
    tokens = request.max_model_len or shape.max_positions
    tp = attention_tp(request)
    if tokens is None or tp is None or shape.layers is None:
        return None
    layers = -(-shape.layers // request.pipeline_parallel)
    width = _kv_bytes_per_value(request, shape)
    bound = shape.sliding_window is not None or shape.is_hybrid
    if shape.kv_lora_rank is not None:
        values = shape.kv_lora_rank + (shape.qk_rope_head_dim or 0)
        return KvCost(layers * values * width, bound, tokens)
    if shape.kv_heads is None or shape.head_dim is None:
        return None
    heads = max(1, shape.kv_heads // tp)
    return KvCost(2 * layers * heads * shape.head_dim * width, bound, tokens)


def check_memory(request: LaunchRequest, split: MemorySplit) -> Iterator[Finding]:
    """Refuses what cannot fit, warns of what may not, and says how the memory is divided."""
    told = _describe(request, split)
    kv = split.kv_bytes or 0
    # SGLang serves with a smaller cache than one longest sequence needs; vLLM refuses to.
    kv_counts = request.engine is EngineKind.VLLM and not split.kv_is_upper_bound
    sure = split.weights_bytes + (kv if kv_counts else 0)
    whole = split.weights_bytes + kv + _rest(request, split)
    uncounted = [flag for flag in _UNCOUNTED if has_flag(request.args, flag)]
    subject = f"{split.node} GPU memory"
    if sure > split.budget_bytes and not uncounted:
        what = f"{_gib(sure)} of weights{' and KV cache' if kv_counts else ''} per GPU, and {_gib(split.budget_bytes)} may be filled"
        yield Finding(
            "model-fit", Severity.ERROR, subject, what, _advise(request, split), split.node, told
        )
    elif whole > split.budget_bytes:
        what = f"about {_gib(whole)} per GPU, and {_gib(split.budget_bytes)} may be filled: it may not fit"
        yield Finding(
            "model-fit-tight",
            Severity.WARNING,
            subject,
            what,
            _advise(request, split),
            split.node,
            told,
        )
    else:
        what = f"about {_gib(whole)} of {_gib(split.budget_bytes)} per GPU"
        yield Finding("model-memory", Severity.INFO, subject, what, "", split.node, told)


def check_free_memory(
    request: LaunchRequest, node: str, gpus: tuple[Gpu, ...], fraction: float
) -> Iterator[Finding]:
    """vLLM wants its whole share free at the start; SGLang wants all cards alike."""
    free = {
        gpu.index: left
        for gpu in gpus
        if gpu.available and (left := _free_mib(gpu)) is not None and gpu.memory_total_mib
    }
    if request.engine is EngineKind.VLLM:
        short = {
            gpu.index: gpu.memory_total_mib * fraction
            for gpu in gpus
            if gpu.index in free
            and gpu.memory_total_mib is not None
            and free[gpu.index] < gpu.memory_total_mib * fraction
        }
        for index, wanted in short.items():
            yield Finding(
                "gpu-memory-short",
                Severity.ERROR,
                f"{node} GPU {index}",
                f"{_gib(free[index] * _MIB)} are free, and vLLM wants {_gib(wanted * _MIB)} free to begin with",
                f"lower gpu_memory_fraction below {free[index] * fraction / wanted:.2f}, or free the card",
                node,
                f"{fraction:g} of its memory",
            )
    elif free and min(free.values()) < 0.9 * max(free.values()):
        low = min(free, key=lambda index: free[index])
        yield Finding(
            "gpu-memory-uneven",
            Severity.ERROR,
            f"{node} GPU {low}",
            f"{_gib(free[low] * _MIB)} are free, {_gib(max(free.values()) * _MIB)} on another: SGLang wants them alike",
            "free the card, choose others, or SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 in env",
            node,
            "less than 90 % of the most",
        )


def _free_mib(gpu: Gpu) -> int | None:
    if gpu.memory_free_mib is not None:
        return gpu.memory_free_mib
    if gpu.memory_total_mib is None or gpu.memory_used_mib is None:
        return None
    return gpu.memory_total_mib - gpu.memory_used_mib


def _kv_bytes_per_value(request: LaunchRequest, shape: ModelShape) -> float:
    asked = request.kv_cache_dtype or "auto"
    if asked.startswith(("fp8", "int8", "mxfp8")):
        return 1.0
    if asked == "auto":
        asked = request.dtype or shape.dtype or ""
        if request.dtype in {None, "auto"} and shape.dtype in _FULL_TYPES:
            asked = ""  # loaded in 16 bits
    return next((size for name, size in _TYPE_BYTES.items() if asked.startswith(name)), 2.0)


def _guess_activations(request: LaunchRequest, shape: ModelShape, total: int) -> int:
    """Rough: the widest layer for one batch of prompt tokens, and logits for a full batch of sequences."""
    said = find_value(request.args, "--max-num-batched-tokens") or ""
    usual = _BATCHED_TOKENS_LARGE if total >= _LARGE_GPU_BYTES else _BATCHED_TOKENS
    tokens = int(said) if said.isdecimal() and len(said) < 10 else usual  # noqa: PLR2004 - no hostile number
    hidden, width = shape.hidden_size or 0, shape.intermediate_size or 0
    layer = 2 * tokens * (4 * hidden + 2 * width // request.tensor_parallel)
    return layer + _SAMPLED_SEQUENCES * (shape.vocab_size or 0) * _LOGITS_BYTES


def _rest(request: LaunchRequest, split: MemorySplit) -> int:
    """SGLang's fraction is of weights and cache alone."""
    if request.engine is EngineKind.SGLANG:
        return 0
    return split.activation_bytes + split.overhead_bytes


def _advise(request: LaunchRequest, split: MemorySplit) -> str:
    ways = ["more GPUs"]
    left = split.budget_bytes - split.weights_bytes - _rest(request, split)
    if split.kv_bytes_per_token and left > split.kv_bytes_per_token:
        ways.insert(0, f"at most {left // split.kv_bytes_per_token} tokens (max_model_len)")
    if not (request.kv_cache_dtype or "").startswith("fp8"):
        ways.append("an FP8 KV cache")
    return f"{', '.join(ways)}, or a smaller checkpoint; --override model-fit if you know better"


def _describe(request: LaunchRequest, split: MemorySplit) -> str:
    own = "" if request.gpu_memory_fraction is not None else ", the engine's default"
    if request.engine is EngineKind.SGLANG and own:
        own = ", assumed: SGLang chooses it itself"
    parts = [f"weights {_gib(split.weights_bytes)}"]
    if split.kv_bytes is None:
        parts.append("a KV cache that config.json does not tell")
    else:
        most = "at most " if split.kv_is_upper_bound else ""
        parts.append(
            f"KV cache {most}{_gib(split.kv_bytes)} for one sequence of {split.kv_tokens} tokens"
        )
    if request.engine is EngineKind.VLLM:
        parts.append(f"about {_gib(split.activation_bytes)} of activations")
        parts.append(f"about {_gib(split.overhead_bytes)} for CUDA, NCCL and graphs")
    return f"{' + '.join(parts)}; {split.fraction:g} of {_gib(split.memory_bytes)}{own}"


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB"
