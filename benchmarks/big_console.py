"""`python -m benchmarks.big_console SOCKET COUNT MARKS`: the console over the simulated nodes of `many_agents`.

Writes into MARKS when what a key changed was painted, one monotonic time a line.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from llmgw_core.fleet.config import Target
from llmgw_core.fleet.fleet import Fleet
from llmgw_tui.__main__ import calm_collector
from llmgw_tui.app import LlmgwApp
from llmgw_tui.feed import Feed, FleetOperations
from llmgw_tui.widgets.table import Table


class SocketChannel:
    """Bytes over a Unix socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, n: int) -> bytes:
        """Some bytes."""
        return await self._reader.read(n)

    async def write(self, data: bytes) -> None:
        """All of it."""
        self._writer.write(data)
        await self._writer.drain()

    def stderr_tail(self) -> bytes:
        """There is none."""
        return b""

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()


class SocketTransport:
    """The way to one node of `many_agents`."""

    def __init__(self, path: Path, number: int) -> None:
        self._path, self._number = path, number

    async def open_shell(self) -> SocketChannel:
        """A shell there."""
        reader, writer = await asyncio.open_unix_connection(self._path)
        writer.write(b"%d\n" % self._number)
        return SocketChannel(reader, writer)

    async def close(self) -> None:
        """Its channel is all there is."""


class MeasuredApp(LlmgwApp):
    """Notes when the screen was written after the cursor of a table has moved."""

    marks: TextIO
    is_moved = False

    def on_mount(self) -> None:
        """Watch every table's keys."""
        move = Table.action_move

        def note(table: Table, step: int) -> None:
            move(table, step)
            self.is_moved = True

        setattr(Table, "action_move", note)  # noqa: B010 - mypy would not have it otherwise
        super().on_mount()

    def _display(self, screen: Any, renderable: Any) -> None:  # Any: Textual's own
        super()._display(screen, renderable)
        if self.is_moved and renderable is not None:
            self.is_moved = False
            self.marks.write(f"{time.monotonic()}\n")
            self.marks.flush()


async def run(path: Path, count: int, marks: Path) -> None:
    """Until `q`."""
    calm_collector()
    numbers = {f"gpu{number + 1:04}": number for number in range(count)}
    targets = [Target(name, address=f"{name}.cluster") for name in numbers]
    fleet = Fleet(
        targets,
        connect=lambda target: SocketTransport(path, numbers[target.name]),
        interval_s=1.0,
    )
    with marks.open("w", encoding="utf-8") as file:
        async with fleet:
            app = MeasuredApp(Feed(fleet, FleetOperations(fleet, {})), f"{count} simulated")
            app.marks = file
            await app.run_async()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
