"""The console run without a terminal, over a fleet in memory."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.app import App
from textual.pilot import Pilot

from llmgw_tui.app import LOOK, LlmgwApp
from llmgw_tui.feed import Feed
from llmgw_tui.widgets.filters import Look
from tests.support.fleets import NOW, FakeFleet
from tests.support.queues import FakeGateways

DEADLINE_SECONDS = 15.0
LAUNCH_ID = "2daf10d7" + "0" * 24


def make_app(
    fleet: FakeFleet,
    *,
    read_only: bool = False,
    gateways: FakeGateways | None = None,
    look: Look = LOOK,
) -> LlmgwApp:
    """The console over a fleet in memory, at one fixed time."""
    feed = Feed(fleet, fleet, new_id=lambda: LAUNCH_ID, gateways=gateways)
    return LlmgwApp(feed, "prod-a", read_only=read_only, clock=lambda: NOW, look=look)


@asynccontextmanager
async def running(
    fleet: FakeFleet,
    size: tuple[int, int] = (120, 40),
    *,
    read_only: bool = False,
    gateways: FakeGateways | None = None,
    look: Look = LOOK,
) -> AsyncIterator[tuple[LlmgwApp, Pilot[None]]]:
    """The console running without a terminal, its first picture drawn."""
    app = make_app(fleet, read_only=read_only, gateways=gateways, look=look)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.screen is app.main and app.main.is_drawn)
        yield app, pilot


async def until(pilot: Pilot[None], claim: Callable[[], bool]) -> None:
    """Let the console run until the claim holds.

    Raises:
        AssertionError: it did not within the deadline.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not claim():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        await asyncio.sleep(0.02)
    await pilot.pause()


def screen_text(app: App[None]) -> str:
    """What the terminal shows now, as text."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip)[:width] for strip in lines[:height])


def shows(app: App[None], text: str) -> Callable[[], bool]:
    """The claim that the text is on the screen."""
    return lambda: text in screen_text(app)
