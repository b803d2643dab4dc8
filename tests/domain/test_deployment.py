"""Ranks seen together: the worst of them is what the whole is."""

from dataclasses import replace

import pytest

from llmgw_core.domain.deployment import find_failing_rank, group_ranks, sum_up
from llmgw_core.domain.engine import Diagnosis, EngineState, EngineStatus
from tests.support.plans import engine


def rank(number: int, state: EngineState = EngineState.READY, code: str = "") -> EngineStatus:
    told = Diagnosis(code, "why", "do") if code else None
    return replace(
        engine("chat", state),
        id=f"chat-00000001-r{number}",
        rank=number,
        ranks=2,
        ready=state is EngineState.READY,
        url="http://10.0.0.1:8000" if number == 0 else None,
        diagnosis=told,
    )


@pytest.mark.parametrize(
    ("second", "whole"),
    [
        (EngineState.READY, EngineState.READY),
        (EngineState.LOADING, EngineState.LOADING),
        (EngineState.UNREADY, EngineState.UNREADY),
        (EngineState.FAILED, EngineState.FAILED),
        (EngineState.ORPHANS, EngineState.FAILED),
        (EngineState.STOPPED, EngineState.STOPPED),
    ],
)
def test_the_worst_rank_is_the_state(second: EngineState, whole: EngineState) -> None:
    made = sum_up([("n1", rank(0)), ("n2", rank(1, second))])

    assert made.state is whole
    assert made.ready == (whole is EngineState.READY)
    assert made.url == "http://10.0.0.1:8000"
    assert made.nodes == ("n1", "n2")


def test_a_rank_nobody_heard_of_is_unreachable_and_not_dead() -> None:
    made = sum_up([("n1", rank(0))])

    assert made.state is EngineState.UNREACHABLE
    assert not made.ready
    assert (made.ranks, made.nodes) == (2, ("n1",))


def test_ranks_that_are_being_ended_do_not_hide_that_one_was_lost() -> None:
    ending = rank(0, EngineState.STOPPING, "gang-rank-lost")

    assert (
        sum_up([("n1", ending), ("n2", rank(1, EngineState.STOPPING))]).state is EngineState.FAILED
    )
    assert (
        sum_up([("n1", rank(0, EngineState.STOPPING)), ("n2", rank(1))]).state
        is EngineState.STOPPING
    )


def test_the_cause_is_told_and_not_its_echo() -> None:
    ranks = [
        ("n1", rank(0, EngineState.FAILED, "gang-rank-lost")),
        ("n2", rank(1, EngineState.FAILED, "oom")),
    ]

    assert find_failing_rank(ranks)[0] == "n2"
    told = sum_up(ranks).diagnosis
    assert told is not None
    assert told.code == "oom"


def test_engines_of_one_rank_are_never_joined() -> None:
    same = engine("chat")
    groups = group_ranks([("n2", rank(1)), ("n1", same), ("n2", same), ("n1", rank(0))])

    assert sorted([node for node, _ in group] for group in groups.values()) == [
        ["n1"],
        ["n1", "n2"],
        ["n2"],
    ]
