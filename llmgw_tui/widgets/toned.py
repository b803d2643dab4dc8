"""Widgets that draw lines of toned spans themselves: many times cheaper than a Rich renderable each tick."""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from llmgw_tui.present.text import Line, Tone, fit, plain, wrap


class TonedView(ScrollView):
    """A scroll view whose lines are spans; each tone has a component class that the theme colours."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"tone--{tone.value}" for tone in Tone}
    DEFAULT_CSS = """
    TonedView {
        background: $background;
        color: $foreground;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-color: $panel-lighten-2;
        scrollbar-size-horizontal: 1;
        & > .tone--normal { color: $foreground; }
        & > .tone--dim { color: $tone-dim; }
        & > .tone--strong { color: $foreground; text-style: bold; }
        & > .tone--title { color: $accent; text-style: bold; }
        & > .tone--ok { color: $text-success; }
        & > .tone--busy { color: $text-secondary; }
        & > .tone--warn { color: $text-warning; }
        & > .tone--error { color: $text-error; text-style: bold; }
        & > .tone--accent { color: $text-primary; }
        & > .tone--match { color: $text-warning; text-style: reverse bold; }
    }
    """

    def draw(self, value: Line, base: Style, cells: int) -> Strip:
        """The line in exactly `cells` cells, on the base style."""
        return Strip(self.segments(fit(value, cells), base), cells)

    def segments(self, value: Line, base: Style) -> list[Segment]:
        """The spans with the colours of their tones."""
        return [Segment(part.text, base + self.tone_style(part.tone)) for part in value]

    def tone_style(self, tone: Tone) -> Style:
        """The style of a tone in the theme of now, without a background."""
        return self.get_component_rich_style(f"tone--{tone.value}", partial=True)


class LineBar(TonedView, can_focus=False):
    """One line across the screen."""

    DEFAULT_CSS = """
    LineBar { height: 1; overflow: hidden hidden; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._line: Line = ()

    @property
    def text(self) -> str:
        """What it says, without tones."""
        return plain(self._line)

    def set_line(self, value: Line) -> None:
        """Show this line; drawn again only when it differs."""
        if value != self._line:
            self._line = value
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual asks for line `y` of what is visible."""
        return self.draw(self._line if y == 0 else (), self.rich_style, self.size.width)


class Pane(TonedView, can_focus=True):
    """Lines of text, wrapped to the width there is, scrolled by keys."""

    DEFAULT_CSS = """
    Pane { padding: 0 1; overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_down", "Down", show=False),
        Binding("k,up", "scroll_up", "Up", show=False),
        Binding("g,home", "scroll_home", "Top", show=False),
        Binding("G,end", "scroll_end", "Bottom", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._source: tuple[Line, ...] = ()
        self._wrapped: tuple[Line, ...] = ()

    @property
    def text(self) -> str:
        """What it says, unwrapped, without tones."""
        return "\n".join(plain(value) for value in self._source)

    def set_lines(self, lines: Sequence[Line], *, top: bool = False) -> None:
        """Show these lines; `top` scrolls to the first, for another subject. Drawn only when they differ."""
        if tuple(lines) != self._source:
            self._source = tuple(lines)
            self._wrap()
        if top:
            self.scroll_to(y=0, animate=False)

    def on_resize(self, event: events.Resize) -> None:
        """Wrap anew: the width may be another."""
        del event
        self._wrap()

    def _wrap(self) -> None:
        cells = self.scrollable_content_region.width
        if cells <= 0:
            return
        wrapped = tuple(part for value in self._source for part in wrap(value, cells))
        if len(wrapped) != len(self._wrapped):
            self.virtual_size = Size(cells, len(wrapped))
        self._wrapped = wrapped
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual asks for line `y` of what is visible."""
        place = y + self.scroll_offset.y
        value = self._wrapped[place] if place < len(self._wrapped) else ()
        return self.draw(value, self.rich_style, self.size.width)


def refresh_row(widget: Widget, y: int) -> None:
    """Draw one visible line of a widget again and leave the others."""
    if 0 <= y < widget.size.height:
        widget.refresh(Region(0, y, widget.size.width, 1))
