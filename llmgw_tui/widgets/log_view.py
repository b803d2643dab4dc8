"""A log that is followed: bounded, drawn only where it is seen, searched, and held when scrolled up."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from llmgw_tui.present.log import log_line
from llmgw_tui.present.text import Line
from llmgw_tui.widgets.toned import TonedView

MAX_LINES = 50_000


class LogView(TonedView, can_focus=True):
    """The last lines of one log. Lines are cleaned before they come here; tones are found when drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("n", "next_hit(1)", "Next hit", show=False),
        Binding("N", "next_hit(-1)", "Previous hit", show=False),
        Binding("j,down", "scroll_down", "Down", show=False),
        Binding("k,up", "scroll_up", "Up", show=False),
        Binding("g,home", "top", "Top", show=False),
        Binding("G,end", "bottom", "End", show=False),
        Binding("pageup,ctrl+b", "page_up", "Page up", show=False),
        Binding("pagedown,ctrl+f,space", "page_down", "Page down", show=False),
    ]

    class SearchWanted(Message):
        """The operator pressed `/`."""

    class Moved(Message):
        """Whether it follows, or how much is new below, has changed."""

    def __init__(self, *, id: str | None = None, max_lines: int = MAX_LINES) -> None:  # noqa: A002
        super().__init__(id=id)
        self._lines: deque[str] = deque(maxlen=max_lines)
        self._partial = ""
        self._needle = ""
        self._is_moving = False
        self._known_max = 0
        self.following = True
        self.behind = 0  # lines that came while it was held
        self.hits = 0

    @property
    def line_count(self) -> int:
        """Lines kept, with the one still being written."""
        return len(self._lines) + bool(self._partial)

    def tail(self, count: int) -> tuple[str, ...]:
        """The last lines, oldest first."""
        kept = [*islice(reversed(self._lines), count)][::-1]
        return tuple([*kept, self._partial][-count:] if self._partial else kept)

    def visible_text(self) -> str:
        """The lines on the screen, for the clipboard."""
        top = self.scroll_offset.y
        return "\n".join(self._at(place) for place in range(top, top + self.size.height)).rstrip()

    def clear(self) -> None:
        """Forget everything: another log comes."""
        self._lines.clear()
        self._partial, self.behind, self.hits, self.following = "", 0, 0, True
        self.virtual_size = Size(0, 0)
        self._go_to(0)
        self.refresh()

    def add(self, lines: Sequence[str], partial: str) -> None:
        """Put lines at the end; `partial` is the line still being written."""
        lost = max(0, len(self._lines) + len(lines) - (self._lines.maxlen or 0))
        self._count_lost(lost)
        self._lines.extend(lines)
        self._partial = partial
        if self._needle:
            self.hits += sum(self._is_hit(text) for text in lines)
        widest = max((cell_len(text) for text in (*lines, partial)), default=0)
        widest = max(widest, self.virtual_size.width)
        self.virtual_size = Size(widest, self.line_count)
        if self.following:
            self._go_to(self.max_scroll_y)
        else:
            self.behind += len(lines)
            if lost:
                self._go_to(self.scroll_offset.y - lost)
        self.refresh()

    def _count_lost(self, lost: int) -> None:
        if lost and self._needle:
            self.hits -= sum(self._is_hit(text) for text in islice(self._lines, lost))

    def search(self, needle: str) -> None:
        """Mark this text wherever it stands, and go to the last place before the end."""
        self._needle = needle.lower()
        self.hits = sum(self._is_hit(text) for text in self._lines) if needle else 0
        self.refresh()
        if self.hits:
            self.action_next_hit(-1)

    @property
    def needle(self) -> str:
        """What was searched for."""
        return self._needle

    def _is_hit(self, text: str) -> bool:
        return self._needle in text.lower()

    def _at(self, place: int) -> str:
        if place < len(self._lines):
            return self._lines[place]
        return self._partial if place == len(self._lines) else ""

    def render_line(self, y: int) -> Strip:
        """Textual asks for line `y` of what is visible: only these are given tones."""
        left, top = self.scroll_offset
        cells = self.size.width
        base = self.rich_style
        value: Line = log_line(self._at(top + y), self._needle)
        strip = Strip(self.segments(value, base)).crop(left, left + cells)
        return strip.extend_cell_length(cells, base)

    def action_follow(self) -> None:
        """Follow the end, or hold."""
        self._set_following(follow=not self.following)

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
        if not self._needle:
            return
        here = self.scroll_offset.y
        if self.following and step < 0:
            here = self.line_count
        places = range(here + 1, self.line_count) if step > 0 else range(here - 1, -1, -1)
        found = next((place for place in places if self._is_hit(self._at(place))), None)
        if found is None:
            self.notify(f"no more lines with {self._needle!r} this way", severity="warning")
            return
        self._set_following(follow=False)
        self._go_to(found)

    def _set_following(self, *, follow: bool) -> None:
        self.following = follow
        if follow:
            self.behind = 0
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
        if new_value < old_value and self.following:
            self._set_following(follow=False)
        elif new_value >= self.max_scroll_y and not self.following:
            self._set_following(follow=True)

    def on_resize(self, event: events.Resize) -> None:
        """Keep the end in sight."""
        del event
        if self.following:
            self._go_to(self.max_scroll_y)
