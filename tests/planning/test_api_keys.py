"""Which launch gets an API key of its own, how, and what is said where none can be given."""

from typing import Any

import pytest

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.model import LaunchFacts
from llmgw_core.planning.plan_hash import hash_plan
from llmgw_core.planning.shell_script import render_script
from tests.support.plans import codes, node, planned, request

SGLANG = {"engine": EngineKind.SGLANG}


def sglang_of(version: str) -> dict[str, LaunchFacts]:
    return {"n1": LaunchFacts(packages={"sglang": version})}


@pytest.mark.parametrize(
    ("asked", "way"),
    [
        ({}, "VLLM_API_KEY"),
        (SGLANG, "--config"),
        ({"api_key": False}, None),
        ({"env_from": ("VLLM_API_KEY",)}, None),
        ({**SGLANG, "args": ("--config", "/etc/sglang.yaml")}, None),
        ({**SGLANG, "args": ("--config=/etc/sglang.yaml",)}, None),
    ],
)
def test_each_engine_is_given_its_key_as_it_takes_one(asked: dict[str, Any], way: str) -> None:
    (rank,) = planned(request(**asked)).ranks

    assert rank.api_key == way
    assert "VLLM_API_KEY" not in rank.env


@pytest.mark.parametrize(
    ("version", "way"), [("0.5.2", None), ("0.5.3", "--config"), ("0.5.3.post1", "--config")]
)
def test_a_flag_that_an_installed_sglang_lacks_is_not_given(version: str, way: str | None) -> None:
    (rank,) = planned(request(**SGLANG), facts=sglang_of(version)).ranks

    assert rank.api_key == way


def test_of_several_ranks_the_one_that_serves_has_the_key() -> None:
    made = planned(request(tensor_parallel=2, node_count=2, gpu_count=0), node("n1"), node("n2"))

    assert [rank.api_key for rank in made.ranks] == ["VLLM_API_KEY", None]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"api_key": False}, None),  # as asked for, and nobody but the node's users reaches it
        ({"api_key": False, "host": "10.0.0.1"}, "warning"),
        ({**SGLANG, "args": ("--config", "x")}, "info"),
        ({**SGLANG, "args": ("--config", "x"), "host": "10.0.0.1"}, "warning"),
        ({"host": "10.0.0.1"}, None),
        ({"host": "10.0.0.1", "env_from": ("VLLM_API_KEY",)}, None),
    ],
)
def test_an_engine_without_a_key_is_told_by_who_reaches_it(
    asked: dict[str, Any], found: str | None
) -> None:
    made = planned(request(**asked))

    told = {item.code: item.severity.value for item in made.findings}
    assert told.get("no-api-key") == found
    assert "error" not in codes(made).values()


def test_a_plan_with_a_key_is_another_plan_and_its_script_asks_for_one() -> None:
    with_key, without = planned(request()), planned(request(api_key=False))

    assert hash_plan(with_key) != hash_plan(without)
    assert "VLLM_API_KEY:?" in render_script(with_key)
    assert "API_KEY" not in render_script(without)
    by_file = render_script(planned(request(**SGLANG)))
    assert by_file.rstrip().endswith('--config "$API_KEY_FILE"')
