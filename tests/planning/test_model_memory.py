"""What a model takes of its GPUs, against figures that the engines themselves give."""

from dataclasses import replace
from typing import Any

import pytest

from llmgw_core.agent.model_config import parse_config
from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.launch import LaunchPlan
from llmgw_core.domain.model import LaunchFacts, MemorySplit, ModelFacts, ModelShape
from llmgw_core.planning.model_memory import cost_kv, weigh
from tests.support.models import DEEPSEEK, LLAMA
from tests.support.plans import codes, gpu, node, planned, request

GIB = 1 << 30
LLAMA_70B = ModelFacts(
    "/m", weight_bytes=141_107_412_992, weight_files=30, shape=parse_config(LLAMA, None)
)
H100_MIB = 81_559


def card(index: int = 0, total: int = H100_MIB, **more: Any) -> Gpu:
    return gpu(index, memory_total_mib=total, **more)


def plan_of(model: ModelFacts, *cards: Gpu, version: str = "0.32.0", **asked: Any) -> LaunchPlan:
    facts = LaunchFacts(model, "", {"vllm": version, "sglang": version})
    asked = {"model": "/m", "gpus": tuple(item.index for item in cards), **asked}
    return planned(request(**asked), node("n1", *cards), facts={"n1": facts})


def split_of(made: LaunchPlan) -> MemorySplit:
    (split,) = made.memory
    return split


def test_kv_cache_is_as_the_engine_counts_it() -> None:
    """vLLM 0.32 for CPU, 1 GiB, float32: `CPU KV cache size: 524,288 tokens`."""
    tiny = ModelShape(layers=2, kv_heads=2, head_dim=64, max_positions=512, dtype="float32")

    cost = cost_kv(request(dtype="float32"), tiny)

    assert cost is not None
    assert GIB / cost.bytes_per_token == 524_288


def test_latent_attention_keeps_one_cache_on_every_gpu() -> None:
    """DeepSeek V3: 61 layers × 576 values × 2 bytes, however many GPUs."""
    shape = parse_config(DEEPSEEK, None)

    one, eight = (cost_kv(request(tensor_parallel=tp), shape) for tp in (1, 8))

    assert one == eight
    assert one is not None
    assert one.bytes_per_token == 61 * 576 * 2


@pytest.mark.parametrize(
    ("asked", "bytes_per_token"),
    [
        ({}, 80 * 2 * 8 * 128 * 2),
        ({"tensor_parallel": 8}, 80 * 2 * 1 * 128 * 2),
        ({"tensor_parallel": 16}, 80 * 2 * 1 * 128 * 2),  # KV heads are kept twice
        ({"pipeline_parallel": 3}, 27 * 2 * 8 * 128 * 2),
        ({"kv_cache_dtype": "fp8_e4m3"}, 80 * 2 * 8 * 128),
        ({"dtype": "float32"}, 80 * 2 * 8 * 128 * 4),
    ],
)
def test_kv_cache_of_a_split_model(asked: dict[str, Any], bytes_per_token: int) -> None:
    cost = cost_kv(request(**asked), parse_config(LLAMA, None))

    assert cost is not None
    assert cost.bytes_per_token == bytes_per_token


@pytest.mark.parametrize(
    ("asked", "shape", "share"),
    [
        ({}, {}, 1.0),
        ({"tensor_parallel": 4, "pipeline_parallel": 2}, {}, 1 / 8),
        ({"data_parallel": 4}, {}, 1.0),
        ({"data_parallel": 4}, {"experts": 8}, 1 / 4),
        ({"quantization": "fp8"}, {}, 1 / 2),
        ({"quantization": "fp8"}, {"quantization": parse_config(DEEPSEEK, None).quantization}, 1.0),
        ({}, {"dtype": "float32"}, 1 / 2),
        ({"dtype": "float32"}, {"dtype": "float32"}, 1.0),
        ({"dtype": "float32"}, {}, 2.0),
    ],
)
def test_weights_on_each_gpu(asked: dict[str, Any], shape: dict[str, Any], share: float) -> None:
    model = ModelFacts(
        "/m", weight_bytes=1 << 30, shape=replace(parse_config(LLAMA, None), **shape)
    )

    assert weigh(request(**asked), model) == (1 << 30) * share


def test_70b_does_not_fit_one_card_and_fits_four() -> None:
    one = plan_of(LLAMA_70B, card(), max_model_len=8192)
    four = plan_of(LLAMA_70B, *map(card, range(4)), tensor_parallel=4, max_model_len=8192)

    assert codes(one) == {"model-fit": "error"}
    assert codes(four) == {}
    assert split_of(four).weights_bytes == 141_107_412_992 // 4
    (told,) = [item for item in four.findings if item.code == "model-memory"]
    assert "weights 32.9 GiB + KV cache 0.6 GiB for one sequence of 8192 tokens" in told.why


def test_refusal_can_be_overridden() -> None:
    made = plan_of(LLAMA_70B, card(), max_model_len=8192, overrides=("model-fit",))

    assert codes(made) == {"model-fit": "warning"}


def test_context_that_the_cache_cannot_hold_is_refused_by_vllm_with_what_would_fit() -> None:
    two = [card(0), card(1)]
    made = plan_of(LLAMA_70B, *two, tensor_parallel=2)

    assert codes(made) == {"model-fit": "error"}
    words = made.findings[0].fix.split()
    tokens = int(words[words.index("tokens") - 1])
    assert codes(plan_of(LLAMA_70B, *two, tensor_parallel=2, max_model_len=tokens)) == {}


def test_sglang_serves_with_a_smaller_cache() -> None:
    two = [card(0), card(1)]
    made = plan_of(LLAMA_70B, *two, tensor_parallel=2, engine=EngineKind.SGLANG, version="0.5.23")

    assert codes(made) == {"model-fit-tight": "warning"}


def test_windows_make_the_cache_an_upper_bound_that_refuses_nothing() -> None:
    window = replace(LLAMA_70B, shape=replace(parse_config(LLAMA, None), sliding_window=4096))
    made = plan_of(window, card(0), card(1), tensor_parallel=2)

    assert codes(made) == {"model-fit-tight": "warning"}
    assert split_of(made).kv_is_upper_bound
    assert "at most" in made.findings[0].why


@pytest.mark.parametrize(
    ("version", "fraction"), [("0.10.2", 0.9), ("0.19.0", 0.9), ("0.20.0", 0.92), ("dev", 0.92)]
)
def test_share_that_the_engine_fills_is_its_version_s(version: str, fraction: float) -> None:
    made = plan_of(LLAMA_70B, card(), version=version)

    assert split_of(made).fraction == fraction


def test_share_that_the_operator_gives_counts() -> None:
    assert split_of(plan_of(LLAMA_70B, card(), gpu_memory_fraction=0.5)).fraction == 0.5


def test_smallest_card_decides() -> None:
    made = plan_of(LLAMA_70B, card(0), card(1, 40_000), tensor_parallel=2)

    assert split_of(made).memory_bytes == 40_000 << 20


@pytest.mark.parametrize(
    ("model", "cards"),
    [
        (LLAMA_70B, ()),
        (LLAMA_70B, (card(0), gpu(1))),
        (replace(LLAMA_70B, weight_bytes=None), (card(),)),
    ],
)
def test_what_is_not_known_is_not_judged(model: ModelFacts, cards: tuple[Gpu, ...]) -> None:
    made = plan_of(model, *cards, gpu_count=len(cards), tensor_parallel=max(len(cards), 1))

    assert made.memory == ()
    assert codes(made) == {}


def test_without_a_config_the_weights_alone_are_judged() -> None:
    bare = replace(LLAMA_70B, shape=None)

    assert codes(plan_of(bare, card())) == {"model-fit": "error"}
    assert codes(plan_of(bare, card(0), card(1), tensor_parallel=2)) == {}


def test_memory_that_is_moved_elsewhere_is_not_counted() -> None:
    made = plan_of(LLAMA_70B, card(), args=("--cpu-offload-gb", "100"), max_model_len=8192)

    assert codes(made) == {"model-fit-tight": "warning"}


def test_vllm_wants_its_share_free() -> None:
    small = replace(LLAMA_70B, weight_bytes=GIB)
    busy = card(memory_used_mib=10_000)

    assert codes(plan_of(small, busy, max_model_len=4096)) == {"gpu-memory-short": "error"}
    assert codes(plan_of(small, busy, max_model_len=4096, gpu_memory_fraction=0.8)) == {}


def test_sglang_wants_cards_alike() -> None:
    small = replace(LLAMA_70B, weight_bytes=GIB)
    cards = (card(0, memory_free_mib=80_000), card(1, memory_free_mib=70_000))
    asked = {"engine": EngineKind.SGLANG, "tensor_parallel": 2, "max_model_len": 4096}

    assert codes(plan_of(small, *cards, version="0.5.23", **asked)) == {
        "gpu-memory-uneven": "error"
    }
