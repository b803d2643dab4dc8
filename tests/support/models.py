"""Models as directories of files: small ones that are whole, and what happens to them."""

import json
import struct
from pathlib import Path
from typing import Any

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "n_routed_experts": 256,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def write_shard(path: Path, size: int, *, cut: int = 0) -> None:
    """A safetensors file with one tensor of that many bytes, cut short by `cut`."""
    entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": entry}).encode()
    data = struct.pack("<Q", len(header)) + header + bytes(size)
    path.write_bytes(data[: len(data) - cut])


def write_model(
    root: Path, config: dict[str, Any], *, shards: int = 2, said: int | None = None
) -> Path:
    """A model of `shards` files with 100 bytes of tensors each, and its index.

    Args:
        said: the index's total_size; None: it says none.
    """
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.json").write_text(json.dumps(config))
    names = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    for name in names:
        write_shard(root / name, 100)
    index: dict[str, Any] = {
        "weight_map": {f"t{number}": name for number, name in enumerate(names)}
    }
    if said is not None:
        index["metadata"] = {"total_size": said}
    (root / "model.safetensors.index.json").write_text(json.dumps(index))
    return root
