"""Asks before an engine is stopped, and says what is lost by it."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widgets import Input

from llmgw_tui.messages import StopRequested
from llmgw_tui.present.stop import StopTarget
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.widgets.still_input import StillInput
from llmgw_tui.widgets.toned import LineBar, Pane

FRAME_LINES = 7  # border, question, input, and room for lines that wrap


class StopScreen(ModalScreen[StopRequested | None]):
    """Answers with the stop, aimed at node and engine id, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Keep it running"),
        Binding("enter", "confirm", "Stop it"),
    ]
    CSS = """
    StopScreen { align: center middle; }
    #stop { width: 76; max-width: 96%; border: round $error; background: $background; padding: 0 1; }
    #stop Pane { height: 1fr; padding: 0; }
    #stop Input { height: 1; border: none; background: $surface; }
    """

    def __init__(self, target: StopTarget) -> None:
        super().__init__()
        self._target = target

    def compose(self) -> ComposeResult:
        """The target, and what to press or type."""
        with Container(id="stop") as box:
            box.border_title = "Stop an engine"
            box.styles.height = len(self._target.lines) + FRAME_LINES
            box.border_subtitle = "esc keeps it running"
            yield Pane()
            yield LineBar(id="stop-ask")
            if self._target.must_type_name:
                yield StillInput(id="stop-name")

    def on_mount(self) -> None:
        """Show the target."""
        pane = self.query_one(Pane)
        pane.can_focus = False
        pane.set_lines(self._target.lines)
        self._ask()
        if self._target.must_type_name:
            self.query_one(Input).focus()

    def _ask(self, *, wrong: bool = False) -> None:
        if wrong:
            text = f"That is not its name. Type {self._target.name} and press enter, or esc."
            value: Line = line(span(f"✖ {text}", Tone.ERROR))
        elif self._target.must_type_name:
            value = line(
                "It is serving. Type ", span(self._target.name, Tone.STRONG), " to stop it:"
            )
        else:
            value = line(
                span("enter", Tone.ACCENT), " stops it, ", span("esc", Tone.ACCENT), " not."
            )
        self.query_one("#stop-ask", LineBar).set_line(value)

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip() == self._target.name:
            self._stop()
        else:
            self._ask(wrong=True)

    def action_confirm(self) -> None:
        """Enter: only where no name is asked for."""
        if not self._target.must_type_name:
            self._stop()

    def action_cancel(self) -> None:
        """Leave it alone."""
        self.dismiss(None)

    def _stop(self) -> None:
        self.dismiss(StopRequested(self._target.node, self._target.engine_id))
