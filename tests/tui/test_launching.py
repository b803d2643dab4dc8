"""The launch form: planned while one types, launched as shown, over a fleet in memory."""

import pytest
from textual.widgets import Button, Input, Label, Select

from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.errors import GpuTaken
from llmgw_tui.app import LlmgwApp
from llmgw_tui.screens.launch import LaunchScreen
from tests.support.console import running, until
from tests.support.fleets import (
    FakeFleet,
    make_cluster,
    make_engine,
    make_node,
    make_snapshot,
    make_view,
)

pytestmark = pytest.mark.slow


async def fill_form(fleet: FakeFleet, app: LlmgwApp, pilot: object) -> LaunchScreen:
    """Open the form and type a name and a model; returns it with its plan shown."""
    await pilot.press("L")  # type: ignore[attr-defined]
    form = app.screen
    assert isinstance(form, LaunchScreen)
    form.query_one("#name", Input).value = "demo"
    form.query_one("#model", Input).value = "/models/demo"
    await until(pilot, lambda: "launched" in form.plan_text)  # type: ignore[arg-type]
    return form


async def test_what_is_typed_is_planned_shown_and_launched_as_shown() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        form = await fill_form(fleet, app, pilot)
        text = form.plan_text
        await pilot.press("f5")
        await until(pilot, lambda: app.screen is app.main)
        engine_id = fleet.launched[0].ranks[0].engine_id

        assert "serve /models/demo" in text
        assert engine_id in text
        assert app.main.current == "engines"
        assert len(fleet.launched) == 1


async def test_a_plan_with_errors_cannot_be_launched() -> None:
    fleet = FakeFleet(make_cluster())
    fleet.findings = (Finding("gpu-taken", Severity.ERROR, "gpu1 GPU 2", "is held", "choose 3"),)
    async with running(fleet) as (app, pilot):
        form = await fill_form(fleet, app, pilot)
        await pilot.press("f5")
        text, is_greyed = form.plan_text, form.query_one("#go", Button).disabled

    assert "gpu1 GPU 2: is held" in text
    assert (is_greyed, fleet.launched) == (True, [])


async def test_a_wrong_field_says_so_in_place_and_is_not_planned() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        form = await fill_form(fleet, app, pilot)
        planned = len(fleet.planned)
        form.query_one("#port", Input).value = "http"
        await until(
            pilot, lambda: "1 to 65535" in str(form.query_one("#port-error", Label).content)
        )
        await pilot.pause(0.4)

        assert len(fleet.planned) == planned
        assert form.query_one("#go", Button).disabled


async def test_a_launch_that_is_refused_keeps_the_form_with_the_reason() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        form = await fill_form(fleet, app, pilot)
        fleet.error = GpuTaken("gpu1 GPU 2 is taken", "by chat", "choose another", "gpu1")
        await pilot.press("f5")
        await until(pilot, lambda: "is taken" in form.plan_text and "Command" in form.plan_text)

        assert "✖ gpu1: gpu1 GPU 2 is taken: by chat (choose another)" in form.plan_text
        assert not form.query_one("#go", Button).disabled


async def test_a_node_that_answers_while_the_form_is_open_is_offered() -> None:
    fleet = FakeFleet(make_snapshot(make_view(make_node("n1"))))
    async with running(fleet) as (app, pilot):
        await pilot.press("L")
        chooser = app.screen.query_one("#node", Select)
        chosen = chooser.value
        fleet.push(make_snapshot(make_view(make_node("n1")), make_view(make_node("n2"))))
        await until(pilot, lambda: any(value == "n2" for _, value in chooser._options))

        assert (chosen, chooser.value) == ("n1", "n1")


async def test_an_engine_just_launched_is_selected_when_its_node_lists_it() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        await fill_form(fleet, app, pilot)
        await pilot.press("f5")
        await until(pilot, lambda: app.screen is app.main)
        new = make_engine("demo", EngineState.STARTING, id=fleet.launched[0].ranks[0].engine_id)
        fleet.push(make_snapshot(make_view(make_node("gpu1", engines=(make_engine("chat"), new)))))
        await until(pilot, lambda: app.main.view_of("engines").table.cursor_key == ("gpu1", new.id))
