"""A plan's hash: equal for equal plans, another one when anything that will run changes."""

from dataclasses import replace

import pytest

from llmgw_core.planning.launch import plan
from llmgw_core.planning.plan_hash import hash_plan, is_hash_of
from tests.support.plans import four, planned, request


def test_the_same_plan_made_twice_has_the_same_hash() -> None:
    first, second = (plan(request(), [four("a")], digit * 32, {}) for digit in "12")

    assert first.ranks[0].engine_id != second.ranks[0].engine_id
    assert hash_plan(first) == hash_plan(second)


@pytest.mark.parametrize(
    "changes",
    [
        {"port": 9000},
        {"gpus": (2,)},
        {"args": ("--enforce-eager",)},
        {"env": {"OMP_NUM_THREADS": "8"}},
        {"env_from": ("HF_TOKEN",)},
        {"grace_seconds": 5.0},
        {"venv": "/opt/other"},
    ],
)
def test_whatever_changes_what_runs_changes_the_hash(changes: dict[str, object]) -> None:
    asked = request()

    assert hash_plan(planned(replace(asked, **changes), four("a"))) != hash_plan(  # type: ignore[arg-type]
        planned(asked, four("a"))
    )


def test_a_hash_is_recognised_by_its_first_six_digits_and_not_by_fewer() -> None:
    made = planned(request(), four("a"))
    whole = hash_plan(made)

    assert is_hash_of(whole, made)
    assert is_hash_of(whole[:6].upper(), made)
    assert not is_hash_of(whole[:5], made)
    assert not is_hash_of("", made)
    assert not is_hash_of(whole + "0", made)
