"""A list of what the selected row is tied to; choosing one goes there."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList

from llmgw_tui.present.related import Place
from llmgw_tui.present.text import clean

FRAME_LINES = 2


class GoToScreen(ModalScreen[Place | None]):
    """Answers with a place, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace,i", "cancel", "Stay here"),
        Binding("j", "move('down')", "Down", show=False),
        Binding("k", "move('up')", "Up", show=False),
    ]
    CSS = """
    GoToScreen { align: center middle; }
    #places { width: 60; max-width: 96%; max-height: 90%; border: round $primary; background: $background; }
    """

    def __init__(self, title: str, places: Sequence[Place]) -> None:
        super().__init__()
        self._title = title
        self._places = tuple(places)

    def compose(self) -> ComposeResult:
        """The places."""
        chooser = OptionList(
            *(Content(clean(place.text)) for place in self._places), id="places", compact=True
        )
        chooser.border_title = f"{clean(self._title)} goes to"
        chooser.border_subtitle = "enter or click goes · esc stays"
        chooser.styles.height = len(self._places) + FRAME_LINES
        yield chooser

    def on_mount(self) -> None:
        """Start at the nearest."""
        self.query_one(OptionList).highlighted = 0

    @on(OptionList.OptionSelected)
    def _on_chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._places[event.option_index])

    def action_move(self, way: str) -> None:
        """Go up or down."""
        chooser = self.query_one(OptionList)
        if way == "down":
            chooser.action_cursor_down()
        else:
            chooser.action_cursor_up()

    def action_cancel(self) -> None:
        """Stay where one is."""
        self.dismiss(None)
