"""The names of the numbered views."""

from collections.abc import Sequence

from textual import events
from textual.message import Message

from llmgw_tui.present.header import tabs
from llmgw_tui.present.text import Tone, fit, line, span, width
from llmgw_tui.widgets.toned import LineBar


class TabBar(LineBar):
    """The names of the views; a click on one opens it."""

    class Chosen(Message):
        """A view was clicked."""

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    def __init__(self, titles: Sequence[str]) -> None:
        super().__init__(id="tabs")
        self._titles = tuple(titles)

    def show(self, current: int, crumbs: str) -> None:
        """Bracket the current one; say to the right where in it one is, if there is room."""
        value = line(span(" "), *tabs(self._titles, current))
        room = self.size.width - width(value) - 1
        said = line(span(crumbs, Tone.STRONG))
        if 0 < width(said) <= room:
            value = (*value, *fit(said, room, right=True))
        self.set_line(value)

    def on_click(self, event: events.Click) -> None:
        """Open the view under the pointer."""
        left = 1
        for place, title in enumerate(self._titles):
            right = left + len(title) + 5
            if left <= event.x < right:
                self.post_message(self.Chosen(place))
                return
            left = right
