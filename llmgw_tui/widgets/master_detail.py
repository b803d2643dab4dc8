"""A table with the detail of the selected row beside it, below it, or in its place: by the room there is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_tui.present.table import Column, Key, Row
from llmgw_tui.present.text import Line
from llmgw_tui.widgets.table import EmptyState, Table
from llmgw_tui.widgets.toned import Pane


@dataclass(frozen=True)
class ViewSpec:
    """What one numbered view shows: functions of `present/`."""

    id: str
    title: str
    columns: Sequence[Column]
    rows: Callable[[FleetSnapshot, float], Sequence[Row]]
    detail: Callable[[FleetSnapshot, Key, float], Sequence[Line]]
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
    ]

    def __init__(self, spec: ViewSpec) -> None:
        super().__init__(id=spec.id)
        self.spec = spec
        self._snapshot: FleetSnapshot | None = None
        self._now = 0.0

    def compose(self) -> ComposeResult:
        """Table, sentences for when it is empty, detail."""
        yield Table(self.spec.columns)
        yield EmptyState()
        yield Pane()

    @property
    def table(self) -> Table:
        """The list."""
        return self.query_one(Table)

    @property
    def pane(self) -> Pane:
        """The detail."""
        return self.query_one(Pane)

    @property
    def is_open(self) -> bool:
        """Whether the detail has been opened."""
        return self.has_class("-open")

    def show(self, snapshot: FleetSnapshot | None, now: float) -> None:
        """Draw this picture of the fleet; only what changed is drawn again."""
        self._snapshot, self._now = snapshot, now
        rows = () if snapshot is None else tuple(self.spec.rows(snapshot, now))
        self.set_class(not rows, "-empty")
        if rows:
            self.table.set_rows(rows)
            self.show_detail()
        else:
            self.table.set_rows(())
            self.query_one(EmptyState).set_lines(self.spec.empty(snapshot))

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
