"""The line at the bottom: the keys that do something now. One line drawn, where Textual's own mounts a widget a key."""

from textual import events
from textual.binding import Binding
from textual.screen import Screen

from llmgw_tui.present.text import Line, Tone, line, plain, span
from llmgw_tui.widgets.toned import LineBar


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
        value: Line = ()
        self._zones = []
        seen: set[str] = set()
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if not binding.show or binding.action in seen:
                continue
            seen.add(binding.action)
            start = len(plain(value))
            value = (*value, *self._key(binding, enabled=enabled))
            self._zones.append((start, len(plain(value)), binding.key))
        self.set_line(value)

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
