"""The names of the numbered views."""

from collections.abc import Sequence

from textual import events
from textual.message import Message

from llmgw_tui.present.header import tabs
from llmgw_tui.present.text import span
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

    def show(self, current: int) -> None:
        """Bracket the current one."""
        self.set_line((span(" "), *tabs(self._titles, current)))

    def on_click(self, event: events.Click) -> None:
        """Open the view under the pointer."""
        left = 1
        for place, title in enumerate(self._titles):
            right = left + len(title) + 5
            if left <= event.x < right:
                self.post_message(self.Chosen(place))
                return
            left = right
