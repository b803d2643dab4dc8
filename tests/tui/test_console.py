"""The console driven by keys, over a fleet in memory."""

import re
from pathlib import Path

import pytest

from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.errors import Unreachable
from llmgw_tui.app import LlmgwApp
from llmgw_tui.screens.confirm import ConfirmScreen
from llmgw_tui.screens.help import HelpScreen
from llmgw_tui.widgets.table import Table
from llmgw_tui.widgets.toned import LineBar, Pane
from tests.support.console import LAUNCH_ID, running, screen_text, until
from tests.support.fleets import (
    NOW,
    FakeFleet,
    make_cluster,
    make_engine,
    make_node,
    make_snapshot,
    make_view,
)

pytestmark = pytest.mark.slow

SIZES = [(80, 24), (120, 40), (200, 60)]


def engine_table(app: LlmgwApp) -> Table:
    return app.main.view_of("engines").table


def make_engines(*names: str) -> FleetSnapshot:
    """One node with engines that load."""
    engines = tuple(make_engine(name, EngineState.LOADING, progress=0.5) for name in names)
    return make_snapshot(make_view(make_node("n1", engines=engines)))


@pytest.mark.parametrize("size", SIZES)
async def test_the_cluster_is_seen_at_every_size(size: tuple[int, int]) -> None:
    async with running(FakeFleet(make_cluster()), size) as (app, _):
        shown = screen_text(app)

    assert all(name in shown for name in ("gpu1", "gpu10", "GPU held", "◌ timeout", "6/10 GPUs"))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("2", "HELD BY"),
        ("3", "single-node island"),
        ("4", "━━━━╌╌╌╌╌╌ 42 %"),
        ("5", "nothing yet"),
    ],
)
async def test_numbers_open_the_views(key: str, text: str) -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await pilot.press(key)
        shown = screen_text(app)

    assert text in shown


async def test_before_any_answer_the_console_says_that_it_connects() -> None:
    fleet = FakeFleet(FleetSnapshot(NOW))
    async with running(fleet) as (app, pilot):
        await pilot.press("1")
        shown = screen_text(app)

    assert "--nodes 'gpu[01-16]'" in shown


async def test_on_a_small_screen_enter_opens_the_detail_and_escape_closes_it() -> None:
    async with running(FakeFleet(make_cluster()), (80, 24)) as (app, pilot):
        await pilot.press("j", "enter")
        opened = screen_text(app)
        await pilot.press("escape")
        closed = screen_text(app)

    assert "holds 61 GiB" in opened
    assert "holds 61 GiB" not in closed


async def test_the_cursor_stays_on_its_engine_when_rows_come_and_go() -> None:
    fleet = FakeFleet(make_engines("b", "c", "d"))
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "j")
        fleet.push(make_engines("a", "b", "c"))
        await until(
            pilot, lambda: len(engine_table(app).rows) == 3 and app.main.snapshot is not None
        )
        await until(pilot, lambda: engine_table(app).rows[0].key == ("n1", "a-0badcafe"))

        assert engine_table(app).cursor_key == ("n1", "c-0badcafe")


async def test_stop_is_aimed_at_the_engine_of_the_key_press_whatever_moves() -> None:
    fleet = FakeFleet(make_engines("b", "c"))
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "j", "X")
        fleet.push(make_engines("a", "b"))
        await until(pilot, lambda: engine_table(app).rows[0].key == ("n1", "a-0badcafe"))
        await pilot.press("enter")
        await until(pilot, lambda: bool(fleet.stopped))

    assert fleet.stopped == [("n1", "c-0badcafe", None)]


async def test_an_engine_that_serves_is_stopped_only_by_its_name() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "X", "enter", *"chatt", "enter")
        asked = app.screen.query_one("#confirm-ask", LineBar).text
        before = list(fleet.stopped)
        await pilot.press("backspace", "enter")
        await until(pilot, lambda: bool(fleet.stopped))

    assert "That is not it. Type chat" in asked
    assert (before, fleet.stopped) == ([], [("gpu1", "chat-0badcafe", None)])


async def test_escape_leaves_an_engine_alone() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "j", "X")
        was_asked = isinstance(app.screen, ConfirmScreen)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)

    assert (was_asked, fleet.stopped) == (True, [])


async def test_several_marked_engines_are_stopped_by_their_number() -> None:
    fleet = FakeFleet(make_engines("a", "b", "c"))
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "space", "j", "space", "X", "enter")
        asked = app.screen.query_one("#confirm-ask", LineBar).text
        await pilot.press(*"stop 2", "enter")
        await until(pilot, lambda: len(fleet.stopped) == 2)

    assert "Type stop 2" in asked
    assert sorted(fleet.stopped) == [("n1", "a-0badcafe", None), ("n1", "c-0badcafe", None)]


async def test_an_engine_that_is_over_is_forgotten_and_one_that_runs_is_not() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "F")
        refused = (app.screen is app.main, screen_text(app))
        await pilot.press("G", "F", "enter")
        await until(pilot, lambda: bool(fleet.forgotten))

    assert refused[0]
    assert "stop it first" in refused[1]
    assert fleet.forgotten == [("gpu3", "embed-0badcafe")]


async def test_a_restart_takes_all_ranks_under_one_new_launch() -> None:
    ranks = tuple(
        make_engine("big", id=f"big-0badcafe-r{rank}", rank=rank, ranks=2) for rank in range(2)
    )
    views = [make_view(make_node(f"n{rank}", engines=(ranks[rank],))) for rank in range(2)]
    fleet = FakeFleet(make_snapshot(*views))
    async with running(fleet) as (_, pilot):
        await pilot.press("4", "R", *"big", "enter")
        await until(pilot, lambda: bool(fleet.restarted))

    assert fleet.restarted == [((("n0", "big-0badcafe-r0"), ("n1", "big-0badcafe-r1")), LAUNCH_ID)]


async def test_the_question_is_answered_by_mouse_alone() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        await pilot.click("#tabs", offset=(36, 0))
        await pilot.click(engine_table(app), offset=(3, 2))
        await pilot.press("X")
        await pilot.click("#do")
        await until(pilot, lambda: bool(fleet.stopped))

    assert fleet.stopped == [("gpu2", "coder-0badcafe", None)]


async def test_a_stop_that_fails_stays_in_sight_until_escape() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "j")
        await until(pilot, lambda: bool(fleet.log_reads))
        await pilot.press("X")
        fleet.error = Unreachable("gpu2 is gone", "no answer", "try ssh gpu2")
        await pilot.press("enter")
        bar = app.main.query_one("#error", LineBar)
        await until(pilot, lambda: bar.has_class("-shown"))
        text = bar.text
        await pilot.press("escape")

        assert "gpu2 is gone: no answer (try ssh gpu2)" in text
        assert not bar.has_class("-shown")


@pytest.mark.parametrize("key", ["L", "X", "R", "F"])
async def test_a_read_only_console_only_looks(key: str) -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet, read_only=True) as (app, pilot):
        await pilot.press("4", key)
        shown = screen_text(app)

        assert app.screen is app.main
        assert "READ-ONLY" in shown


async def test_the_log_of_the_selected_engine_is_followed_and_bars_are_collapsed() -> None:
    fleet = FakeFleet(make_cluster())
    key = ("gpu2", "coder-0badcafe")
    fleet.logs[key] = b"INFO start\n\rLoading: 10%\rLoading: 42%"
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "j", "l")
        await until(pilot, lambda: "Loading: 42%" in screen_text(app))
        fleet.logs[key] += b"\rLoading: 100%\nINFO ready\n"
        await until(pilot, lambda: "INFO ready" in screen_text(app))
        shown = screen_text(app)

    assert "Loading: 100%" in shown
    assert "Loading: 42%" not in shown
    assert "coder on gpu2  ▼ following" in shown


async def test_scrolling_up_holds_the_log_and_says_how_much_is_new() -> None:
    fleet = FakeFleet(make_cluster())
    key = ("gpu1", "chat-0badcafe")
    fleet.logs[key] = b"".join(b"line %d\n" % number for number in range(500))
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "l")
        await until(pilot, lambda: "line 499" in screen_text(app))
        await pilot.press("k", "k")
        fleet.logs[key] += b"new 1\nnew 2\n"
        await until(pilot, lambda: "2 new below" in screen_text(app))
        held = screen_text(app)
        await pilot.press("f")
        await until(pilot, lambda: "new 2" in screen_text(app))

    assert "‖ held" in held
    assert "new 2\n" not in held


async def test_search_goes_to_the_line_and_marks_it() -> None:
    fleet = FakeFleet(make_cluster())
    lines = [b"line %d\n" % number for number in range(500)]
    lines[100] = b"the needle\n"
    fleet.logs[("gpu1", "chat-0badcafe")] = b"".join(lines)
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "l")
        await until(pilot, lambda: "line 499" in screen_text(app))
        await pilot.press("slash", *"Needle", "enter")
        shown = screen_text(app)

    assert "the needle" in shown
    assert "/Needle: 1 of 1 found" in shown


FAILED_LOG = (
    b"(Worker_TP0 pid=1) INFO 12-31 fine\n(Worker_TP1 pid=2) WARNING 12-31 odd\n"
    b"(Worker_TP1 pid=2) ERROR 12-31 GPU 0 ran out of memory while the weights were loaded\n"
) + b"INFO after\n" * 200


async def test_a_log_is_narrowed_by_level_and_process_and_says_so() -> None:
    fleet = FakeFleet(make_cluster())
    fleet.logs[("gpu3", "embed-0badcafe")] = FAILED_LOG
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "G", "l")
        await until(pilot, lambda: "INFO after" in screen_text(app))
        await pilot.press("v")
        warnings = screen_text(app)
        await pilot.press("v", "v", "m")
        first = screen_text(app)

    assert "only warn+ (2 of 203)" in warnings
    assert "INFO after" not in warnings
    assert "only Worker_TP0 (1 of 203)" in first
    assert "WARNING" not in first


async def test_the_cause_of_a_failure_is_a_key_away_in_its_log() -> None:
    fleet = FakeFleet(make_cluster())
    fleet.logs[("gpu3", "embed-0badcafe")] = FAILED_LOG
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "G", "l")
        await until(pilot, lambda: "INFO after" in screen_text(app))
        before = screen_text(app)
        await pilot.press("D")
        after = screen_text(app)

    assert "ERROR 12-31 GPU 0 ran out" not in before
    assert "ERROR 12-31 GPU 0 ran out" in after
    assert "‖ held" in after


async def test_a_log_is_wrapped_saved_and_told_the_time_of(tmp_path: Path) -> None:
    fleet = FakeFleet(make_cluster())
    key = ("gpu1", "chat-0badcafe")
    fleet.logs[key] = b"x" * 150 + b"END\n"
    async with running(fleet, (80, 24)) as (app, pilot):
        saved: list[tuple[str, str]] = []
        app.deliver_text = lambda file, **how: saved.append((file.read(), how["save_filename"]))  # type: ignore[method-assign]
        await pilot.press("4", "l")
        await until(pilot, lambda: "xxx" in screen_text(app))
        cut = screen_text(app)
        await pilot.press("w")
        wrapped = screen_text(app)
        fleet.logs[key] += b"new\n"
        await until(pilot, lambda: "new" in screen_text(app))
        await pilot.press("t", "S")
        timed = screen_text(app)

    assert "END" not in cut
    assert "END" in wrapped
    assert re.search(r"\d\d:\d\d:\d\d new", timed)
    assert saved == [("x" * 150 + "END\nnew\n", "gpu1-chat-0badcafe.log")]


async def test_a_log_that_cannot_be_read_says_why_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llmgw_tui.feed.RETRY_SECONDS", 0.05)
    fleet = FakeFleet(make_cluster())
    fleet.logs[("gpu1", "chat-0badcafe")] = b"one\n"
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "l")
        await until(pilot, lambda: "one" in screen_text(app))
        fleet.error = Unreachable("gpu1 dropped the connection")
        fleet.logs[("gpu1", "chat-0badcafe")] += b"two\n"
        await until(pilot, lambda: "two" in screen_text(app))
        shown = screen_text(app)

    assert shown.count("one") == 1
    assert "dropped" not in shown


async def test_leaving_the_log_stops_reading_it_and_coming_back_goes_on_where_it_was() -> None:
    fleet = FakeFleet(make_cluster())
    fleet.logs[("gpu1", "chat-0badcafe")] = b"one\n"
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "l")
        await until(pilot, lambda: "one" in screen_text(app))
        await pilot.press("1")
        await until(pilot, lambda: not any(item.group == "log" for item in app.workers))
        fleet.log_reads.clear()
        await pilot.press("5")
        await until(pilot, lambda: bool(fleet.log_reads))

    assert fleet.log_reads[0] == ("gpu1", "chat-0badcafe", 4)


async def test_help_lists_the_keys_of_the_bindings() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await pilot.press("question_mark")
        is_help = isinstance(app.screen, HelpScreen)
        text = app.screen.query_one(Pane).text
        await pilot.press("q")
        await until(pilot, lambda: app.screen is app.main)

    assert is_help
    assert "Stop the selected engine, or the marked ones; asks first" in text


async def test_q_quits_at_the_top_and_stops_nothing() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    assert fleet.stopped == []


async def test_r_reads_all_nodes_again() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (_, pilot):
        await pilot.press("r")
        await until(pilot, lambda: fleet.refreshed == 1)


async def test_an_error_of_llmgw_itself_is_shown_and_the_console_goes_on() -> None:
    fleet = FakeFleet(make_cluster())
    async with running(fleet) as (app, pilot):

        async def break_down() -> None:
            raise ZeroDivisionError("boom")

        fleet.refresh = break_down  # type: ignore[method-assign]
        await pilot.press("r")
        bar = app.main.query_one("#error", LineBar)
        await until(pilot, lambda: "ZeroDivisionError: boom" in bar.text)
        fleet.push(make_engines("later"))
        await until(
            pilot, lambda: len(engine_table(app).rows) == 0 and "1/1 nodes" in screen_text(app)
        )


async def test_y_copies_the_selected_row() -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await pilot.press("4", "y")

        assert app.clipboard.startswith("chat\t● ready\tserving\tgpu1")


async def test_a_filter_narrows_the_rows_live_and_escape_brings_all_back() -> None:
    async with running(FakeFleet(make_engines("abc", "abd", "xyz"))) as (app, pilot):
        await pilot.press("4", "j", "slash", *"AB")
        narrowed = screen_text(app)
        kept = engine_table(app).cursor_key
        await pilot.press(*" nope")
        nothing = screen_text(app)
        await pilot.press("escape")
        after = (len(engine_table(app).rows), engine_table(app).cursor_key)

    assert "2 of 3" in narrowed
    assert kept == ("n1", "abd-0badcafe")
    assert "nothing matches 'AB nope' · Esc clears" in nothing
    assert after == (3, ("n1", "abd-0badcafe"))


async def test_an_order_keeps_the_selection_and_shows_its_arrow() -> None:
    async with running(FakeFleet(make_engines("n10", "n9", "n1"))) as (app, pilot):
        await pilot.press("4", "j", "o")
        rising = ([row.key[1][:-9] for row in engine_table(app).rows], screen_text(app))
        await pilot.press("O")
        falling = ([row.key[1][:-9] for row in engine_table(app).rows], screen_text(app))
        kept = engine_table(app).cursor_key

    assert (rising[0], falling[0]) == (["n1", "n9", "n10"], ["n10", "n9", "n1"])
    assert ("NAME↑" in rising[1], "NAME↓" in falling[1]) == (True, True)
    assert kept == ("n1", "n9-0badcafe")


async def test_from_a_gpu_over_its_process_and_engine_to_the_log_and_all_the_way_back() -> None:
    fleet = FakeFleet(make_cluster())
    fleet.logs["gpu1", "chat-0badcafe"] = b"INFO served\n"
    async with running(fleet) as (app, pilot):
        await pilot.press("2", "i", "j", "j", "enter")
        process = (app.main.current, app.main.selected_key)
        await pilot.press("i", "enter")
        engine = (app.main.current, app.main.selected_key)
        await pilot.press("i", "enter")
        await until(pilot, lambda: "INFO served" in screen_text(app))
        crumb = "gpu1 › chat-0badcafe" in screen_text(app)
        back = []
        for _ in range(3):
            await pilot.press("escape")
            back.append(app.main.current)

    assert process == ("processes", ("gpu1", "0", "4000"))
    assert engine == ("engines", ("gpu1", "chat-0badcafe"))
    assert crumb
    assert back == ["engines", "processes", "gpus"]


async def test_what_changes_and_what_one_does_stand_among_the_events() -> None:
    fleet = FakeFleet(make_engines("a"))
    async with running(fleet) as (app, pilot):
        await pilot.press("4", "X", "enter", "7")
        await until(pilot, lambda: "a-0badcafe on n1 is being stopped." in screen_text(app))
        stopped = make_engine("a", EngineState.STOPPED)
        fleet.push(make_snapshot(make_view(make_node("n1", engines=(stopped,)), age=0.5)))
        await until(pilot, lambda: "loading → stopped" in screen_text(app))
        await pilot.press("g", "i", "enter")

        assert app.main.current == "engines"
