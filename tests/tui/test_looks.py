"""Themes, a terminal without colour, and one that shows ASCII alone."""

import pytest
from rich.style import Style
from textual.color import Color

from llmgw_core.domain.engine import EngineState
from llmgw_tui.present.ascii import needs_ascii, to_ascii
from llmgw_tui.present.states import engine_state_of_name
from llmgw_tui.widgets.filters import Look, without_color
from llmgw_tui.widgets.themes import OWN_THEMES, THEME_NAMES
from tests.support.console import running, screen_text, shows, until
from tests.support.fleets import FakeFleet, make_cluster

READABLE = 4.5  # contrast of text by WCAG 2, level AA
VIEWS = "12345678"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8", "TERM": "xterm-256color"}, False),
        ({"LANG": "de_DE.utf8"}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),  # as Python leaves it in the C locale
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, True),
        ({"LC_CTYPE": "en_US.UTF-8", "LANG": "C.ISO-8859-1"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, True),
    ],
)
def test_whether_a_terminal_takes_more_than_ascii(environ: dict[str, str], expected: bool) -> None:
    assert needs_ascii(environ) is expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("● ready ━━╌╌", "* ready ==--"),
        ("Zoë", "Zoe"),
        ("模型", "????"),  # as many cells as before
        ("e\N{COMBINING ACUTE ACCENT}", "e"),
    ],
)
def test_signs_become_ascii_in_as_many_cells(text: str, shown: str) -> None:
    assert to_ascii(text) == shown


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_every_view_can_be_drawn_in_ascii(size: tuple[int, int]) -> None:
    fleet = FakeFleet(make_cluster())
    look = Look(ascii_only=True)
    async with running(fleet, size, look=look) as (app, pilot):
        for key in VIEWS:
            await pilot.press(key)
            lines = [
                "".join(segment.text for segment in line)
                for line in app.screen._compositor.render_strips()
            ]
            filtered = [to_ascii(line) for line in lines]
            assert all(line.isascii() for line in filtered)
            assert [len(line) for line in filtered] == [size[0]] * size[1]


def test_states_keep_a_sign_each_in_ascii() -> None:
    signs = {state: to_ascii(engine_state_of_name(state).glyph) for state in EngineState}

    assert all(sign.isascii() for sign in signs.values())
    assert signs[EngineState.READY] != signs[EngineState.FAILED] != signs[EngineState.LOADING]


def test_without_colour_the_cursor_is_in_reverse_video() -> None:
    ground = without_color(Style(color="red", bgcolor="blue", bold=True))
    text = without_color(Style(color="red"))

    assert (ground.color, ground.bgcolor, ground.reverse, ground.bold) == (None, None, True, True)
    assert (text.color, text.reverse) == (None, False)


async def test_no_color_leaves_no_theme_to_choose() -> None:
    async with running(FakeFleet(make_cluster()), look=Look(colors=False)) as (app, pilot):
        before = app.theme
        await pilot.press("colon", *"theme light", "enter")
        await pilot.pause()

        assert app.theme == before
        assert "NO_COLOR is set" in screen_text(app)


@pytest.mark.parametrize("name", THEME_NAMES)
async def test_a_theme_is_chosen_by_its_name(name: str) -> None:
    async with running(FakeFleet(make_cluster())) as (app, pilot):
        await pilot.press("colon", *f"theme {name}", "enter")
        await pilot.pause()

        assert app.theme == name


@pytest.mark.parametrize("theme", OWN_THEMES, ids=lambda theme: theme.name)
def test_every_tone_can_be_read_on_its_ground(theme: object) -> None:
    ground = _luminance(Color.parse(str(theme.background)))  # type: ignore[attr-defined]
    for tone in ("primary", "secondary", "accent", "success", "warning", "error", "foreground"):
        text = _luminance(Color.parse(getattr(theme, tone)))
        high, low = max(text, ground), min(text, ground)
        assert (high + 0.05) / (low + 0.05) >= READABLE, tone


def _luminance(color: Color) -> float:
    parts = [value / 255 for value in (color.r, color.g, color.b)]
    linear = [
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("look", [Look(), Look(colors=False)])
async def test_buttons_have_their_words_with_and_without_colour(look: Look) -> None:
    async with running(FakeFleet(make_cluster()), look=look) as (app, pilot):
        await pilot.press("L")
        await until(pilot, shows(app, "Launch an engine"))
        form = screen_text(app)
        await pilot.press("escape", "4", "X")
        await until(pilot, shows(app, "Stop an engine"))
        question = screen_text(app)

    assert "Launch (F5)" in form
    assert "Cancel (esc)" in form
    assert "Cancel (esc)" in question
