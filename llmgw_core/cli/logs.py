"""`llmgw logs`: an engine's log, byte for byte with --raw, else each progress bar as its last state."""

import argparse
import asyncio
import sys

from llmgw_core.agent.logtext import strip_escapes
from llmgw_core.agent.protocol import MAX_LOG_CHUNK_BYTES
from llmgw_core.cli.output import clean, print_note
from llmgw_core.cli.session import open_fleet
from llmgw_core.errors import EngineNotFound, NodeError
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.operations import find_engine
from llmgw_core.fleet.printable import without_controls

IDLE_S = 0.5
MAX_TAIL_BYTES = 16 << 20  # of `-n N`: a node that sends no line ends must not fill our memory
MAX_LINE_BYTES = 1 << 20  # a line that never ends is passed on in pieces


class LineFilter:
    """Turns a stream of bytes into lines that show of a `\\r` bar its last state alone."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        return b"".join(show_line(line) + b"\n" for line in lines)

    def flush(self) -> bytes:
        """What is left of the last line."""
        rest, self._rest = self._rest, b""
        return show_line(rest)


def show_line(line: bytes) -> bytes:
    """What a terminal would show of a line in the end, without what it would obey."""
    text = strip_escapes(last_state(line).decode("utf-8", "replace"))
    return without_controls(text, blanks="", kept="\t").encode()


def last_state(line: bytes) -> bytes:
    """What a terminal would show of a line with carriage returns in the end."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


async def run_logs(args: argparse.Namespace) -> int:
    """Print the last lines of an engine's log, and what comes after them with -f."""
    async with open_fleet(args) as (fleet, snapshot):
        node, engine = find_engine(snapshot, args.name, args.node)
        offset = await _find_start(fleet, node, engine.id, args.lines)
        lines = LineFilter()
        await _copy(fleet, node, engine.id, offset, lines=None if args.raw else lines, args=args)
        _write(lines.flush())
    return 0


async def _find_start(fleet: Fleet, node: str, engine_id: str, count: int | None) -> int:
    """The offset from which `count` lines are left; 0 for all."""
    if count is None:
        return 0
    client = fleet.client(node)
    chunk = await client.read_log(engine_id, -1, 1)
    end, start = chunk.end_offset, chunk.end_offset
    if count == 0:
        return end
    found, tail = 0, b""
    oldest = max(chunk.start_offset, end - MAX_TAIL_BYTES)
    # The line break at the very end ends the last line; it does not begin another.
    while found <= count and start > oldest:
        begin = max(oldest, start - MAX_LOG_CHUNK_BYTES)
        piece = await _read_exactly(fleet, node, engine_id, begin, start)
        start, tail = start - len(piece), piece + tail
        found = tail[:-1].count(b"\n") + 1
        if not piece:
            break
    kept = tail[:-1].split(b"\n")
    return end - sum(len(line) + 1 for line in kept[-count:]) if found > count else start


async def _read_exactly(fleet: Fleet, node: str, engine_id: str, begin: int, end: int) -> bytes:
    """The bytes up to `end`, from `begin` or from the oldest still kept; a node may give fewer at a time."""
    data = b""
    while begin < end:
        chunk = await fleet.client(node).read_log(engine_id, begin, end - begin)
        if chunk.skipped:
            data = b""  # what was before the gap does not reach the end
        piece = chunk.data.encode("utf-8", "surrogateescape")[: end - chunk.offset]
        if not piece:
            break
        data += piece
        begin = chunk.offset + len(piece)
    return data


async def _copy(
    fleet: Fleet,
    node: str,
    engine_id: str,
    offset: int,
    *,
    lines: LineFilter | None,
    args: argparse.Namespace,
) -> None:
    end: int | None = None
    dropped = 0
    while True:
        try:
            chunk = await fleet.client(node).read_log(engine_id, offset, MAX_LOG_CHUNK_BYTES)
        except EngineNotFound:
            raise
        except NodeError as error:
            if not args.follow:
                raise
            print_note(f"llmgw: {clean(str(error))}; trying again")
            await asyncio.sleep(2 * IDLE_S)
            continue
        if chunk.skipped:
            print_note(f"llmgw: {chunk.skipped} bytes of the log are no longer kept")
        if chunk.dropped > dropped:
            print_note(f"llmgw: the node could not store {chunk.dropped} bytes of it (disk full?)")
            dropped = chunk.dropped
        data = chunk.data.encode("utf-8", "surrogateescape")
        _write(data if lines is None else lines.feed(data))
        offset = chunk.next_offset
        # Without -f the end is the one seen first: a busy engine must not keep us for ever.
        end = chunk.end_offset if end is None else end
        if chunk.ended or (not args.follow and offset >= end):
            return
        if not data:
            await asyncio.sleep(IDLE_S)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
