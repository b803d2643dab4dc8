"""Asks before something is done to engines, and says what is lost by it."""

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from llmgw_tui.messages import ActRequested
from llmgw_tui.present.acts import Ask
from llmgw_tui.present.text import Line, Tone, line, span, wrap
from llmgw_tui.widgets.still_input import StillInput
from llmgw_tui.widgets.toned import LineBar, Pane

FRAME_LINES = 5  # border, question, input, buttons
MAX_CELLS = 76


class ConfirmScreen(ModalScreen[ActRequested | None]):
    """Answers with the act, aimed at nodes and engine ids, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Leave it alone"),
        Binding("enter", "confirm", "Do it"),
    ]
    CSS = """
    ConfirmScreen { align: center middle; }
    #confirm { width: 76; max-width: 96%; max-height: 96%; border: round $error; background: $background; padding: 0 1; }
    #confirm Pane { height: 1fr; padding: 0; }
    #confirm Input { height: 1; border: none; background: $surface; }
    #confirm-buttons { height: 1; align-horizontal: right; }
    #confirm-buttons Button { margin: 0 1; border: none !important; }
    """

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask_about = ask

    def compose(self) -> ComposeResult:
        """The targets, what to press or type, and the same for a mouse."""
        ask = self._ask_about
        with Container(id="confirm") as box:
            box.border_title = ask.title
            box.border_subtitle = f"esc {ask.else_does}"
            yield Pane()
            yield LineBar(id="confirm-ask")
            if ask.typed is not None:
                yield StillInput(id="confirm-typed")
            with Horizontal(id="confirm-buttons"):
                word = ask.act.value.capitalize()
                yield Button(word, id="do", variant="error", compact=True)
                yield Button("Cancel (esc)", id="cancel", compact=True)

    def on_mount(self) -> None:
        """Show the targets."""
        pane = self.query_one(Pane)
        pane.can_focus = self._ask_about.typed is None
        pane.set_lines(self._ask_about.lines)
        for button in self.query(Button):
            button.can_focus = False  # enter belongs to the question
        self._fit()
        self._ask()
        if self._ask_about.typed is not None:
            self.query_one(Input).focus()

    def on_resize(self, event: events.Resize) -> None:
        """As high as its lines are when wrapped."""
        del event
        self._fit()

    def _fit(self) -> None:
        cells = min(MAX_CELLS, self.size.width * 96 // 100) - 4
        lines = sum(len(wrap(value, cells)) for value in self._ask_about.lines)
        typed = self._ask_about.typed is not None
        self.query_one("#confirm").styles.height = lines + FRAME_LINES + typed

    def _ask(self, *, wrong: bool = False) -> None:
        ask = self._ask_about
        if wrong:
            text = f"That is not it. Type {ask.typed} and press enter, or esc."
            value: Line = line(span(f"✖ {text}", Tone.ERROR))
        elif ask.typed is not None:
            value = line(f"{ask.why} Type ", span(ask.typed, Tone.STRONG), f": enter {ask.does}.")
        else:
            value = line(
                span("enter", Tone.ACCENT), f" {ask.does}, ", span("esc", Tone.ACCENT), " not."
            )
        self.query_one("#confirm-ask", LineBar).set_line(value)

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._judge()

    @on(Button.Pressed, "#do")
    def _judge(self) -> None:
        """Do it, if what must be typed was."""
        typed = self._ask_about.typed
        if typed is None or self.query_one(Input).value.strip() == typed:
            self.dismiss(ActRequested(self._ask_about.act, self._ask_about.targets))
        else:
            self._ask(wrong=True)

    def action_confirm(self) -> None:
        """Enter: only where nothing is to be typed."""
        if self._ask_about.typed is None:
            self._judge()

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        """Leave it alone."""
        self.dismiss(None)
