"""A log that is followed: bounded, drawn only where it is seen, searched, filtered, and held when scrolled up."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from llmgw_tui.present.log import LogLook
from llmgw_tui.present.log_lines import Level, compile_search, log_line
from llmgw_tui.present.log_store import MAX_LINES, TIME_CELLS, LogFilter, LogStore
from llmgw_tui.present.text import Line, Span, Tone
from llmgw_tui.widgets.toned import TonedView


class LogView(TonedView, can_focus=True):
    """The last lines of one log. Lines are cleaned before they come here; tones are found when drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/", tooltip="Search: words or a regular expression"),
        Binding("f,p", "follow", "Follow", tooltip="Follow the end, or hold"),
        Binding("v", "level", "Level", tooltip="Show all lines, warnings and errors, errors alone"),
        Binding("m", "process", "Process", tooltip="Show the lines of one process (rank) after the other, then all"),
        Binding("w", "wrap", "Wrap", tooltip="Wrap long lines, or cut them"),
        Binding("D", "cause", "Cause", key_display="D", tooltip="Go to the line that the diagnosis was read from"),
        Binding("S", "save", "Save", key_display="S", tooltip="Save the lines shown to a file"),
        Binding("t", "times", "Times", tooltip="Show when each line was read here"),
        Binding("ampersand", "only_hits", "Hits only", key_display="&", tooltip="Show only the lines that the search finds", show=False),
        Binding("n", "next_hit(1)", "Next hit", show=False),
        Binding("N", "next_hit(-1)", "Previous hit", show=False),
        Binding("j,down", "scroll_down", "Down", show=False),
        Binding("k,up", "scroll_up", "Up", show=False),
        Binding("g,home", "top", "Top", show=False),
        Binding("G,end", "bottom", "End", show=False),
        Binding("pageup,ctrl+b", "page_up", "Page up", show=False),
        Binding("pagedown,ctrl+f,space", "page_down", "Page down", show=False),
    ]  # fmt: skip

    class SearchWanted(Message):
        """The operator pressed `/`."""

    class SaveWanted(Message):
        """The operator pressed `S`."""

    class CauseWanted(Message):
        """The operator pressed `D`: whoever knows the diagnosis calls `go_to_cause`."""

    class Moved(Message):
        """How it is looked at has changed."""

    def __init__(self, *, id: str | None = None, max_lines: int = MAX_LINES) -> None:  # noqa: A002
        super().__init__(id=id)
        self._max_lines = max_lines
        self._store = LogStore(max_lines)
        self._search = ""
        self._is_moving = False
        self._known_max = 0
        self._is_wrapped = False
        self._has_times = False
        self._widest = 0
        self._hit = 0  # the ordinal of the hit last gone to
        self._following = True
        self._behind = 0

    @property
    def look(self) -> LogLook:
        """How it is looked at."""
        store = self._store
        return LogLook(
            self._following,
            self._behind,
            store.filter,
            store.shown_count,
            store.line_count,
            self._search,
            store.hit_count,
            self._hit,
            self._is_wrapped,
            self._has_times,
        )

    @property
    def line_count(self) -> int:
        """Lines kept, with the one still being written."""
        return self._store.line_count

    def tail(self, count: int) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return self._store.tail(count)

    def visible_text(self) -> str:
        """The lines on the screen, for the clipboard; a line that is seen in part is copied whole."""
        top = self.scroll_offset.y
        places = [self._store.at_row(row) for row in range(top, top + self.size.height)]
        numbers = dict.fromkeys(place.number for place in places if place is not None)
        return "\n".join(self._store.text_of(number) for number in numbers).rstrip()

    def shown_text(self) -> str:
        """All lines shown, as they are saved."""
        return "".join(f"{text}\n" for text in self._store.shown_lines())

    def clear(self) -> None:
        """Forget everything: another log comes. How it is looked at stays, but for the process."""
        level, pattern = self._store.filter.level, compile_search(self._search)[0]
        self._store = LogStore(self._max_lines)
        self._store.set_pattern(pattern)
        self._store.set_filter(LogFilter(level))
        self._behind, self._hit, self._widest, self._following = 0, 0, 0, True
        self._resize_rows()
        self._go_to(0)
        self.refresh()

    def add(self, lines: Sequence[str], partial: str, *, now: float = 0.0) -> None:
        """Put lines at the end; `partial` is the line still being written, `now` when they were read."""
        lost = self._store.add(lines, partial, now)
        for text in (*lines, partial):
            cells = len(text) if text.isascii() else cell_len(text)
            self._widest = max(self._widest, cells)
        self._resize_rows()
        if self._following:
            self._go_to(self.max_scroll_y)
        else:
            self._behind += len(lines)
            if lost:
                self._go_to(self.scroll_offset.y - lost)
        self.refresh()

    def _resize_rows(self) -> None:
        cells = self.scrollable_content_region.width
        time_cells = TIME_CELLS if self._has_times else 0
        self._store.set_cells(max(8, cells - time_cells) if self._is_wrapped and cells else None)
        width = 0 if self._is_wrapped else self._widest + time_cells
        self.virtual_size = Size(width, self._store.row_count)

    def render_line(self, y: int) -> Strip:
        """Textual asks for line `y` of what is visible: only these are given tones."""
        left, top = self.scroll_offset
        cells, base = self.size.width, self.rich_style
        place = self._store.at_row(top + y)
        if place is None:
            return Strip.blank(cells, base)
        text = self._store.text_of(place.number)
        pattern = compile_search(self._search)[0]
        value: Line = log_line(text, pattern, self._store.level_at(place.number))
        strip = Strip(self.segments(value, base))
        prefix: Line = ()
        if self._has_times:
            prefix = (Span(self._time_text(place.number, place.part), Tone.DIM),)
        if self._is_wrapped:
            room = max(8, self.scrollable_content_region.width - TIME_CELLS * self._has_times)
            strip = strip.crop(place.part * room, (place.part + 1) * room)
            left = 0
        strip = Strip([*self.segments(prefix, base), *strip]).crop(left, left + cells)
        return strip.extend_cell_length(cells, base)

    def _time_text(self, number: int, part: int) -> str:
        read_at = self._store.time_of(number)
        if part or not read_at:
            return " " * TIME_CELLS
        return time.strftime("%H:%M:%S ", time.localtime(read_at))

    # --- how it is looked at ------------------------------------------------------------------

    def search(self, text: str) -> str:
        """Mark this wherever it stands, and go to the last place before the end. Returns what is wrong with it."""
        pattern, wrong = compile_search(text)
        self._search, self._hit = text, 0
        self._change(lambda: self._store.set_pattern(pattern))
        if self._store.hit_count:
            self.action_next_hit(-1)
        return wrong

    def _set_filter(self, wanted: LogFilter) -> None:
        self._hit = 0
        self._change(lambda: self._store.set_filter(wanted))

    def _change(self, act: Callable[[], object]) -> None:
        """Change what is shown; the line at the top stays there where it can."""
        place = self._store.at_row(self.scroll_offset.y)
        act()
        self._resize_rows()
        if self._following:
            self._go_to(self.max_scroll_y)
        elif place is not None:
            self._go_to(self._store.row_of(place.number))
        self.refresh()
        self.post_message(self.Moved())

    def go_to_cause(self, message: str) -> bool:
        """Go to the line that a diagnosis quotes, else to the first error; False when there is neither."""
        number = self._store.find_cause(message)
        if number is None:
            return False
        if not self._store.filter.is_open:
            self._set_filter(LogFilter())
        self._show_line(number)
        return True

    def _show_line(self, number: int) -> None:
        self._set_following(follow=False)
        row = self._store.row_of(number)
        top = self.scroll_offset.y
        if not top <= row < top + self.size.height:
            self._go_to(row - self.size.height // 2)

    def action_level(self) -> None:
        """Show all lines, then warnings and errors, then errors alone."""
        levels = (Level.DEBUG, Level.WARN, Level.ERROR)
        wanted = self._store.filter
        place = levels.index(wanted.level) if wanted.level in levels else 0
        self._set_filter(replace(wanted, level=levels[(place + 1) % len(levels)]))

    def action_process(self) -> None:
        """Show the lines of the next process; after the last, of all."""
        names = (None, *self._store.process_names)
        wanted = self._store.filter
        place = names.index(wanted.process) if wanted.process in names else 0
        self._set_filter(replace(wanted, process=names[(place + 1) % len(names)]))

    def action_only_hits(self) -> None:
        """Show only what the search finds, or all again."""
        wanted = self._store.filter
        if self._search:
            self._set_filter(replace(wanted, only_hits=not wanted.only_hits))
        else:
            self.notify("Search for something first: /", severity="warning")

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self._is_wrapped = not self._is_wrapped
        self._change(lambda: self.scroll_to(x=0, animate=False))

    def action_times(self) -> None:
        """Show when each line was read, or not."""
        self._has_times = not self._has_times
        self._change(lambda: None)

    def action_save(self) -> None:
        """Ask for the lines to be saved."""
        self.post_message(self.SaveWanted())

    def action_cause(self) -> None:
        """Ask for the line of the diagnosis."""
        self.post_message(self.CauseWanted())

    def action_follow(self) -> None:
        """Follow the end, or hold."""
        self._set_following(follow=not self._following)

    def action_top(self) -> None:
        """Go to the oldest line."""
        self._set_following(follow=False)
        self._go_to(0)

    def action_bottom(self) -> None:
        """Go to the end and follow it."""
        self._set_following(follow=True)

    def action_search(self) -> None:
        """Ask for a text to search."""
        self.post_message(self.SearchWanted())

    def action_next_hit(self, step: int) -> None:
        """Go to the next or previous line with what was searched."""
        if not self._search:
            return
        at_end = self._following and step < 0
        place = self._store.at_row(self.scroll_offset.y)
        here = 0 if place is None else place.number
        if self._hit:
            last = self._hit_number()
            here = last if last is not None else here
        elif at_end:
            here = 1 << 62
        found = self._store.hit_from(here, step)
        if found is None:
            self.notify(f"no more lines with {self._search!r} this way", severity="warning")
            return
        number, self._hit = found
        self._show_line(number)

    def _hit_number(self) -> int | None:
        """The line of the hit last gone to, as long as it is in sight: who scrolls away searches from there."""
        top = self.scroll_offset.y
        found = self._store.nth_hit(self._hit)
        if found is None or not top <= self._store.row_of(found) < top + self.size.height:
            return None
        return found

    def _set_following(self, *, follow: bool) -> None:
        self._following = follow
        if follow:
            self._behind = 0
            self._go_to(self.max_scroll_y)
        self.post_message(self.Moved())

    def _go_to(self, y: int) -> None:
        """Scroll without it being taken for the operator's wish to hold."""
        self._is_moving = True
        self.scroll_to(y=max(0, y), animate=False, force=True)
        self._known_max = self.max_scroll_y
        self._is_moving = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up holds, scrolling to the end follows again."""
        super().watch_scroll_y(old_value, new_value)
        has_shrunk = self.max_scroll_y < self._known_max
        self._known_max = self.max_scroll_y
        if self._is_moving or has_shrunk:  # it was laid out anew, nobody scrolled
            return
        if new_value < old_value and self._following:
            self._set_following(follow=False)
        elif new_value >= self.max_scroll_y and not self._following:
            self._set_following(follow=True)

    def on_resize(self, event: events.Resize) -> None:
        """Wrap anew, and keep the end in sight."""
        del event
        self._resize_rows()
        if self._following:
            self._go_to(self.max_scroll_y)
