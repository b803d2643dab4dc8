"""Thousands of rows: only those that are seen are made, and all of them can be reached."""

from dataclasses import replace

import pytest

from llmgw_core.domain.inventory import Contact, FleetSnapshot, Node, NodeView
from llmgw_tui.present.table import Row, Rows
from llmgw_tui.present.text import line
from tests.support.console import running, screen_text, until
from tests.support.fleets import NOW, FakeFleet, make_gpu

NODES = 400
SCREEN = (120, 40)


def make_many() -> FleetSnapshot:
    """Eight GPUs on each of 400 nodes; the last node has a longer name."""
    names = [f"n{number}" for number in range(NODES - 1)] + ["the-last-of-them"]
    node = Node("n", gpus=tuple(make_gpu(index) for index in range(8)))
    views = [NodeView(replace(node, name=name), Contact.CONNECTED, NOW) for name in names]
    return FleetSnapshot(NOW, tuple(views))


async def test_a_draw_makes_the_rows_on_the_screen_and_no_others() -> None:
    async with running(FakeFleet(make_many()), SCREEN) as (app, pilot):
        await pilot.press("2")
        await until(pilot, lambda: "USED/TOTAL" in screen_text(app))
        rows = app.main.view_of("gpus").table.rows

    assert len(rows) == NODES * 8
    assert 0 < len(rows._made) < 2 * SCREEN[1]


async def test_the_end_of_a_long_list_is_reached_and_its_wider_cells_fit() -> None:
    async with running(FakeFleet(make_many()), SCREEN) as (app, pilot):
        await pilot.press("2", "G")
        await until(pilot, lambda: "the-last-of-them" in screen_text(app))
        table = app.main.view_of("gpus").table

        assert table.cursor_key == ("the-last-of-them", "7")
        assert len(table.rows) == NODES * 8


async def test_the_cursor_keeps_its_key_when_a_long_list_grows_above_it() -> None:
    whole = make_many()
    fleet = FakeFleet(replace(whole, nodes=whole.nodes[1:]))
    async with running(fleet, SCREEN) as (app, pilot):
        await pilot.press("2", "G")
        fleet.push(whole)
        table = app.main.view_of("gpus").table
        await until(pilot, lambda: len(table.rows) == NODES * 8)

        assert table.cursor_key == ("the-last-of-them", "7")


def test_a_row_is_made_once_and_places_count_from_both_ends() -> None:
    made = []

    def make(place: int) -> Row:
        made.append(place)
        return Row((str(place),), (line("x"),))

    rows = Rows([("0",), ("1",), ("2",)], make)
    assert (rows[1].key, rows[1].key, rows[-1].key) == (("1",), ("1",), ("2",))
    assert made == [1, 2]
    assert [row.key for row in rows[1:]] == [("1",), ("2",)]
    with pytest.raises(IndexError):
        rows[3]


@pytest.mark.parametrize(("key", "likely", "place"), [("1", 1, 1), ("2", 0, 2), ("9", 0, None)])
def test_a_key_is_found_wherever_it_was(key: str, likely: int, place: int | None) -> None:
    rows = Rows.of([Row((str(number),), ()) for number in range(3)])
    assert rows.place_of((key,), likely) == place
