"""config.json as models write it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.model_config import parse_config
from llmgw_core.domain.model import ModelShape, Quantization
from tests.support.models import DEEPSEEK, LLAMA


def shape(**config: Any) -> ModelShape:
    return parse_config(config, None)


def test_llama() -> None:
    assert parse_config(LLAMA, None) == ModelShape(
        architecture="LlamaForCausalLM",
        hidden_size=8192,
        intermediate_size=28672,
        layers=80,
        heads=64,
        kv_heads=8,
        head_dim=128,
        vocab_size=128256,
        max_positions=131072,
        dtype="bfloat16",
    )


def test_latent_attention_and_block_quantization() -> None:
    found = parse_config(DEEPSEEK, None)

    assert (found.kv_lora_rank, found.qk_rope_head_dim, found.experts) == (512, 64, 256)
    assert found.quantization == Quantization("fp8", (), 128)


def test_model_of_more_than_text_keeps_its_numbers_inside() -> None:
    found = shape(
        architectures=["Gemma3ForConditionalGeneration"],
        vision_config={"hidden_size": 1152},
        text_config={"hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024},
    )

    assert (found.hidden_size, found.layers, found.sliding_window) == (2560, 34, 1024)
    assert found.architecture == "Gemma3ForConditionalGeneration"


def test_language_model_two_levels_down() -> None:
    assert shape(thinker_config={"text_config": {"num_hidden_layers": 48}}).layers == 48


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        ({"num_attention_heads": 32}, 32),
        ({"num_attention_heads": 71, "num_kv_heads": 71, "multi_query": True}, 1),
        (
            {
                "n_head": 128,
                "num_kv_heads": 8,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            8,
        ),
        ({"n_heads": 48, "attn_config": {"kv_n_heads": 8}}, 8),
        ({"num_attention_heads": 32, "num_key_value_heads": [8, 4]}, None),
        ({"num_attention_heads": 32, "num_key_value_heads": 0}, None),
        ({"num_attention_heads": "32"}, None),
        ({"num_attention_heads": True}, None),
        ({}, None),
    ],
)
def test_kv_heads(config: dict[str, Any], heads: int | None) -> None:
    assert parse_config(config, None).kv_heads == heads


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"max_position_embeddings": 4096, "model_max_length": 8192}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "yarn", "factor": 4.0}}, 16384),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "llama3", "factor": 8}},
            4096,
        ),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": "x"}},
            4096,
        ),
        ({"max_position_embeddings": 4096, "rope_scaling": "x"}, 4096),
        ({"max_position_embeddings": -1}, None),
        ({}, None),
    ],
)
def test_longest_context(config: dict[str, Any], length: int | None) -> None:
    assert parse_config(config, None).max_positions == length


def test_window_that_is_switched_off_is_none() -> None:
    assert shape(sliding_window=4096, use_sliding_window=False).sliding_window is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"quant_method": "awq", "group_size": 128, "bits": 4}, Quantization("awq", (), 128)),
        ({"quant_method": "GPTQ", "group_size": -1}, Quantization("gptq")),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            Quantization("modelopt_fp4", ("nvfp4",)),
        ),
        ({"quant_algo": "FP8"}, Quantization("modelopt", ("fp8",))),
        ({"quant_method": 5}, None),
        ({}, None),
        ("fp8", None),
    ],
)
def test_quantization(found: object, expected: Quantization | None) -> None:
    assert shape(quantization_config=found).quantization == expected


def test_each_group_of_compressed_tensors_tells_its_scheme() -> None:
    weights = {"num_bits": 8, "type": "float"}
    groups = {
        "group_0": {"weights": weights, "input_activations": {"num_bits": 8, "type": "float"}},
        "group_1": {"weights": {"num_bits": 4, "type": "int"}, "input_activations": None},
        "group_2": "x",
    }

    found = shape(
        quantization_config={"quant_method": "compressed-tensors", "config_groups": groups}
    )

    assert found.quantization == Quantization("compressed-tensors", ("w4a16-int", "w8a8-float"))


def test_modelopt_writes_a_file_of_its_own() -> None:
    found = parse_config({}, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})

    assert found.quantization == Quantization("modelopt", ("fp8",))


KEYS = (*LLAMA, *DEEPSEEK, "rope_scaling", "text_config", "attn_config", "sliding_window")
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    10**30,
    1e308,
    "x",
    [],
    [8, "x"],
    {},
    {"factor": 1e300, "type": "yarn"},
    {"num_attention_heads": 7, "text_config": {"hidden_size": 5}},
    {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": "x"}}}},
    {"quant_algo": [], "quantization": {"quant_algo": 5}},
)


@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD)))
def test_whatever_a_config_holds_is_no_error(config: dict[str, Any]) -> None:
    found = parse_config(config, config)

    assert found.layers is None or found.layers > 0
