"""The line that is typed after `:`, with what it may become above it."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import Input

from llmgw_tui.present.commands import (
    Call,
    Candidate,
    Command,
    Vocabulary,
    complete,
    parse_command,
)
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.widgets.still_input import StillInput
from llmgw_tui.widgets.toned import LineBar, TonedView

NAME_CELLS = 24
KEYS = "tab completes · ↑ ↓ choose · enter runs · esc leaves"


class Candidates(TonedView, can_focus=False):
    """The candidates, one a line; the chosen one has an arrow."""

    DEFAULT_CSS = """
    Candidates { height: auto; overflow: hidden hidden; background: $surface; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[Line, ...] = ()

    def show(self, candidates: Sequence[Candidate], chosen: int | None, *, read_only: bool) -> None:
        """Draw them."""
        self._lines = tuple(
            _candidate_line(each, is_chosen=place == chosen, refused=read_only and each.changes)
            for place, each in enumerate(candidates)
        )
        self.styles.height = len(self._lines)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual asks for line `y` of what is visible."""
        value = self._lines[y] if y < len(self._lines) else ()
        return self.draw(value, self.rich_style, self.size.width)


def _candidate_line(candidate: Candidate, *, is_chosen: bool, refused: bool) -> Line:
    name = f" {'▸' if is_chosen else ' '} {candidate.text.strip():<{NAME_CELLS}} "
    if refused:
        return line(span(f"{name}{candidate.says} (read-only)", Tone.DIM))
    return line(span(name, Tone.STRONG if is_chosen else Tone.ACCENT), candidate.says)


class CommandLine(ModalScreen[Call | None]):
    """Answers with a call that was understood, or None. What is not understood is said, and stays to be mended.

    Args:
        words: the names there are now, for completion and for what is wrong.
        begin: what the line holds at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave"),
        Binding("tab", "complete", "Complete", priority=True),
        Binding("down", "choose(1)", "Next", priority=True),
        Binding("up", "choose(-1)", "Previous", priority=True),
    ]
    CSS = """
    CommandLine { align: left bottom; background: $background 0%; }
    #command { height: auto; background: $surface; border-top: solid $primary; }
    #command-line { height: 1; }
    #command-line > LineBar { width: 3; background: $surface; }
    #command-line > Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
    #command-said { background: $surface; }
    """

    def __init__(
        self, commands: Sequence[Command], words: Vocabulary, begin: str = "", *, read_only: bool
    ) -> None:
        super().__init__()
        self._commands = tuple(commands)
        self._words = words
        self._begin = begin
        self._read_only = read_only
        self._candidates: tuple[Candidate, ...] = ()
        self._chosen: int | None = None

    def compose(self) -> ComposeResult:
        """Candidates, the line, what is to say of it."""
        with Container(id="command"):
            yield Candidates()
            with Horizontal(id="command-line"):
                yield LineBar(id="command-colon")
                yield StillInput(self._begin, select_on_focus=False)
            yield LineBar(id="command-said")

    def on_mount(self) -> None:
        """Begin to type."""
        self.query_one("#command-colon", LineBar).set_line(line(span(" :", Tone.ACCENT)))
        self._typed(self._begin)
        box = self.query_one(StillInput)
        box.focus()
        box.cursor_position = len(self._begin)

    def on_click(self, event: events.Click) -> None:
        """A click on a candidate takes it, one beside the line leaves."""
        shown = self.query_one(Candidates)
        if shown.region.contains(event.screen_x, event.screen_y):
            self._chosen = event.screen_y - shown.region.y
            self.action_complete()
        elif not self.query_one("#command").region.contains(event.screen_x, event.screen_y):
            self.action_leave()

    @on(Input.Changed)
    def _on_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._typed(event.value)

    def _typed(self, text: str) -> None:
        self._candidates, self._chosen = complete(text, self._commands, self._words), None
        self._draw()
        self._say(line(span(f" {KEYS}", Tone.DIM)))

    def _draw(self) -> None:
        shown = self.query_one(Candidates)
        shown.show(self._candidates, self._chosen, read_only=self._read_only)

    def _say(self, value: Line) -> None:
        self.query_one("#command-said", LineBar).set_line(value)

    def action_choose(self, step: int) -> None:
        """Go through the candidates."""
        if self._candidates:
            first = 0 if step > 0 else len(self._candidates) - 1
            here = first if self._chosen is None else self._chosen + step
            self._chosen = here % len(self._candidates)
            self._draw()

    def action_complete(self) -> None:
        """Take the chosen candidate, or the first."""
        if self._candidates:
            self._put(self._candidates[self._chosen or 0].text)

    def _put(self, text: str) -> None:
        box = self.query_one(StillInput)
        box.value = text
        box.cursor_position = len(text)

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        """Run what was typed, or what was chosen from the list."""
        event.stop()
        chosen = None if self._chosen is None else self._candidates[self._chosen].text
        text = event.value if chosen is None else chosen
        found = parse_command(text, self._commands, self._words)
        if isinstance(found, str):
            if chosen is not None:
                self._put(chosen)
            self._say(line(span(f" ✖ {found}", Tone.ERROR)))
        elif found.command.changes and self._read_only:
            said = f":{found.command.name} changes something, and this console is read-only"
            self._say(line(span(f" ✖ {said}", Tone.ERROR)))
        else:
            self.dismiss(found)

    def action_leave(self) -> None:
        """Run nothing."""
        self.dismiss(None)
