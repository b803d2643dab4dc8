"""A table that keeps its selection by key: rows may come, go and move, and the cursor stays on what it was on."""

from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from llmgw_tui.present.table import (
    GAP,
    Column,
    Key,
    Row,
    Rows,
    anchor,
    natural_widths,
    share_width,
)
from llmgw_tui.present.text import Line, Span, Tone, fit, line, plain, span
from llmgw_tui.widgets.toned import TonedView, refresh_row

MEASURED_ROWS = 300  # up to here the columns fit every row there is


class Table(TonedView, can_focus=True):
    """Columns with a fixed header. Draws only rows that changed, and only those that are seen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--head", "table--cursor"}
    DEFAULT_CSS = """
    Table {
        overflow-x: hidden;
        & > .table--head { color: $tone-dim; }
        & > .table--cursor { background: $surface-lighten-2; }
        &:focus > .table--cursor { background: $primary 40%; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", key_display="enter"),
        Binding(
            "space", "mark", "Mark", tooltip="Mark the row, for what acts on several", show=False
        ),
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("g,home", "edge(-1)", "First", show=False),
        Binding("G,end", "edge(1)", "Last", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
    ]

    class Selected(Message):
        """The cursor is on another key."""

        def __init__(self, table: "Table", key: Key | None) -> None:
            super().__init__()
            self.table = table
            self.key = key

    class Opened(Message):
        """Enter or a double click on a row."""

        def __init__(self, table: "Table", key: Key) -> None:
            super().__init__()
            self.table = table
            self.key = key

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._columns = tuple(columns)
        self._rows = Rows.of(())
        self._widths: tuple[int, ...] = tuple(0 for _ in columns)
        self._wishes: tuple[int, ...] = ()
        self._key: Key | None = None
        self._place = 0
        self._marked: set[Key] = set()
        self._mark: tuple[int, str] | None = None  # the column it is sorted by, and its arrow

    def mark_column(self, place: int | None, arrow: str) -> None:
        """Draw an arrow at the title of the column that the rows are sorted by; None draws none."""
        self._mark = None if place is None else (place, arrow)
        self._wishes = ()
        self._share()
        self.refresh()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns, titled with the arrow of the order."""
        if self._mark is None:
            return self._columns
        place, arrow = self._mark
        column = self._columns[place]
        marked = column._replace(title=f"{column.title}{arrow}")
        return (*self._columns[:place], marked, *self._columns[place + 1 :])

    @property
    def cursor_key(self) -> Key | None:
        """The key of the selected row; None in an empty table."""
        return self._key

    @property
    def marked(self) -> tuple[Key, ...]:
        """The keys of the marked rows that are there, in their order."""
        return tuple(key for key in self._rows.keys if key in self._marked)

    def clear_marks(self) -> None:
        """Mark no row."""
        if self._marked:
            self._marked.clear()
            self.refresh()

    def action_mark(self) -> None:
        """Mark the selected row or take its mark away, and go on to the next."""
        if self._key is not None:
            self._marked ^= {self._key}
            self.refresh()
            self.action_move(1)

    @property
    def rows(self) -> Rows:
        """What it shows."""
        return self._rows

    @property
    def selected_text(self) -> str:
        """The selected row as text, cells parted by tabs; empty in an empty table."""
        if not self._rows:
            return ""
        return "\t".join(plain(cell) for cell in self._rows[self._place].cells)

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows. The cursor stays on its key; when that is gone, at its place."""
        before, old_place, old_key = self._rows, self._place, self._key
        self._rows = Rows.of(rows)
        self._place = anchor(self._rows, self._key, self._place)
        self._key = self._rows.keys[self._place] if self._rows else None
        if len(before) != len(self._rows):
            self._wishes = ()
            self.virtual_size = Size(self.size.width, len(self._rows) + 1)
            self.refresh(layout=True)
        resized = self._share()
        if resized or old_place != self._place or len(before) != len(self._rows):
            self.refresh()
        else:
            self._refresh_changed(before)
        if old_place != self._place:
            self._reveal()
        if old_key != self._key:
            self.post_message(self.Selected(self, self._key))

    def select(self, key: Key) -> bool:
        """Put the cursor on this key; False when there is no such row."""
        place = self._rows.place_of(key)
        if place is None:
            return False
        self._move_to(place)
        return True

    def _share(self) -> bool:
        """Give the columns their widths; True when any changed."""
        # Many rows are not all measured: those that have been seen are, so columns grow at most.
        measured = self._rows if len(self._rows) <= MEASURED_ROWS else self._seen_rows()
        wishes = natural_widths(self.columns, measured)
        if measured is not self._rows and self._wishes:
            wishes = tuple(map(max, wishes, self._wishes))
        self._wishes = wishes
        widths = share_width(self.columns, wishes, self.size.width - 2)
        changed = widths != self._widths
        self._widths = widths
        return changed

    def _seen_places(self) -> range:
        top = self.scroll_offset.y
        return range(top, min(len(self._rows), top + max(1, self.size.height - 1)))

    def _seen_rows(self) -> Sequence[Row]:
        places = self._seen_places()
        return self._rows[places.start : places.stop]

    def _refresh_changed(self, before: Rows) -> None:
        for place in self._seen_places():
            if before[place] != self._rows[place]:
                self._refresh_place(place)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Other rows are seen, which may be wider."""
        super().watch_scroll_y(old_value, new_value)
        if len(self._rows) > MEASURED_ROWS and self._share():
            self.refresh()

    def _refresh_place(self, place: int) -> None:
        refresh_row(self, place + 1 - self.scroll_offset.y)

    def on_resize(self, event: events.Resize) -> None:
        """Share the new width."""
        del event
        self._share()
        self._reveal()
        self.refresh()

    def on_focus(self) -> None:
        """The cursor of a focused table stands out."""
        self.refresh()

    def on_blur(self) -> None:
        """And recedes."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual asks for line `y` of what is visible; the header does not scroll."""
        base = self.rich_style
        if y == 0:
            return self._draw(self._head(), base)
        place = y - 1 + self.scroll_offset.y
        if place >= len(self._rows):
            return Strip.blank(self.size.width, base)
        chosen = place == self._place
        if chosen:
            base += self.get_component_rich_style("table--cursor", partial=False)
        return self._draw(self._cells(self._rows[place], chosen=chosen), base)

    def _draw(self, value: Line, base: Style) -> Strip:
        return self.draw(value, base, self.size.width)

    def _head(self) -> Line:
        cells = tuple(line(span(column.title, Tone.DIM)) for column in self.columns)
        return self._cells(Row((), cells), chosen=False)

    def _cells(self, row: Row, *, chosen: bool) -> Line:
        parts: list[Span] = [Span("▸" if chosen else " ", Tone.STRONG)]
        if self._marked:
            parts.append(Span("✓" if row.key in self._marked else " ", Tone.ACCENT))
        first = True
        for column, cell, cells in zip(self._columns, row.cells, self._widths, strict=True):
            if cells == 0:
                continue
            if not first:
                parts.append(Span(" " * GAP))
            parts += fit(cell, cells, right=column.right)
            first = False
        return tuple(parts)

    def action_move(self, step: int) -> None:
        """Go up or down."""
        self._move_to(self._place + step)

    def action_page(self, pages: int) -> None:
        """Go a screen up or down."""
        self._move_to(self._place + pages * max(1, self.size.height - 2))

    def action_edge(self, end: int) -> None:
        """Go to the first or the last row."""
        self._move_to(0 if end < 0 else len(self._rows) - 1)

    def action_open(self) -> None:
        """Open the selected row."""
        if self._key is not None:
            self.post_message(self.Opened(self, self._key))

    def on_click(self, event: events.Click) -> None:
        """A click selects, a double click opens."""
        place = event.y - 1 + self.scroll_offset.y
        if event.y < 1 or place >= len(self._rows):
            return
        self._move_to(place)
        if event.chain > 1:
            self.action_open()

    def _move_to(self, place: int) -> None:
        place = max(0, min(place, len(self._rows) - 1))
        if not self._rows or place == self._place:
            return
        old, self._place = self._place, place
        self._key = self._rows.keys[place]
        self._refresh_place(old)
        self._refresh_place(place)
        self._reveal()
        self.post_message(self.Selected(self, self._key))

    def _reveal(self) -> None:
        """Scroll so that the cursor's row is seen below the header."""
        room = max(1, self.size.height - 1)
        top = self.scroll_offset.y
        if self._place < top:
            self.scroll_to(y=self._place, animate=False)
        elif self._place >= top + room:
            self.scroll_to(y=self._place - room + 1, animate=False)


class EmptyState(TonedView, can_focus=False):
    """Sentences in the middle, where there is nothing to list."""

    DEFAULT_CSS = """
    EmptyState { height: 1fr; padding: 2 4; overflow: hidden hidden; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[Line, ...] = ()

    @property
    def text(self) -> str:
        """What it says."""
        return "\n".join(plain(value) for value in self._lines)

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Say this."""
        if tuple(lines) != self._lines:
            self._lines = tuple(lines)
            self.refresh(Region(0, 0, self.size.width, self.size.height))

    def render_line(self, y: int) -> Strip:
        """Textual asks for line `y` of what is visible."""
        value = self._lines[y] if y < len(self._lines) else ()
        return self.draw(value, self.rich_style, self.size.width)
