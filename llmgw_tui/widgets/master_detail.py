"""A table with the detail of the selected row beside it, below it, or in its place: by the room there is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input

from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_tui.present.arrange import filter_rows, sort_rows
from llmgw_tui.present.table import Column, Key, Row, Rows
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.widgets.still_input import StillInput
from llmgw_tui.widgets.table import EmptyState, Table
from llmgw_tui.widgets.toned import LineBar, Pane

ShowDetail = Callable[[FleetSnapshot, Key, float], Sequence[Line]]


@dataclass(frozen=True)
class ViewSpec:
    """What one numbered view shows: functions of `present/`."""

    id: str
    title: str
    columns: Sequence[Column]
    rows: Callable[[FleetSnapshot, float], Sequence[Row]]
    detail: ShowDetail
    empty: Callable[[FleetSnapshot | None], Sequence[Line]]


class MasterDetail(Container):
    """One numbered view."""

    SCOPED_CSS = False  # the rules look at the screen's breakpoint classes
    DEFAULT_CSS = """
    MasterDetail {
        layout: vertical;
        & > Table { height: auto; max-height: 45%; min-height: 5; }
        & > Pane { height: 1fr; border-top: solid $surface-lighten-2; }
        & > EmptyState { display: none; }
        &.-empty > EmptyState { display: block; }
        &.-empty > Table { display: none; }
        &.-empty > Pane { display: none; }
        & > .filter { dock: bottom; height: 1; display: none; layout: horizontal; background: $surface; }
        &.-filter > .filter { display: block; }
        & > .filter > LineBar { width: 9; }
        & > .filter > LineBar:last-of-type { width: 24; }
        & > .filter > Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
    }
    .-short MasterDetail {
        & > Table { height: 1fr; max-height: 100%; }
        & > Pane { display: none; border-top: none; }
    }
    .-wide MasterDetail {
        layout: horizontal;
        & > Table { width: 3fr; height: 1fr; max-height: 100%; }
        & > Pane { display: block; width: 2fr; border-top: none; border-left: solid $surface-lighten-2; }
    }
    .-short MasterDetail.-open {
        & > Pane { display: block; width: 1fr; border-left: none; }
        & > Table { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "other", "List/detail", show=False),
        Binding(
            "slash", "filter", "Filter", key_display="/", tooltip="Show only rows with these words"
        ),
        Binding("o", "order", "Sort", tooltip="Sort by the next column; after the last as it was"),
        Binding(
            "O", "reverse", "Reverse", key_display="O", tooltip="Reverse the order", show=False
        ),
        Binding("escape", "clear", "Clear", tooltip="Clear the filter"),
    ]

    def __init__(self, spec: ViewSpec) -> None:
        super().__init__(id=spec.id)
        self.spec = spec
        self._snapshot: FleetSnapshot | None = None
        self._now = 0.0
        self._order: int | None = None  # the column sorted by
        self._reversed = False
        self._came_from: Key | None = None  # selected when the filter was opened

    def compose(self) -> ComposeResult:
        """Table, sentences for when it is empty, detail."""
        yield Table(self.spec.columns)
        yield EmptyState()
        yield Pane()
        with Container(classes="filter"):
            yield LineBar(id=f"{self.id}-filter-label")
            yield StillInput()
            yield LineBar(id=f"{self.id}-filter-count")

    def on_mount(self) -> None:
        """Name the filter's line."""
        self.query_one(f"#{self.id}-filter-label", LineBar).set_line(
            line(span(" filter: ", Tone.ACCENT))
        )

    @property
    def filter_input(self) -> Input:
        """Where the filter is typed."""
        return self.query_one(StillInput)

    @property
    def table(self) -> Table:
        """The list."""
        return self.query_one(Table)

    @property
    def pane(self) -> Pane:
        """The detail."""
        return self.query_one(Pane)

    @property
    def is_entered(self) -> bool:
        """Whether the detail has the keys, or stands in the table's place."""
        return self.has_class("-open") or self.pane.has_focus

    def show(self, snapshot: FleetSnapshot | None, now: float) -> None:
        """Draw this picture of the fleet; only what changed is drawn again."""
        self._snapshot, self._now = snapshot, now
        rows = () if snapshot is None else self.spec.rows(snapshot, now)
        query = self.filter_input.value
        seen = filter_rows(rows, query)
        if self._order is not None:
            seen = sort_rows(seen, self._order, reverse=self._reversed)
        count = line(span(f" {len(seen)} of {len(rows)}  esc clears", Tone.DIM))
        self.query_one(f"#{self.id}-filter-count", LineBar).set_line(count)
        if rows and not seen and self.table.has_focus:
            self.filter_input.focus()  # a hidden table keeps no focus, and Esc would go astray
        self.set_class(not seen, "-empty")
        self.table.set_rows(seen)
        if seen:
            self.show_detail()
        elif rows:
            said = line(span(f"nothing matches '{query}' · Esc clears", Tone.DIM))
            self.query_one(EmptyState).set_lines((said,))
        else:
            self.query_one(EmptyState).set_lines(self.spec.empty(snapshot))

    def select(self, key: Key) -> bool:
        """Put the cursor on this key, clearing a filter that hides it; False when there is no such row."""
        rows = () if self._snapshot is None else self.spec.rows(self._snapshot, self._now)
        if Rows.of(rows).place_of(key) is None:
            return False
        if not self.table.select(key):
            self.action_clear()
            self.table.select(key)
        return True

    def show_detail(self, *, top: bool = False) -> None:
        """Draw the detail of the selected row."""
        key = self.table.cursor_key
        if key is None or self._snapshot is None:
            return
        self.pane.set_lines(self.spec.detail(self._snapshot, key, self._now), top=top)

    def on_table_selected(self, event: Table.Selected) -> None:
        """Another row: its detail, from the top. The message goes on to the screen."""
        del event
        self.show_detail(top=True)

    def focus_list(self) -> None:
        """Give the keys to the table, and put it back where the detail stood in its place."""
        self.remove_class("-open")
        self.table.focus()

    def open_detail(self) -> None:
        """Give the keys to the detail, in the table's place where there is no room for both."""
        if self.table.cursor_key is not None:
            self.add_class("-open")
            self.pane.focus()

    def action_other(self) -> None:
        """Change between list and detail."""
        if self.pane.has_focus:
            self.focus_list()
        else:
            self.open_detail()

    # --- filter and order ---------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc clears a filter; without one, or in the detail, it is the screen's. Typed letters are the filter's."""
        del parameters
        if action == "clear":
            return self.has_class("-filter") and not self.pane.has_focus
        if action in ("filter", "order"):
            return not self.filter_input.has_focus
        return True

    def action_filter(self) -> None:
        """Type words that a row must have."""
        self.focus_list()
        if not self.has_class("-filter"):
            self._came_from = self.table.cursor_key
        self.add_class("-filter")
        self.filter_input.focus()

    def action_clear(self) -> None:
        """Show all rows again, the cursor where it is, or where it was when nothing matched."""
        key = self.table.cursor_key or self._came_from
        self.remove_class("-filter")
        with self.prevent(Input.Changed):
            self.filter_input.value = ""
        self.show(self._snapshot, self._now)
        if key is not None:
            self.table.select(key)
        self.focus_list()

    @on(Input.Changed)
    def _on_typed(self, event: Input.Changed) -> None:
        event.stop()
        self.show(self._snapshot, self._now)

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        """Enter goes to the rows that are left, and ends a filter without words."""
        event.stop()
        if not event.value.strip():
            self.action_clear()
        elif self.table.rows:
            self.focus_list()

    def set_filter(self, text: str) -> None:
        """Show only rows with these words; all, without words."""
        if not text:
            self.action_clear()
            return
        if not self.has_class("-filter"):
            self._came_from = self.table.cursor_key
        self.add_class("-filter")
        with self.prevent(Input.Changed):
            self.filter_input.value = text
        self.show(self._snapshot, self._now)

    def set_order(self, place: int | None, *, reverse: bool) -> None:
        """Sort by this column; None: in the order of the view."""
        self._order, self._reversed = place, reverse
        self._show_order()

    def action_order(self) -> None:
        """Sort by the next column; after the last, the order of the view again."""
        place = 0 if self._order is None else self._order + 1
        self._order = place if place < len(self.spec.columns) else None
        self._reversed = False
        self._show_order()

    def action_reverse(self) -> None:
        """Sort the other way round; the first column where none is chosen."""
        self._order = self._order or 0
        self._reversed = not self._reversed
        self._show_order()

    def _show_order(self) -> None:
        self.table.mark_column(self._order, "↓" if self._reversed else "↑")
        self.show(self._snapshot, self._now)
