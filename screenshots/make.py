"""Draw the console over a recorded cluster and keep the pictures beside this file.

    python -m screenshots.make            write the pictures
    python -m screenshots.make --check    exit 1 if a kept picture is not what the console draws now
    python -m screenshots.make --record   write the made-up cluster as the recording first

A recording is a FleetSnapshot as `llmgw_core.domain.wire` writes it.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Input

from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.wire import dump_json, from_jsonable
from llmgw_tui.app import LlmgwApp
from llmgw_tui.screens.launch import LaunchScreen
from tests.support.console import running, shows, until
from tests.support.fleets import FakeFleet, make_cluster

HERE = Path(__file__).parent
RECORDING = HERE / "cluster.json"
LOGS = {
    ("gpu1", "chat-0badcafe"): HERE / "chat.log",
    ("gpu2", "coder-0badcafe"): HERE / "coder.log",
}
Act = Callable[[LlmgwApp, "Pilot[None]"], Awaitable[None]]


@dataclass(frozen=True)
class Picture:
    """What to do before the picture is taken."""

    name: str
    size: tuple[int, int]
    act: Act


def steps(*pressed: tuple[str, str]) -> Act:
    """For each pair press the key, and wait until the screen shows the text."""

    async def act(app: LlmgwApp, pilot: "Pilot[None]") -> None:
        for key, shown in pressed:
            await pilot.press(key)
            await until(pilot, shows(app, shown))

    return act


async def fill_launch_form(app: LlmgwApp, pilot: "Pilot[None]") -> None:
    """Open the form on gpu1 and let it plan."""
    await pilot.press("L")
    form = app.screen
    if not isinstance(form, LaunchScreen):
        raise TypeError("the launch form did not open")
    form.query_one("#name", Input).value = "chat-large"
    form.query_one("#model", Input).value = "/models/chat-large"
    form.query_one("#tensor_parallel", Input).value = "2"
    await until(pilot, lambda: "can be launched" in form.plan_text)


WIDE, FULL, SMALL = (120, 36), (200, 50), (80, 24)
PICTURES = (
    Picture("cluster", WIDE, steps(("j", "▸gpu2"))),
    Picture("cluster-small", SMALL, steps(("j", "▸gpu2"))),
    Picture("cluster-large", FULL, steps(("j", "▸gpu2"))),
    Picture("gpus", WIDE, steps(("2", "HELD BY"))),
    Picture("fabric", WIDE, steps(("3", "Islands"))),
    Picture("engines", WIDE, steps(("4", "Running:"), ("j", "shards"))),
    Picture("log", WIDE, steps(("4", "Running:"), ("l", "following"))),
    Picture("stop", WIDE, steps(("4", "Running:"), ("X", "Type chat"))),
    Picture("launch", WIDE, fill_launch_form),
)


def read_recording(path: Path) -> FleetSnapshot:
    """The recorded picture of a cluster."""
    return from_jsonable(FleetSnapshot, json.loads(path.read_text("utf-8")))


async def draw(picture: Picture, snapshot: FleetSnapshot) -> str:
    """The picture as SVG, the same bytes for the same console."""
    fleet = FakeFleet(snapshot)
    for key, path in LOGS.items():
        fleet.logs[key] = path.read_bytes().replace(b"<CR>", b"\r")
    async with running(fleet, picture.size) as (app, pilot):
        await picture.act(app, pilot)
        await pilot.pause()
        svg = app.export_screenshot(title="llmgw")
    return re.sub(r"terminal-\d+", "terminal-0", svg)


async def make_all(*, check: bool) -> list[str]:
    """Draw every picture. Returns the names of those that differ from what is kept."""
    snapshot = read_recording(RECORDING)
    stale = []
    for picture in PICTURES:
        svg = await draw(picture, snapshot)
        path = HERE / f"{picture.name}.svg"
        if not path.is_file() or path.read_text("utf-8") != svg:
            stale.append(picture.name)
            if not check:
                path.write_text(svg, "utf-8")
    return stale


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--record", action="store_true", help="write cluster.json anew")
    args = parser.parse_args()
    if args.record:
        RECORDING.write_text(dump_json(make_cluster(), indent=1) + "\n", "utf-8")
    stale = asyncio.run(make_all(check=args.check))
    for name in stale:
        print(
            f"{name}.svg {'is stale: run python -m screenshots.make' if args.check else 'written'}"
        )
    return 1 if stale and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
