"""Each rule by what breaks it, and by its neighbour that does not."""

from typing import Any

import pytest

from llmgw_core.domain import wire
from llmgw_core.domain.engine import EngineKind, EngineState
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import GpuHealth
from llmgw_core.domain.inventory import Node, NodeFault
from llmgw_core.planning.launch import is_launchable
from llmgw_core.planning.quantization_rules import parse_capability
from tests.support.plans import codes, engine, four, gpu, node, planned, request


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "Chat"}, "name-syntax"),
        ({"name": ""}, "name-syntax"),
        ({"name": "../x"}, "name-syntax"),
        ({"name": "a" * 64}, "name-syntax"),
        ({"name": "chat\n"}, "name-syntax"),
        ({"model": ""}, "model-syntax"),
        ({"model": "--trust-remote-code"}, "model-syntax"),
        ({"tensor_parallel": 0}, "parallelism"),
        ({"tensor_parallel": 2, "gpu_count": 3}, "arithmetic"),
        ({"tensor_parallel": 2, "gpus": (0,)}, "arithmetic"),
        ({"gpus": (0, 0)}, "gpu-twice"),
        ({"gpu_count": 0, "gpus": (0,)}, "gpu-count"),
        ({"port": 0}, "port-range"),
        ({"port": 65536}, "port-range"),
        ({"gpu_memory_fraction": 0.0}, "memory-fraction"),
        ({"gpu_memory_fraction": 1.01}, "memory-fraction"),
        ({"gpu_memory_fraction": float("nan")}, "memory-fraction"),
        ({"max_model_len": 0}, "model-len"),
        ({"grace_seconds": 0.0}, "grace"),
        ({"grace_seconds": float("inf")}, "grace"),
        ({"load_deadline_seconds": -1.0}, "deadline"),
        ({"env": {"A B": "1"}}, "env-syntax"),
        ({"env": {"A": "\0"}}, "env-syntax"),
        ({"env": {"HF_TOKEN": "hf_x"}}, "secret-in-env"),
        ({"env": {"MY_API_KEY": "x"}}, "secret-in-env"),
        ({"env": {"db_password": "x"}}, "secret-in-env"),
        ({"env": {"X": "1"}, "env_from": ("X",)}, "env-twice"),
        ({"env": {"LLMGW_ENGINE": "x"}}, "env-owned"),
        ({"args": ("--api-key", "x")}, "secret-in-args"),
        ({"args": ("--api_key=x",)}, "secret-in-args"),
        ({"args": ("--api", "x")}, "secret-in-args"),
        ({"args": ("--hf-token=x",)}, "secret-in-args"),
        ({"args": ("--admin-api-key", "x")}, "secret-in-args"),
        ({"args": ("--port", "1")}, "args-owned"),
        ({"args": ("--tensor_parallel_size=2",)}, "args-owned"),
        ({"args": ("--gpu-memory-util", "0.5")}, "args-owned"),
        ({"args": ("-tp", "2")}, "args-owned"),
        ({"args": ("a\0b",)}, "args-syntax"),
        ({"model": "~/models/x"}, "path-tilde"),
        ({"model": "./x"}, "path-relative"),
        ({"venv": "venv"}, "path-relative"),
        ({"node": "n2"}, "node-unknown"),
        ({"gpus": (9,)}, "gpu-unknown"),
        ({"gpu_class": "b200-180g"}, "no-free-gpus"),
        ({"gpus": (0,), "gpu_class": "b200-180g"}, "class-differs"),
        ({"tensor_parallel": 8}, "no-free-gpus"),
    ],
)
def test_refuses(changes: dict[str, Any], code: str) -> None:
    made = planned(request(**changes))

    assert codes(made) == {code: "error"}
    assert not is_launchable(made)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a" * 63},
        {"name": "llama-3.1_70b"},
        {"env": {"TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "5"}},
        {"env": {"HF_TOKEN_PATH": "/x"}},
        {"args": ("--max-num-batched-tokens", "8192")},
        {"args": ("--data-parallel-size-local", "1")},
        {"model": "./x", "workdir": "/srv"},
        {"env_from": ("HF_TOKEN",)},
        {"grace_seconds": 0.5},
        {"gpu_memory_fraction": 1.0},
        {"tensor_parallel": 2, "data_parallel": 2},
    ],
)
def test_accepts(changes: dict[str, Any]) -> None:
    made = planned(request(**changes))

    assert codes(made) == {}
    assert is_launchable(made)


@pytest.mark.parametrize("flag", ["--tp", "--device", "--nnodes", "--mem-fraction-static"])
def test_sglang_has_flags_of_its_own(flag: str) -> None:
    asked = request(engine=EngineKind.SGLANG, args=(flag, "1"))

    assert codes(planned(asked)) == {"args-owned": "error"}


def test_all_findings_come_at_once_errors_first() -> None:
    made = planned(request(name="X", port=0, host="0.0.0.0"))  # noqa: S104 - what is warned of

    assert codes(made) == {"name-syntax": "error", "port-range": "error", "bind-all": "warning"}
    assert [finding.severity for finding in made.findings][:2] == [Severity.ERROR, Severity.ERROR]


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"HF_TOKEN": "hf_hush"}},
        {"args": ("--api-key", "hf_hush", "hf_hush")},
        {"args": ("--hf-token=hf_hush",)},
    ],
)
def test_a_secret_given_in_the_wrong_place_is_in_no_part_of_the_plan(
    changes: dict[str, Any],
) -> None:
    assert "hf_hush" not in wire.dump_json(planned(request(**changes)))


def test_name_taken_on_the_node_is_refused_and_free_again_when_it_is_over() -> None:
    living, over = engine("chat", port=9), engine("chat", EngineState.FAILED)

    assert codes(planned(request(), node("n1", gpu(0), engines=(living,)))) == {
        "name-taken": "error"
    }
    assert codes(planned(request(), node("n1", gpu(0), engines=(over,)))) == {}


def test_name_on_another_node_is_a_warning() -> None:
    other = node("n2", engines=(engine("chat"),))

    assert codes(planned(request(node="n1"), four("n1"), other)) == {"name-elsewhere": "warning"}


def test_port_of_a_known_engine_is_refused() -> None:
    busy = node("n1", gpu(0), engines=(engine("other", port=8000),))

    assert codes(planned(request(port=8000), busy)) == {"port-taken": "error"}


def test_port_not_named_is_the_first_free_one() -> None:
    busy = node("n1", gpu(0), engines=(engine("a", port=8000), engine("b", port=8001)))

    assert planned(request(), busy).ranks[0].port == 8002


def test_gpu_of_an_engine_cannot_be_had_and_not_overridden() -> None:
    held = node("n1", gpu(0, available=False, engine="other-1"))
    made = planned(request(gpus=(0,), overrides=("gpu-taken",)), held)

    assert codes(made) == {"gpu-taken": "error", "override-unused": "warning"}
    assert "other-1" in made.findings[0].what


def test_gpu_with_a_fault_is_refused_by_its_health() -> None:
    flag = GpuHealth("ecc-uncorrected", Severity.ERROR, "3 uncorrected errors")
    made = planned(request(gpus=(0,)), node("n1", gpu(0, available=False, health=(flag,))))

    assert codes(made) == {"gpu-unfit": "error"}
    assert "3 uncorrected errors" in made.findings[0].what


def test_tp_group_refuses_mixed_gpu_classes() -> None:
    mixed = node("n1", gpu(0), gpu(1, "l40s-45g"))

    assert codes(planned(request(gpus=(0, 1), tensor_parallel=2), mixed)) == {
        "mixed-classes": "error"
    }


@pytest.mark.parametrize(
    ("kind", "changes", "capability", "code"),
    [
        (EngineKind.VLLM, {"quantization": "fp8"}, "8.6", "fp8-capability"),
        (EngineKind.VLLM, {"quantization": "fp8"}, "7.0", "quantization-capability"),
        (EngineKind.SGLANG, {"quantization": "gptq_marlin"}, "7.5", "quantization-capability"),
        (EngineKind.SGLANG, {"quantization": "w4afp8"}, "8.9", "quantization-capability"),
        (EngineKind.VLLM, {"kv_cache_dtype": "fp8_e4m3"}, "8.0", "fp8-kv-capability"),
        (EngineKind.VLLM, {"dtype": "bfloat16"}, "7.5", "dtype-capability"),
    ],
)
def test_format_below_its_floor_is_refused_and_can_be_overridden(
    kind: EngineKind, changes: dict[str, Any], capability: str, code: str
) -> None:
    place = four("n1", capability=capability)

    refused = planned(request(engine=kind, **changes), place)
    overridden = planned(request(engine=kind, overrides=(code,), **changes), place)

    assert codes(refused) == {code: "error"}
    assert codes(overridden) == {code: "warning"}
    assert overridden.request.overrides == (code,)
    assert is_launchable(overridden)


@pytest.mark.parametrize("capability", ["8.9", "9.0", "10.0", "12.0"])
def test_fp8_is_fine_from_8_9_on(capability: str) -> None:
    assert codes(planned(request(quantization="fp8"), four("n1", capability=capability))) == {}


def test_capability_that_is_not_known_is_a_warning() -> None:
    place = four("n1", capability=None)

    assert codes(planned(request(quantization="fp8"), place)) == {"capability-unknown": "warning"}


def test_override_of_nothing_is_told() -> None:
    assert codes(planned(request(overrides=("typo",)))) == {"override-unused": "warning"}


def test_node_that_does_not_answer_is_refused_with_its_reason() -> None:
    away = Node("n1", reachable=False, error=NodeFault("timeout", "no answer in 10 s", "ssh n1"))
    made = planned(request(), away)

    assert codes(made) == {"node-unreachable": "error"}
    assert "no answer in 10 s" in made.findings[0].what
    assert made.ranks == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [("8.9", 89), ("12.0", 120), ("8.²", None), ("²", None), ("", None), ("x.y", None)],
)
def test_a_capability_that_is_no_number_is_unknown(text: str, value: int | None) -> None:
    assert parse_capability(text) == value
