"""Command lines against what an engine's version takes."""

import pytest

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.model import LaunchFacts
from llmgw_core.planning.engines.flag_rules import check_flags
from llmgw_core.planning.engines.flag_table import FlagTable, load_flags
from llmgw_core.planning.launch import is_launchable
from tests.support.plans import codes, planned, request

VLLM, SGLANG = EngineKind.VLLM, EngineKind.SGLANG


def found(engine: EngineKind, version: str | None, *words: str) -> dict[str, str]:
    return {item.code: item.severity.value for item in check_flags(engine, words, version, {})}


@pytest.mark.parametrize(
    ("engine", "version", "words"),
    [
        (VLLM, "0.32.0", ("--enforce-eager",)),
        (VLLM, "0.32.0+cpu", ("--enforce-eager",)),
        (VLLM, "0.32.0", ("--max_num_seqs=8",)),
        (VLLM, "0.32.0", ("--no-enforce-eager",)),
        (VLLM, "0.32.0", ("-O3",)),
        (VLLM, "0.32.0", ("--compilation-config.level", "3", "-cc.mode=3")),
        (VLLM, "0.32.0", ("--hf-overrides", '{"a": -1}', "--seed", "-1")),
        (VLLM, "0.32.0", ("--compilation-config.sizes+", "3")),
        (VLLM, "0.10.2", ("--swap-space", "4")),
        (VLLM, "0.15.1", ("--disable-log-requests",)),
        (VLLM, "0.11.1", ("--nnodes", "2")),
        (VLLM, "0.15.0", ("--kv-cache-dtype", "fp8")),
        (SGLANG, "0.5.4", ("--cuda-graph-max-bs", "8")),
        (SGLANG, "0.5.23", ("--tp-size", "2", "--tensor-parallel-size=2")),
        (VLLM, "0.32.0", ("--", "--anything")),
        (VLLM, None, ("--swap-space", "4")),
        (VLLM, None, ("--nnodes", "2")),
    ],
)
def test_what_the_version_takes_is_fine(
    engine: EngineKind, version: str | None, words: tuple[str, ...]
) -> None:
    assert found(engine, version, *words) == {}


@pytest.mark.parametrize(
    ("engine", "version", "words", "code"),
    [
        (VLLM, "0.32.0", ("--swap-space", "4"), "args-unknown"),
        (VLLM, "0.11.0", ("--nnodes", "2"), "args-unknown"),
        (VLLM, "0.32.0", ("--enforce-eeger",), "args-unknown"),
        (VLLM, "0.32.0", ("-zz",), "args-unknown"),
        (VLLM, "0.32.0", ("--max-num", "4"), "args-abbreviated"),
        (VLLM, "0.32.0", ("--enforce-eag",), "args-abbreviated"),
        (SGLANG, "0.5.23", ("--pp", "2"), "args-abbreviated"),
        (SGLANG, "0.5.23", ("--cuda-graph-max-bs", "8"), "args-abbreviated"),
        (SGLANG, "0.5.23", ("--tp_size", "2"), "args-unknown"),
        (SGLANG, "0.5.23", ("--quantization", "int3"), "value-unknown"),
        (VLLM, "0.32.0", ("--quantization=gguf",), "value-unknown"),
        (VLLM, "0.32.0", ("--dtype", "int8"), "value-unknown"),
    ],
)
def test_what_the_version_does_not_take_is_refused(
    engine: EngineKind, version: str, words: tuple[str, ...], code: str
) -> None:
    assert found(engine, version, *words) == {code: "error"}


def test_flag_that_is_gone_says_until_when_it_was_and_what_does_it_now() -> None:
    (finding,) = check_flags(VLLM, ("--cuda-graph-sizes", "8"), "0.32.0", {})

    assert finding.what == "--cuda-graph-sizes is no flag of vLLM 0.32.0"
    assert finding.why == "it is one up to 0.12.0"
    assert finding.fix.startswith("--cudagraph-capture-sizes")


def test_flag_that_is_mistyped_says_what_is_near() -> None:
    (finding,) = check_flags(VLLM, ("--enforce-eeger",), "0.32.0", {})

    assert finding.fix.startswith("did you mean --enforce-eager?")


def test_ambiguous_one_says_between_what() -> None:
    (finding,) = check_flags(SGLANG, ("--pp", "2"), "0.5.23", {})

    assert "--pp-async-batch-depth" in finding.what
    assert "--pp-size" in finding.what


@pytest.mark.parametrize("version", ["0.40.0", "0.9.0", "nightly", None])
def test_beyond_what_was_read_an_unknown_flag_is_only_warned_of(version: str | None) -> None:
    assert found(VLLM, version, "--of-tomorrow") == {"args-unknown": "warning"}


def test_between_two_releases_that_were_read_both_count() -> None:
    table = FlagTable(
        ("0.1.0", "0.3.0"), {("0.1.0", "0.1.0"): "--old", ("0.3.0", "0.3.0"): "--new"}
    )

    assert table.list_known((0, 2, 0)) == {"--old", "--new"}
    assert table.list_known((0, 1, 0)) == {"--old"}
    assert table.list_known((0, 9, 0)) == {"--new"}


def test_flag_that_came_back_has_two_spans() -> None:
    table = FlagTable(("1", "2", "3"), {("1", "1"): "--a", ("3", "3"): "--a"})

    assert table.list_known((2, 0, 0)) == frozenset()
    assert table.tell_history("--a") == "from 1 on"
    assert table.tell_history("--b") == ""


@pytest.mark.parametrize("engine", list(EngineKind))
def test_what_llmgw_itself_says_is_taken_by_every_release(engine: EngineKind) -> None:
    table = load_flags(engine)
    asked = request(
        engine=engine,
        tensor_parallel=2,
        pipeline_parallel=2,
        dtype="half",
        kv_cache_dtype="fp8_e5m2",
        max_model_len=4096,
        gpu_memory_fraction=0.8,
        quantization="fp8",
        served_model_name="m",
    )
    argv = planned(asked).ranks[0].argv

    assert {
        release: items
        for release in table.releases
        if (items := list(check_flags(engine, argv, release, {})))
    } == {}


def test_plan_is_refused_by_the_version_on_its_node_and_can_be_overridden() -> None:
    facts = {"n1": LaunchFacts(None, "", {"vllm": "0.32.0"})}
    asked = request(model="/m", args=("--swap-space", "4"))
    overridden = request(model="/m", args=("--swap-space", "4"), overrides=("args-unknown",))

    assert codes(planned(asked, facts=facts)) == {"args-unknown": "error"}
    assert is_launchable(planned(overridden, facts=facts))
    assert codes(planned(asked)) == {}
