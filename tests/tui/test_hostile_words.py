"""The console over a node that means harm: words a terminal obeys and numbers nobody expects, in every field."""

import pytest

from llmgw_core.domain.inventory import Node
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.fleet.schema import parse_reply
from tests.support.console import running, screen_text
from tests.support.fleets import FakeFleet, make_snapshot, make_view
from tests.support.hostile_values import (
    NUMBERS,
    Json,
    control_characters,
    everywhere,
    full_node,
    hostile_node,
)

pytestmark = [pytest.mark.slow, pytest.mark.faults]
VIEWS = "123456"


async def test_console_draws_no_control_character_of_a_node() -> None:
    drawn = ""
    async with running(FakeFleet(make_snapshot(make_view(hostile_node())))) as (app, pilot):
        for key in VIEWS:
            await pilot.press(key, "enter")
            await pilot.pause()
            drawn += screen_text(app)
            await pilot.press("escape")

    assert "pwned" in drawn
    assert control_characters(drawn) == []


@pytest.mark.parametrize("number", NUMBERS)
async def test_console_stands_numbers_nobody_expects(number: int) -> None:
    def put(value: Json) -> Json:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return type(value)(number) if is_number else value

    tree = everywhere(Node, to_jsonable(full_node()), put)
    node = parse_reply(Node, tree, "test", "n1")

    async with running(FakeFleet(make_snapshot(make_view(node)))) as (app, pilot):
        for key in VIEWS:
            await pilot.press(key, "enter")
            await pilot.pause()
            await pilot.press("escape")

        assert "n1" in screen_text(app)
