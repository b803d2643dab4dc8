"""Whether a model is there and splits: each rule by what breaks it, and by its neighbour that does not."""

from dataclasses import replace
from typing import Any

import pytest

from llmgw_core.agent.model_config import parse_config
from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.model import LaunchFacts, ModelFacts, ModelShape, Quantization
from llmgw_core.planning.launch import is_launchable
from llmgw_core.planning.model_rules import ModelOnNode, check_files
from tests.support.models import DEEPSEEK, LLAMA
from tests.support.plans import codes, gpu, node, planned, request

SHAPE = parse_config(LLAMA, None)
WHOLE = ModelFacts("/m", weight_bytes=1 << 30, weight_files=2, fingerprint="a", shape=SHAPE)


def found(files: ModelFacts | None, version: str = "0.32.0", **asked: Any) -> dict[str, str]:
    """What a plan says of the model, on eight cards that hold anything."""
    cards = [gpu(index, memory_total_mib=1 << 20) for index in range(8)]
    facts = LaunchFacts(files, "/cache", {"vllm": version, "sglang": version})
    asked = {"model": "/m", "max_model_len": 4096, **asked}
    return codes(planned(request(**asked), node("n1", *cards), facts={"n1": facts}))


def of_shape(**changes: Any) -> ModelFacts:
    return replace(WHOLE, shape=replace(SHAPE, **changes))


@pytest.mark.parametrize(
    ("shape", "asked", "code"),
    [
        ({"heads": 28, "kv_heads": 4}, {"tensor_parallel": 8}, "heads-split"),
        ({"heads": 24, "kv_heads": 6}, {"tensor_parallel": 4}, "kv-heads-split"),
        ({"layers": 2}, {"pipeline_parallel": 4}, "layers-split"),
        ({"intermediate_size": 4868}, {"tensor_parallel": 8}, "width-split"),
        ({}, {"max_model_len": 131073}, "model-len-above"),
        ({"quantization": Quantization("awq")}, {"quantization": "gptq"}, "quantization-differs"),
    ],
)
def test_shape_that_does_not_split_is_refused_and_can_be_overridden(
    shape: dict[str, Any], asked: dict[str, Any], code: str
) -> None:
    model = of_shape(**shape)

    assert found(model, **asked) == {code: "error"}
    assert found(model, **asked, overrides=(code,)) == {code: "warning"}


@pytest.mark.parametrize(
    ("shape", "asked"),
    [
        ({"heads": 28, "kv_heads": 4}, {"tensor_parallel": 4}),
        ({"heads": 64, "kv_heads": 8}, {"tensor_parallel": 8}),
        ({"heads": 64, "kv_heads": 2}, {"tensor_parallel": 8}),
        ({"heads": 64, "kv_heads": 1}, {"tensor_parallel": 8}),
        ({"heads": None, "kv_heads": None}, {"tensor_parallel": 8}),
        ({"layers": 4}, {"pipeline_parallel": 4}),
        ({"layers": 80}, {"pipeline_parallel": 3}),
        ({"intermediate_size": 4868, "experts": 8}, {"tensor_parallel": 8}),
        ({}, {"max_model_len": 131072}),
        ({"max_positions": None}, {"max_model_len": 10**6}),
        ({"quantization": Quantization("awq")}, {"quantization": "awq_marlin"}),
        ({"quantization": Quantization("gptq")}, {"quantization": "moe_wna16"}),
        ({"quantization": Quantization("inc")}, {"quantization": "gptq"}),
        ({"quantization": None}, {"quantization": "fp8"}),
    ],
)
def test_shape_that_splits_is_fine(shape: dict[str, Any], asked: dict[str, Any]) -> None:
    assert found(of_shape(**shape), **asked) == {}


def test_engine_told_to_go_on_beyond_the_models_limit_is_warned_of() -> None:
    env = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}

    assert found(WHOLE, max_model_len=200_000, env=env) == {"model-len-above": "warning"}


def test_latent_attention_has_no_kv_heads_to_divide() -> None:
    deepseek = replace(WHOLE, shape=replace(parse_config(DEEPSEEK, None), kv_heads=3))

    assert found(deepseek, tensor_parallel=8) == {}


def test_dp_attention_divides_heads_by_what_is_left_of_tp() -> None:
    few = of_shape(heads=4, kv_heads=4, intermediate_size=None)
    asked = {"engine": EngineKind.SGLANG, "tensor_parallel": 8}

    assert found(few, "0.5.4", **asked) == {"heads-split": "error"}
    assert found(few, "0.5.23", **asked, args=("--attn-dp-size", "2")) == {}


def test_quantized_groups_that_are_cut_are_a_warning() -> None:
    awq = of_shape(quantization=Quantization("awq", (), 128), intermediate_size=18944)

    assert found(awq, tensor_parallel=8) == {"group-split": "warning"}
    assert found(awq, tensor_parallel=4) == {}


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"torn_files": ("a.safetensors",)}, "model-torn", "error"),
        ({"missing_files": ("a.safetensors",)}, "weights-missing", "error"),
        ({"weight_files": 0}, "weights-missing", "error"),
        ({"missing_files": ("a",), "is_cached": True}, "model-not-cached", "warning"),
        ({"weight_files": 0, "is_cached": True}, "model-not-cached", "warning"),
        ({"torn_files": ("a",), "is_cached": True}, "model-torn", "error"),
    ],
)
def test_files_that_are_not_right(changes: dict[str, Any], code: str, severity: str) -> None:
    assert found(replace(WHOLE, **changes)) == {code: severity}


def test_weights_that_no_file_holds_are_fine_when_none_are_loaded() -> None:
    none = replace(WHOLE, weight_files=0)

    assert found(none, args=("--load-format", "dummy")) == {}
    assert found(none, args=("--load-format=dummy",)) == {}


def test_hub_s_model_that_is_not_there_will_be_downloaded() -> None:
    assert found(None, model="org/name") == {"model-not-cached": "warning"}


def test_hub_s_model_cannot_be_downloaded_offline() -> None:
    asked = found(None, model="org/name", env={"HF_HUB_OFFLINE": "1"})

    assert asked == {"model-not-cached": "error"}


def test_path_that_is_not_there_is_left_to_the_node() -> None:
    assert found(None, model="/m") == {}


def test_what_could_not_be_read_is_told_and_stops_nothing() -> None:
    unread = replace(WHOLE, shape=None, unread=("config.json: it is no JSON",))

    assert found(unread) == {}


def test_nothing_is_concluded_of_a_node_that_was_not_asked() -> None:
    made = planned(request(model="/m", tensor_parallel=4))

    assert codes(made) == {}
    assert is_launchable(made)


def of(name: str, fingerprint: str | None) -> ModelOnNode:
    return ModelOnNode(name, LaunchFacts(replace(WHOLE, fingerprint=fingerprint)))


def test_nodes_with_other_files_are_told_apart() -> None:
    known = [of("n1", "a"), of("n2", "b"), of("n3", "a"), of("n4", None)]

    (finding,) = check_files(request(), known)

    assert finding.code == "model-differs"
    assert "n1, n3 | n2" in finding.what


def test_same_files_everywhere_are_fine() -> None:
    assert list(check_files(request(), [of("n1", "a"), of("n2", "a")])) == []


FP8 = Quantization("fp8", (), None)
W8A8 = Quantization("compressed-tensors", ("w8a8-float",))


@pytest.mark.parametrize(
    ("engine", "version", "given", "capability", "expected"),
    [
        (EngineKind.VLLM, "0.10.2", FP8, "7.5", {"quantization-capability": "error"}),
        (EngineKind.VLLM, "0.14.0", FP8, "7.5", {"fp8-capability": "error"}),
        (EngineKind.VLLM, "0.32.0", FP8, "7.0", {"quantization-capability": "error"}),
        (EngineKind.VLLM, "0.32.0", FP8, "8.9", {}),
        (EngineKind.VLLM, "nightly", FP8, "7.5", {"quantization-version": "warning"}),
        (
            EngineKind.VLLM,
            "0.26.0",
            Quantization("modelopt"),
            "8.0",
            {"quantization-capability": "error"},
        ),
        (EngineKind.VLLM, "0.27.0", Quantization("modelopt"), "8.0", {"fp8-capability": "error"}),
        (EngineKind.VLLM, "0.32.0", W8A8, "8.0", {"fp8-capability": "error"}),
        (EngineKind.SGLANG, "0.5.23", W8A8, "8.0", {"quantization-capability": "error"}),
        (EngineKind.SGLANG, "0.5.2", Quantization("awq"), "7.5", {}),
        (
            EngineKind.SGLANG,
            "0.5.4",
            Quantization("awq"),
            "7.5",
            {"quantization-capability": "error"},
        ),
        (EngineKind.VLLM, "0.32.0", Quantization("compressed-tensors"), "7.5", {}),
        (EngineKind.VLLM, "0.32.0", Quantization("of-tomorrow"), "7.0", {}),
    ],
)
def test_checkpoint_s_own_quantization_is_judged_by_the_version_that_is_installed(
    engine: EngineKind,
    version: str,
    given: Quantization,
    capability: str,
    expected: dict[str, str],
) -> None:
    card = gpu(0, capability=capability, memory_total_mib=1 << 20)
    model = of_shape(quantization=given)
    facts = LaunchFacts(model, "", {"vllm": version, "sglang": version})
    asked = request(engine=engine, model="/m", max_model_len=4096)

    assert codes(planned(asked, node("n1", card), facts={"n1": facts})) == expected


def test_shape_alone_is_empty() -> None:
    assert found(replace(WHOLE, shape=ModelShape()), tensor_parallel=8) == {}
