"""The last lines of a log: which of them are shown, at which row each stands, and where a search hits.

`LogStore` has a memory and touches nothing else. Rows are what a screen scrolls over: one a line, or several where
lines are wrapped. A line has a number that stays its own when older lines are let go.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import NamedTuple

from rich.cells import cell_len

from llmgw_tui.present.log_lines import Level, level_of, process_of

MAX_LINES = 100_000
SLACK = 10  # lines are let go a tenth at a time: cheaper than one by one
TIME_CELLS = 9  # `22:31:05 `


@dataclass(frozen=True)
class LogFilter:
    """Which lines are shown: from a level on, of one process, and only those that the search finds."""

    level: Level = Level.DEBUG
    process: str | None = None
    only_hits: bool = False

    @property
    def is_open(self) -> bool:
        """Whether every line is shown."""
        return self == LogFilter()


class RowPlace(NamedTuple):
    """What stands at a row: a line by its number, and which part of it where it is wrapped."""

    number: int
    part: int


class LogStore:
    """Keeps at most `max_lines` lines, and one still being written."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._max_lines = max_lines
        self._first = 0  # number of the oldest line kept
        self._lines: list[str] = []
        self._levels = bytearray()
        self._processes = array("H")
        self._times = array("d")  # when it was read here, UTC epoch seconds; 0: it was there before
        self._names: list[str] = [""]  # of processes, by their number
        self._partial = ""
        self._filter = LogFilter()
        self._pattern: re.Pattern[str] | None = None
        self._hits: list[int] = []  # numbers of lines shown that the search finds
        self._shown: list[int] | None = None  # numbers of lines shown; None: all
        self._cells: int | None = None  # the width lines are wrapped to; None: they are not
        self._ends: list[int] = []  # of the lines shown: rows up to and with each, where wrapped

    # --- lines --------------------------------------------------------------------------------

    @property
    def line_count(self) -> int:
        """Lines kept, with the one still being written."""
        return len(self._lines) + bool(self._partial)

    @property
    def process_names(self) -> tuple[str, ...]:
        """The processes that have written, in the order of their first line."""
        return tuple(self._names[1:])

    def add(self, lines: Sequence[str], partial: str, now: float = 0.0) -> int:
        """Put lines at the end. Returns how many rows went at the top.

        Args:
            lines: cleaned, without line ends.
            partial: the line still being written.
            now: UTC epoch seconds; 0 where they are of an unknown time.
        """
        for text in lines:
            self._add_line(text, now)
        self._partial = partial
        return self._let_go() if len(self._lines) > self._max_lines * (1 + 1 / SLACK) else 0

    def _add_line(self, text: str, now: float) -> None:
        number = self._first + len(self._lines)
        before = Level(self._levels[-1]) if self._levels else Level.INFO
        process = self._number_of(process_of(text))
        self._lines.append(text)
        self._levels.append(level_of(text, before))
        self._processes.append(process)
        self._times.append(now)
        if not self._passes(number):
            return
        if self._shown is not None:
            self._shown.append(number)
        if self._cells is not None:
            self._ends.append((self._ends[-1] if self._ends else 0) + self._rows_of(text))
        if self._pattern is not None and self._pattern.search(text):
            self._hits.append(number)

    def _number_of(self, process: str | None) -> int:
        if process is None:
            return 0
        if process not in self._names:
            if len(self._names) > array("H", [0]).itemsize * 1024:
                return 0  # a hostile log does not make names without end
            self._names.append(process)
        return self._names.index(process)

    def _let_go(self) -> int:
        """Let the oldest lines go down to the most that is kept. Returns the rows they had."""
        count = len(self._lines) - self._max_lines
        rows = self.row_of(self._first + count)
        for kept in (self._lines, self._levels, self._processes, self._times):
            del kept[:count]
        self._first += count
        del self._hits[: bisect_left(self._hits, self._first)]
        gone = count
        if self._shown is not None:
            gone = bisect_left(self._shown, self._first)
            del self._shown[:gone]
        if self._cells is not None:
            self._ends = [end - rows for end in islice(self._ends, gone, None)]
        return rows

    def text_of(self, number: int) -> str:
        """The text of a line; "" where there is none."""
        place = number - self._first
        if 0 <= place < len(self._lines):
            return self._lines[place]
        return self._partial if place == len(self._lines) else ""

    def time_of(self, number: int) -> float:
        """When a line was read here, UTC epoch seconds; 0: it was there before."""
        place = number - self._first
        return self._times[place] if 0 <= place < len(self._times) else 0.0

    def level_at(self, number: int) -> Level:
        """The level of a line."""
        place = number - self._first
        if 0 <= place < len(self._levels):
            return Level(self._levels[place])
        return level_of(self._partial, Level.INFO)

    def tail(self, count: int) -> tuple[str, ...]:
        """The last lines, filtered or not, oldest first."""
        kept = self._lines[-count:]
        return tuple([*kept, self._partial][-count:] if self._partial else kept)

    def shown_lines(self) -> Iterable[str]:
        """All lines shown, oldest first."""
        numbers: Iterable[int] = (
            range(self._first, self._first + len(self._lines))
            if self._shown is None
            else self._shown
        )
        yield from (self._lines[number - self._first] for number in numbers)
        if self._partial:
            yield self._partial

    # --- filter, search, wrap -----------------------------------------------------------------

    @property
    def filter(self) -> LogFilter:
        """Which lines are shown."""
        return self._filter

    def set_filter(self, wanted: LogFilter) -> None:
        """Show these lines only."""
        self._filter = wanted
        self._lay_out()

    def set_pattern(self, pattern: re.Pattern[str] | None) -> None:
        """Search for this; None searches for nothing."""
        self._pattern = pattern
        if pattern is None and self._filter.only_hits:
            self._filter = LogFilter(self._filter.level, self._filter.process)
        self._lay_out()

    def set_cells(self, cells: int | None) -> None:
        """Wrap to this width; None wraps nothing."""
        if cells != self._cells:
            self._cells = cells
            self._lay_out()

    def _lay_out(self) -> None:
        """Find anew what is shown, where it stands, and what is hit."""
        last = self._first + len(self._lines)
        numbers: Iterable[int] = range(self._first, last)
        self._shown = None
        if not self._filter.is_open:
            self._shown = [number for number in numbers if self._passes(number)]
            numbers = self._shown
        first, lines, pattern = self._first, self._lines, self._pattern
        search = None if pattern is None else pattern.search
        self._hits = (
            []
            if search is None
            else [number for number in numbers if search(lines[number - first])]
        )
        self._ends = []
        if self._cells is not None:
            self._ends = list(accumulate(self._rows_of(lines[n - first]) for n in numbers))

    def _passes(self, number: int) -> bool:
        wanted, place = self._filter, number - self._first
        if self._levels[place] < wanted.level:
            return False
        if wanted.process is not None and self._names[self._processes[place]] != wanted.process:
            return False
        if wanted.only_hits and self._pattern is not None:
            return self._pattern.search(self._lines[place]) is not None
        return True

    def _rows_of(self, text: str) -> int:
        if self._cells is None:
            return 1
        cells = len(text) if text.isascii() else cell_len(text)
        return max(1, -(-cells // max(1, self._cells)))

    # --- rows ---------------------------------------------------------------------------------

    @property
    def shown_count(self) -> int:
        """Lines shown, without the one still being written."""
        return len(self._lines) if self._shown is None else len(self._shown)

    @property
    def row_count(self) -> int:
        """Rows of all that is shown, with the line still being written."""
        rows = self.shown_count if self._cells is None else (self._ends[-1] if self._ends else 0)
        return rows + (self._rows_of(self._partial) if self._partial else 0)

    def at_row(self, row: int) -> RowPlace | None:
        """What stands at a row; None below the last."""
        if row < 0:
            return None
        place = row if self._cells is None else bisect_right(self._ends, row)
        if place < self.shown_count:
            number = self._first + place if self._shown is None else self._shown[place]
            start = self._start_of(place)
            return RowPlace(number, row - start)
        start = self._start_of(self.shown_count)
        if self._partial and row - start < self._rows_of(self._partial):
            return RowPlace(self._first + len(self._lines), row - start)
        return None

    def row_of(self, number: int) -> int:
        """The row at which a line begins, or would if it were shown."""
        place = number - self._first if self._shown is None else bisect_left(self._shown, number)
        return self._start_of(max(0, min(place, self.shown_count)))

    def _start_of(self, place: int) -> int:
        if self._cells is None:
            return place
        return self._ends[place - 1] if place > 0 else 0

    # --- hits ---------------------------------------------------------------------------------

    @property
    def hit_count(self) -> int:
        """Lines shown that the search finds."""
        return len(self._hits)

    def hit_from(self, number: int, step: int) -> tuple[int, int] | None:
        """(line number, its ordinal from 1) of the next hit after a line, or before it; None: there is no more."""
        place = (
            bisect_right(self._hits, number) if step > 0 else bisect_left(self._hits, number) - 1
        )
        if not 0 <= place < len(self._hits):
            return None
        return self._hits[place], place + 1

    def nth_hit(self, ordinal: int) -> int | None:
        """The line of a hit by its ordinal from 1; None where there is none."""
        return self._hits[ordinal - 1] if 0 < ordinal <= len(self._hits) else None

    def find_cause(self, message: str) -> int | None:
        """The number of the line that a diagnosis was read from, else of the first error; None without either.

        Args:
            message: the diagnosis, which quotes the line, cut, maybe behind a summary and a colon.
        """
        quotes = [message.rstrip("…"), message.partition(": ")[2].rstrip("…")]
        for quote in quotes:
            if not quote:
                continue
            for place, text in enumerate(self._lines):
                if quote in text:
                    return self._first + place
        place = self._levels.find(Level.ERROR)
        return None if place < 0 else self._first + place
