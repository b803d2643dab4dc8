"""What the engine table and its detail say."""

import pytest

from llmgw_core.domain.engine import EngineExit, EngineState
from llmgw_core.domain.inventory import (
    Contact,
)
from llmgw_tui.present import engines
from llmgw_tui.present.table import Key
from tests.support.cells import cell, text_of
from tests.support.fleets import (
    NOW,
    make_cluster,
    make_engine,
    make_node,
    make_snapshot,
    make_view,
)


def test_engines_that_are_over_come_last() -> None:
    over = make_engine("a", EngineState.STOPPED)
    snapshot = make_snapshot(
        make_view(make_node("n1", engines=(over,))),
        make_view(make_node("n2", engines=(make_engine("b"),))),
    )

    assert [row.key for row in engines.rows(snapshot, NOW)] == [
        ("n2", "b-0badcafe"),
        ("n1", "a-0badcafe"),
    ]


@pytest.mark.parametrize(
    ("place", "title", "shown"),
    [
        (0, "STATE", "● ready"),
        (0, "UP", "2h05m"),
        (0, "GPUS", "0,1"),
        (1, "PHASE", "━━━━╌╌╌╌╌╌ 42 % weights"),
        (1, "STATE", "◐ loading"),
        (2, "STATE", "✖ failed"),
        (2, "PHASE", "out-of-memory"),
        (2, "UP", "—"),
    ],
)
def test_engine_cells(place: int, title: str, shown: str) -> None:
    assert cell(engines.rows(make_cluster(), NOW)[place], engines.COLUMNS, title) == shown


def test_an_engine_without_gpus_runs_on_the_cpu() -> None:
    node = make_node("n1", engines=(make_engine("e", gpus=()),))
    row = engines.rows(make_snapshot(make_view(node)), NOW)[0]

    assert cell(row, engines.COLUMNS, "GPUS") == "CPU"


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (EngineExit(code=1, reason="exited"), "exited, code 1"),
        (EngineExit(signal=9, reason="killed"), "killed, signal 9"),
        (EngineExit(code=0, reason="exited"), "exited, code 0"),
        (EngineExit(), "unknown"),
    ],
)
def test_how_an_engine_ended(end: EngineExit, text: str) -> None:
    assert engines.exit_text(end) == text


def test_a_rank_of_several_is_numbered() -> None:
    assert engines.name_text(make_engine("big", rank=1, ranks=4)) == "big 2/4"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (("gpu3", "embed-0badcafe"), "✖ GPU 0 ran out of memory"),
        (("gpu3", "embed-0badcafe"), "→ lower --max-model-len"),
        (("gpu3", "embed-0badcafe"), "exited, code 1"),
        (("gpu1", "chat-0badcafe"), "http://127.0.0.1:8000"),
        (("gpu1", "chat-0badcafe"), "gpu1, GPUs 0, 1"),
        (("gpu1", "chat-0badcafe"), "l opens the whole log"),
        (("gpu1", "gone-1"), "no longer listed on gpu1"),
    ],
)
def test_engine_detail(key: Key, text: str) -> None:
    assert text in text_of(engines.detail(make_cluster(), key, NOW))


def test_an_engine_on_a_node_that_is_away_may_well_be_serving() -> None:
    view = make_view(make_node("n1", engines=(make_engine("e"),)), Contact.UNREACHABLE, 90)

    shown = text_of(engines.detail(make_snapshot(view), ("n1", "e-0badcafe"), NOW))

    assert "last seen 1m ago; it may well be serving" in shown


def test_ranks_of_one_launch_stand_side_by_side() -> None:
    ranks = [
        make_engine("big", EngineState.LOADING, id=f"big-0badcafe-r{rank}", rank=rank, ranks=3)
        for rank in (0, 1)
    ]
    snapshot = make_snapshot(
        *(make_view(make_node(f"n{item.rank}", engines=(item,))) for item in ranks)
    )
    shown = text_of(engines.detail(snapshot, ("n1", "big-0badcafe-r1"), NOW))

    assert "3 ranks: unreachable" in shown
    assert "  0  n0  ◐ loading" in shown
    assert "▸ 1  n1  ◐ loading" in shown
    assert "1 not heard of" in shown
