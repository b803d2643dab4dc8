"""What stands around the tables: empty states, header, tabs, palette."""

import pytest

from llmgw_core.domain.inventory import (
    Contact,
    FleetSnapshot,
    Node,
    NodeView,
)
from llmgw_tui.present import engines, fabric, gpus, nodes
from llmgw_tui.present.header import header, tabs
from llmgw_tui.present.pick import engine_under, jump_targets
from llmgw_tui.present.table import Key
from llmgw_tui.present.text import Tone, plain, width
from tests.support.cells import text_of
from tests.support.fleets import (
    NOW,
    make_cluster,
    make_engine,
    make_node,
    make_snapshot,
    make_view,
)


@pytest.mark.parametrize("view", [nodes, gpus, fabric, engines])
def test_before_the_first_answer_no_view_claims_that_there_is_nothing(view: object) -> None:
    shown = text_of(view.empty(None))  # type: ignore[attr-defined]

    assert "No nodes" not in shown
    assert "press L" not in shown


def test_an_empty_cluster_says_how_to_name_nodes() -> None:
    assert "--nodes 'gpu[01-16]'" in text_of(nodes.empty(FleetSnapshot(NOW)))


def test_no_engines_says_how_to_launch_one() -> None:
    assert "press L to launch" in text_of(engines.empty(make_snapshot(make_view(make_node("n1")))))


def test_no_engine_is_not_claimed_while_a_node_is_silent() -> None:
    silent = NodeView(Node(name="n2"), Contact.CONNECTING)

    assert "waiting" in text_of(engines.empty(FleetSnapshot(NOW, (silent,))))


def test_nodes_that_are_away_are_named_where_nothing_is_found() -> None:
    away = make_view(make_node("n2"), Contact.UNREACHABLE)

    shown = text_of(engines.empty(make_snapshot(make_view(make_node("n1")), away)))

    assert "press L to launch" in shown
    assert "▲ n2: no answer, so not counted." in shown


def test_the_header_sums_up_the_cluster() -> None:
    shown = plain(header(make_cluster(), "prod-a", NOW, 200))

    assert shown == (
        " llmgw  prod-a │ 3/5 nodes up ◌ 1 connecting ▲ 1 away │ 6/10 GPUs free"
        " │ ◐ 1 loading  ● 1 ready  ✖ 1 failed │ 1s ago"
    )


def test_the_header_fits_eighty_cells() -> None:
    assert width(header(make_cluster(), "prod-a", NOW, 80)) <= 80


def test_a_read_only_console_says_so_even_before_the_first_answer() -> None:
    assert "READ-ONLY" in plain(header(None, "prod-a", NOW, 80, read_only=True))


def test_an_old_picture_is_a_warning() -> None:
    value = header(make_cluster(), "prod-a", NOW + 60, 200)

    assert (value[-1].text, value[-1].tone) == ("1m ago", Tone.WARN)


def test_gpus_of_nodes_that_are_away_are_not_counted_as_free() -> None:
    away = make_view(make_node("n1"), Contact.UNREACHABLE)

    assert "GPUs" not in plain(header(make_snapshot(away), "c", NOW, 200))


def test_the_current_tab_is_told_apart_without_colour() -> None:
    roomy, tight = ("".join(map(plain, tabs(("Cluster", "GPUs"), 1, cells))) for cells in (80, 20))

    assert roomy == " 1 Cluster  [2 GPUs] "
    assert tight == "1 Cluster [2 GPUs] "


@pytest.mark.parametrize(
    ("view", "key", "engine_id"),
    [
        ("engines", ("gpu1", "chat-0badcafe"), "chat-0badcafe"),
        ("gpus", ("gpu1", "1"), "chat-0badcafe"),
        ("gpus", ("gpu1", "2"), None),
        ("cluster", ("gpu2",), "coder-0badcafe"),
        ("cluster", ("gpu3",), None),
        ("fabric", ("gpu1", "mlx5_0", "1"), "chat-0badcafe"),
        ("engines", None, None),
    ],
)
def test_the_engine_under_the_cursor(view: str, key: Key | None, engine_id: str | None) -> None:
    item = engine_under(make_cluster(), view, key)

    assert (item.status.id if item else None) == engine_id


def test_on_a_node_with_two_engines_none_is_meant() -> None:
    node = make_node("n1", engines=(make_engine("a"), make_engine("b")))

    assert engine_under(make_snapshot(make_view(node)), "cluster", ("n1",)) is None


def test_the_palette_knows_nodes_and_engines() -> None:
    texts = [text for text, _, _ in jump_targets(make_cluster())]

    assert "node gpu10" in texts
    assert "engine coder on gpu2" in texts
