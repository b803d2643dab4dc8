"""config.json of a model → the numbers that matter. Pure.

Source: the names that vLLM 0.32 (`vllm/config/model.py`, `transformers_utils`) and SGLang 0.5.23
(`sglang/srt/configs/model_config.py`) look for.
"""

import re
from typing import Any, Mapping, Optional, Sequence, Set, Tuple

from llmgw_core.agent.bounded_json import positive
from llmgw_core.domain.model import ModelShape, Quantization

# Where models of more than text keep the language model's own numbers.
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config", "text_model_config")
_ATTENTION = ("attn_config", "attention_config")
_NAMES: Mapping[str, Sequence[str]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": (
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "kv_n_heads",
        "n_kv_heads",
        "multi_query_group_num",
    ),
    "head_dim": ("head_dim", "head_size", "kv_channels", "attention_head_dim"),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "sliding_window": ("sliding_window", "window_size"),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"),
    "vocab_size": ("vocab_size",),
}
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "model_max_length",
)
# RoPE's that have scaled max_position_embeddings already, or do not lengthen it.
_UNSCALED_ROPE = frozenset(["su", "longrope", "llama3", "mrope", "default"])
# Keys of models whose layers are not all of full attention.
_HYBRID = re.compile(
    r"layers_block_type|hybrid_.*|mamba_.*|linear_(?:attn|conv|key|num|value).*|ssm_.*|attn_layer_.*"
    r"|attention_chunk_size|full_attention_interval|sliding_window_pattern|block_types"
)
_MAX_WORD = 100
_MAX_SCHEMES = 8
_FULL_BITS = 16  # of activations that are not quantized


def parse_config(config: Mapping[str, Any], hf_quant: Optional[Mapping[str, Any]]) -> ModelShape:
    """The model's shape. What is no number above 0 counts as not said.

    Args:
        hf_quant: hf_quant_config.json, where ModelOpt wrote one.
    """
    text = _find_language_model(config)
    levels = [text, *(text[key] for key in _ATTENTION if isinstance(text.get(key), dict))]
    numbers = {field: _first(levels, names) for field, names in _NAMES.items()}
    heads, hidden = numbers["heads"], numbers["hidden_size"]
    if numbers["kv_heads"] is None or _is_multi_query(levels):
        numbers["kv_heads"] = _count_kv_heads(levels, heads)
    if numbers["head_dim"] is None and heads and hidden:
        numbers["head_dim"] = hidden // heads
    if text.get("use_sliding_window") is False:
        numbers["sliding_window"] = None
    return ModelShape(
        architecture=_architecture(config),
        is_hybrid=_is_hybrid(text),
        max_positions=_longest(text),
        dtype=_word(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype")),
        quantization=_parse_quantization(config, text, hf_quant),
        **numbers,
    )


def _find_language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that holds the language model's numbers: the whole, or a nested one, at most two levels down."""
    found = config
    for _ in range(2):
        nested = next((found[key] for key in _NESTED if isinstance(found.get(key), dict)), None)
        if nested is None:
            break
        found = nested
    return found


def _first(levels: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Optional[int]:
    """The first that is a number. One that is a list, a number for each layer, makes the field unknown."""
    for level in levels:
        for name in names:
            if level.get(name) is not None:
                return positive(level[name])
    return None


def _count_kv_heads(levels: Sequence[Mapping[str, Any]], heads: Optional[int]) -> Optional[int]:
    """Where no key names them: one for multi-query attention, else as many as heads."""
    if _is_multi_query(levels):
        return 1
    named = any(level.get(name) is not None for level in levels for name in _NAMES["kv_heads"])
    return None if named else heads  # named: one number for each layer


def _is_multi_query(levels: Sequence[Mapping[str, Any]]) -> bool:
    """Falcon's first models name as many KV heads as heads, and have one."""
    is_new = any(level.get("new_decoder_architecture") is True for level in levels)
    return not is_new and any(level.get("multi_query") is True for level in levels)


def _is_hybrid(text: Mapping[str, Any]) -> bool:
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        return True
    return any(_HYBRID.fullmatch(key) and value for key, value in text.items())


def _architecture(config: Mapping[str, Any]) -> Optional[str]:
    names = config.get("architectures")
    return _word(names[0]) if isinstance(names, list) and names else None


def _longest(text: Mapping[str, Any]) -> Optional[int]:
    """The longest context by any key, with RoPE's factor: an upper bound of what an engine derives."""
    lengths = [value for name in _LENGTHS if (value := positive(text.get(name))) is not None]
    if not lengths:
        return None
    rope = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(rope, dict):
        return max(lengths)
    kind = str(rope.get("rope_type") or rope.get("type"))
    factor = rope.get("factor")
    if kind in _UNSCALED_ROPE or not isinstance(factor, (int, float)) or not 1 < factor < 10**6:
        return max(lengths)
    return int(max(lengths) * factor)


def _parse_quantization(
    config: Mapping[str, Any], text: Mapping[str, Any], hf_quant: Optional[Mapping[str, Any]]
) -> Optional[Quantization]:
    for source in (config, text):
        found = source.get("quantization_config") or source.get("compression_config")
        if isinstance(found, dict) and found:
            return _read_quantization(found)
    inner = (hf_quant or {}).get("quantization")
    if isinstance(inner, dict) and _word(inner.get("quant_algo")):
        return _read_modelopt(inner)
    return None


def _read_quantization(config: Mapping[str, Any]) -> Optional[Quantization]:
    method = _word(config.get("quant_method"))
    if method is None and _word(config.get("quant_algo")):
        method = "modelopt"
    if method is None:
        return None
    method = method.lower().replace("compressed_tensors", "compressed-tensors")
    if method == "modelopt":
        return _read_modelopt(config)
    block = config.get("weight_block_size")
    sizes = block if isinstance(block, list) else [config.get("group_size")]
    group = next((size for size in sizes if positive(size)), None)
    schemes = _compressed_schemes(config) if method == "compressed-tensors" else ()
    return Quantization(method, schemes, group)


def _read_modelopt(config: Mapping[str, Any]) -> Quantization:
    """ModelOpt's own names: FP8, NVFP4, …; vLLM and SGLang call those modelopt and modelopt_fp4."""
    algorithm = (_word(config.get("quant_algo")) or "").lower()
    method = "modelopt_fp4" if "fp4" in algorithm else "modelopt"
    return Quantization(
        method, (algorithm,) if algorithm else (), positive(config.get("group_size"))
    )


def _compressed_schemes(config: Mapping[str, Any]) -> Tuple[str, ...]:
    """`w8a8-float` for each group of layers: bits of weights and activations, and their type."""
    groups = config.get("config_groups")
    schemes: Set[str] = set()
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            continue
        bits, kind = positive(weights.get("num_bits")), _word(weights.get("type"))
        given = group.get("input_activations")
        activations = given if isinstance(given, dict) else {}
        wide = positive(activations.get("num_bits")) or _FULL_BITS
        if bits is not None and kind is not None:
            schemes.add(f"w{bits}a{wide}-{kind}")
    return tuple(sorted(schemes)[:_MAX_SCHEMES])


def _word(value: Any) -> Optional[str]:
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_WORD else None
