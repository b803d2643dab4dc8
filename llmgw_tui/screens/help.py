"""Every key and command, made from the bindings and the table of commands themselves."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.dom import DOMNode
from textual.screen import ModalScreen

from llmgw_tui.present.commands import Command
from llmgw_tui.present.detail import BLANK, heading
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.widgets.toned import Pane

KEY_CELLS = 16
USAGE_CELLS = 24


def help_groups(
    display: Callable[[Binding], str],
    sources: Mapping[str, type[DOMNode]],
    commands: Sequence[Command],
) -> tuple[Line, ...]:
    """A heading and `keys  what` lines for each class's bindings; keys of one action share a line. Then the commands."""
    lines: list[Line] = []
    for title, source in sources.items():
        by_action: dict[str, tuple[str, list[str]]] = {}
        for binding in Binding.make_bindings(source.__dict__["BINDINGS"]):
            _, keys = by_action.setdefault(
                binding.action, (binding.tooltip or binding.description, [])
            )
            keys.append(display(binding))
        lines.append(heading(title))
        lines += [
            line(span(f"  {' '.join(keys):<{KEY_CELLS}}", Tone.ACCENT), description)
            for description, keys in by_action.values()
        ]
        lines.append(BLANK)
    lines.append(heading("Commands, after a colon; a name may be shortened, tab completes"))
    lines += [
        line(span(f"  {each.usage:<{USAGE_CELLS}} ", Tone.ACCENT), each.says) for each in commands
    ]
    lines.append(BLANK)
    lines += [
        line(span("Glyphs", Tone.TITLE)),
        line("  ■ held by an engine   □ free   ▲ warning, held by others   ✖ fault   ? unknown"),
        line("  ● up, ready   ◔ starting   ◐ loading   ○ stopped   ◌ does not answer"),
        BLANK,
        line(span("  Quitting stops no engine. ctrl+q quits from anywhere.", Tone.DIM)),
        line(span("  Drag with shift held to select text with the terminal.", Tone.DIM)),
    ]
    return tuple(lines)


class HelpScreen(ModalScreen[None]):
    """A page of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace,question_mark", "dismiss", "Close"),
    ]
    CSS = """
    HelpScreen { align: center middle; }
    #help { width: 84; max-width: 96%; height: 90%; border: round $primary; background: $background; }
    """

    def __init__(self, lines: tuple[Line, ...]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """One pane."""
        with Container(id="help") as box:
            box.border_title = "Keys and commands"
            box.border_subtitle = "esc closes"
            yield Pane()

    def on_mount(self) -> None:
        """Show the keys."""
        self.query_one(Pane).set_lines(self._lines)
        self.query_one(Pane).focus()
