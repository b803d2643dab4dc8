"""The names of the numbered views."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

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
        self._ends: tuple[int, ...] = ()  # the first cell after each tab

    def show(self, current: int, crumbs: str) -> None:
        """Bracket the current one; say to the right where in it one is, if there is room."""
        made = tabs(self._titles, current, self.size.width)
        value = line(span(" "), *(part for tab in made for part in tab))
        self._ends = tuple(accumulate((width(tab) for tab in made), initial=1))[1:]
        room = self.size.width - width(value) - 1
        said = line(span(crumbs, Tone.STRONG))
        if 0 < width(said) <= room:
            value = (*value, *fit(said, room, right=True))
        self.set_line(value)

    def on_click(self, event: events.Click) -> None:
        """Open the view under the pointer."""
        place = bisect_right(self._ends, event.x)
        if event.x >= 1 and place < len(self._ends):
            self.post_message(self.Chosen(place))
