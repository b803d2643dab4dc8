"""What the cluster table and its detail say of a node."""

import pytest

from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.inventory import (
    Contact,
    FleetSnapshot,
    Node,
    NodeView,
)
from llmgw_tui.present import nodes
from llmgw_tui.present.detail import retry_text
from llmgw_tui.present.table import Row
from llmgw_tui.present.text import Tone, plain
from tests.support.cells import cell, cells_of, text_of
from tests.support.fleets import (
    NOW,
    make_cluster,
    make_engine,
    make_gpu,
    make_node,
    make_snapshot,
    make_view,
)


def node_row(snapshot: FleetSnapshot, name: str) -> Row:
    return next(row for row in nodes.rows(snapshot, NOW) if row.key == (name,))


def test_nodes_keep_the_order_of_the_snapshot() -> None:
    names = [row.key[0] for row in nodes.rows(make_cluster(), NOW)]

    assert names == ["gpu1", "gpu2", "gpu3", "gpu10", "gpu11"]


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("STATE", "● up"),
        ("GPUS", "■■□□"),
        ("FREE", "2/4"),
        ("CLASS", "4×h100-80g"),
        ("ENGINES", "● 1 ready"),
        ("FABRIC", "ib 2×400G"),
        ("AGE", "1s"),
    ],
)
def test_row_of_a_serving_node(title: str, shown: str) -> None:
    assert cell(node_row(make_cluster(), "gpu1"), nodes.COLUMNS, title) == shown


def test_a_port_that_is_down_is_marked_in_the_row() -> None:
    row = node_row(make_cluster(), "gpu2")

    assert cell(row, nodes.COLUMNS, "FABRIC") == "ib ▲1/2×400G"


def test_a_node_not_heard_of_yet_claims_nothing() -> None:
    row = node_row(make_cluster(), "gpu11")

    assert cells_of(row)[2:8] == ["—"] * 6


def test_a_node_without_adapters_says_none() -> None:
    assert cell(node_row(make_cluster(), "gpu3"), nodes.COLUMNS, "FABRIC") == "none"


def test_a_node_that_is_away_is_grey_with_the_age_of_what_is_shown() -> None:
    row = node_row(make_cluster(), "gpu10")

    assert row.cells[0][0].tone is Tone.DIM
    assert cell(row, nodes.COLUMNS, "AGE") == "12m"


def test_two_classes_on_a_node_are_both_named() -> None:
    node = make_node("n1", gpus=(make_gpu(0), make_gpu(1), make_gpu(2, gpu_class="l40s-45g")))

    assert nodes.class_text(node) == "2×h100-80g 1×l40s-45g"


def test_engine_counts_follow_an_engines_life_and_leave_out_stopped_ones() -> None:
    states = (EngineState.FAILED, EngineState.READY, EngineState.STOPPED, EngineState.STARTING)

    counts = nodes.engine_counts([make_engine("e", state) for state in states])

    assert plain(counts) == "◔ 1 starting  ● 1 ready  ✖ 1 failed"


@pytest.mark.parametrize(
    "text",
    [
        "◌ what is shown is 12m old, trying again in 14s",
        "✖ gpu10 did not answer within 10 s  [timeout]",
        "→ is it up? try `ssh gpu10`",
    ],
)
def test_the_detail_of_a_node_that_is_away_says_why_and_what_to_do(text: str) -> None:
    assert text in text_of(nodes.detail(make_cluster(), ("gpu10",), NOW))


@pytest.mark.parametrize(
    "text",
    [
        "Ubuntu 24.04.1 LTS, Linux 6.8.0-49-generic",
        "112 CPUs, load 6.2",
        "570.124.06, CUDA 12.8",
        "✖ GPU 1: pid 4411 (python, alice) holds 61 GiB",
        "pid 4411  python  alice  61 GiB  not of llmgw",
        "mlx5_1:1  ▲ down",
        "◐ loading 42 %  coder  /models/coder",
    ],
)
def test_the_detail_of_a_node_tells_all_that_is_known(text: str) -> None:
    assert text in text_of(nodes.detail(make_cluster(), ("gpu2",), NOW))


@pytest.mark.parametrize(
    "text",
    ["none on this node", "no adapter: a single-node island", "press L to launch", "none found"],
)
def test_the_detail_of_a_bare_node_says_what_it_lacks(text: str) -> None:
    node = Node(name="bare")

    assert text in text_of(nodes.detail(make_snapshot(make_view(node)), ("bare",), NOW))


def test_a_node_not_heard_of_yet_shows_no_facts() -> None:
    assert "GPUs" not in text_of(nodes.detail(make_cluster(), ("gpu11",), NOW))


def test_a_node_that_left_the_cluster_is_said_to_have() -> None:
    assert "no longer" in text_of(nodes.detail(make_cluster(), ("gone",), NOW))


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (-1.0, "trying again now"),
        (0.2, "trying again in 1s (r: now)"),
        (14.0, "trying again in 14s (r: now)"),
    ],
)
def test_when_it_is_tried_again(wait: float, text: str) -> None:
    view = NodeView(make_node("n1"), Contact.UNREACHABLE, None, NOW + wait)

    assert retry_text(view, NOW) == text


def test_hostile_names_are_cleaned() -> None:
    evil = make_node("n1", island="\x1b]0;owned\x07", driver_version="\x1b[2J")

    shown = text_of(nodes.detail(make_snapshot(make_view(evil)), ("n1",), NOW))

    assert "\x1b" not in shown
    assert "\x07" not in shown
