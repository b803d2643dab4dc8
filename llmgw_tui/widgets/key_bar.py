"""The line at the bottom: the keys that do something now. One line drawn, where Textual's own mounts a widget a key."""

from collections.abc import Sequence

from textual import events
from textual.binding import Binding
from textual.screen import Screen

from llmgw_tui.present.text import Line, Tone, line, span, width
from llmgw_tui.widgets.toned import LineBar

HELP_KEY = "question_mark"  # never left out: it shows all the others


def fit_entries(entries: Sequence[tuple[str, Line]], cells: int) -> tuple[tuple[str, Line], ...]:
    """The (key, drawn) entries that fit, in their order; the last are left out first, and help never."""
    kept = list(entries)
    while len(kept) > 1 and sum(width(drawn) for _, drawn in kept) > cells:
        place = next(n for n in range(len(kept) - 1, -1, -1) if kept[n][0] != HELP_KEY)
        del kept[place]
    return tuple(kept)


class KeyBar(LineBar):
    """Keys with their meaning; greyed where they are refused. A click presses the key."""

    DEFAULT_CSS = """
    KeyBar { background: $panel; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._zones: list[tuple[int, int, str]] = []  # from cell, to cell, key

    def on_mount(self) -> None:
        """Follow the screen's bindings as the focus moves."""
        self.screen.bindings_updated_signal.subscribe(self, self._on_bindings)

    def _on_bindings(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self.show_keys()

    def show_keys(self) -> None:
        """Draw the bindings that are valid now, the focused widget's first."""
        entries: list[tuple[str, Line]] = []
        seen: set[str] = set()
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and binding.action not in seen:
                seen.add(binding.action)
                entries.append((binding.key, self._key(binding, enabled=enabled)))
        value: Line = ()
        self._zones = []
        for key, drawn in fit_entries(entries, self.size.width):
            start = width(value)
            value = (*value, *drawn)
            self._zones.append((start, width(value), key))
        self.set_line(value)

    def on_resize(self, event: events.Resize) -> None:
        """Show as many keys as there is room for now."""
        del event
        self.show_keys()

    def _key(self, binding: Binding, *, enabled: bool) -> Line:
        display = self.app.get_key_display(binding)
        return line(
            span(f" {display}", Tone.ACCENT if enabled else Tone.DIM),
            span(f" {binding.description} ", Tone.NORMAL if enabled else Tone.DIM),
        )

    def on_click(self, event: events.Click) -> None:
        """Press the key under the pointer."""
        for start, end, key in self._zones:
            if start <= event.x < end:
                self.app.simulate_key(key)
