"""Commands typed after `:` and chosen from the palette, over a fleet in memory."""

import csv
import json
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from llmgw_tui.app import LlmgwApp
from llmgw_tui.present.export import export_table
from llmgw_tui.present.table import Column, Row
from llmgw_tui.present.text import line
from llmgw_tui.screens.command_line import Candidates, CommandLine
from llmgw_tui.screens.confirm import ConfirmScreen
from llmgw_tui.screens.help import HelpScreen
from llmgw_tui.screens.launch import LaunchScreen
from llmgw_tui.screens.views import COMMANDS, IDS
from llmgw_tui.widgets.toned import LineBar, Pane
from tests.support.console import running, screen_text, until
from tests.support.fleets import FakeFleet, make_cluster

pytestmark = pytest.mark.slow


async def give(app: LlmgwApp, pilot: Pilot[None], text: str) -> None:
    """Type a command and press enter."""
    await pilot.press("colon")
    await until(pilot, lambda: isinstance(app.screen, CommandLine))
    app.screen.query_one(Input).value = text
    await pilot.press("enter")


def said(app: LlmgwApp) -> str:
    return app.screen.query_one("#command-said", LineBar).text


@pytest.mark.parametrize("name", IDS)
async def test_each_view_is_opened_by_its_name(name: str) -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, name)
        await until(pilot, lambda: app.screen is app.main)

        assert app.main.current == name


async def test_node_and_engine_are_gone_to_and_back_returns() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, "engine coder")
        engine = (app.main.current, app.main.selected_key)
        await give(app, pilot, "node gpu3")
        node = (app.main.current, app.main.selected_key)
        await pilot.press("escape")

        assert engine == ("engines", ("gpu2", "coder-0badcafe"))
        assert node == ("cluster", ("gpu3",))
        assert (app.main.current, app.main.selected_key) == engine


async def test_a_log_is_followed_by_the_name_of_its_engine() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        await give(app, pilot, "logs coder")
        await until(pilot, lambda: bool(fleet.log_reads))

        assert (app.main.current, fleet.log_reads[0][:2]) == ("log", ("gpu2", "coder-0badcafe"))


async def test_a_table_is_filtered_and_sorted() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, "filter h100")
        kept = [key[0] for key in app.main.view_of("cluster").table.rows.keys]
        await give(app, pilot, "sort node down")
        turned = [key[0] for key in app.main.view_of("cluster").table.rows.keys]
        await give(app, pilot, "filter")
        await give(app, pilot, "sort")
        again = [key[0] for key in app.main.view_of("cluster").table.rows.keys]

    assert kept == ["gpu1", "gpu2", "gpu10"]
    assert turned == ["gpu10", "gpu2", "gpu1"]
    assert again == ["gpu1", "gpu2", "gpu3", "gpu10", "gpu11"]


async def test_launch_opens_the_form_on_the_node() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, "launch gpu2")
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen))


async def test_stop_asks_like_its_key() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, "engine chat")
        await give(app, pilot, "stop")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))


async def test_what_is_not_understood_stays_to_be_mended() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, "node gpu9")
        wrong = said(app)
        app.screen.query_one(Input).value = "node gpu3"
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)

        assert wrong == " ✖ 'gpu9' is no NAME here: gpu3, gpu2, gpu1, gpu11"
        assert app.main.selected_key == ("gpu3",)


async def test_tab_completes_and_arrows_choose() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await pilot.press("colon", *"node", "tab")
        completed = app.screen.query_one(Input).value
        await pilot.press("down", "down", "tab")
        chosen = app.screen.query_one(Input).value
        await pilot.press("enter")

        assert (completed, chosen) == ("node ", "node gpu2")
        assert app.main.selected_key == ("gpu2",)


async def test_a_candidate_is_clicked_and_a_click_beside_leaves() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await pilot.press("colon", *"node ")
        await pilot.click(Candidates, offset=(4, 2))
        clicked = app.screen.query_one(Input).value
        await pilot.click(offset=(4, 2))
        await until(pilot, lambda: app.screen is app.main)

        assert clicked == "node gpu3"


async def test_a_read_only_console_dims_and_refuses_what_changes_something() -> None:
    async with running(FakeFleet(make_cluster()), read_only=True) as (app, pilot):
        await pilot.press("colon", *"sto")
        shown = screen_text(app)
        await pilot.press("enter")

        assert "(read-only)" in shown
        assert ":stop changes something, and this console is read-only" in said(app)


async def test_the_palette_has_the_same_commands() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        offered = {each.title: each for each in app.get_system_commands(app.main)}
        await pilot.press("ctrl+p")
        opened = isinstance(app.screen, CommandPalette)
        await pilot.press("escape")
        offered["gpus"].callback()
        await until(pilot, lambda: app.main.current == "gpus")
        offered["node NAME"].callback()
        await until(pilot, lambda: isinstance(app.screen, CommandLine))

        assert opened
        assert {f":{title}" for title in offered} == {each.usage for each in COMMANDS}
        assert app.screen.query_one(Input).value == "node "


async def test_help_lists_every_command() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, "help")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = app.screen.query_one(Pane).text

    assert [each.usage for each in COMMANDS if each.usage not in text] == []


async def test_quit_ends_the_console() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, "q")
        await until(pilot, lambda: not app.is_running)


async def test_a_table_is_saved_as_it_is_shown_and_never_over_a_file(tmp_path: Path) -> None:
    target = tmp_path / "nodes.csv"
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, "filter h100")
        await give(app, pilot, f"export csv {target}")
        saved = target.read_text("utf-8")
        await give(app, pilot, f"export csv {target}")
        await pilot.pause()
        shown = screen_text(app)
        await give(app, pilot, f"export json {tmp_path / 'nodes.json'}")

    rows = list(csv.DictReader(saved.splitlines()))
    assert [row["node"] for row in rows] == ["gpu1", "gpu2", "gpu10"]
    assert target.stat().st_mode & 0o777 == 0o600
    assert "it is there already" in " ".join(shown.split())
    assert target.read_text("utf-8") == saved
    assert json.loads((tmp_path / "nodes.json").read_text("utf-8"))[0]["node"] == "gpu1"


async def test_the_screen_is_saved_as_a_picture_without_the_command_line(tmp_path: Path) -> None:
    target = tmp_path / "seen.svg"
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await give(app, pilot, f"screenshot {target}")
        await until(pilot, target.exists)
        await pilot.pause()

    picture = target.read_text("utf-8")
    assert picture.startswith("<svg")
    assert "gpu10" in picture
    assert "screenshot" not in picture


def test_a_cell_that_a_spreadsheet_would_run_is_only_text() -> None:
    columns = (Column("NAME"), Column("NOTE"))
    rows = (Row(("a",), (line("=cmd()"), line('say "hi", bob'))),)

    assert export_table(columns, rows, "csv") == 'name,note\n\'=cmd(),"say ""hi"", bob"\n'
    assert json.loads(export_table(columns, rows, "json")) == [
        {"name": "=cmd()", "note": 'say "hi", bob'}
    ]
