"""Check marks that are told apart without colour: Textual draws its X whether or not it is chosen."""

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import Checkbox, SelectionList


class MarkedList(SelectionList[int]):
    """A list to pick from; only what is picked has an X."""

    def render_line(self, y: int) -> Strip:
        """Textual asks for line `y` of what is visible."""
        strip = super().render_line(y)
        place = y + self.scroll_offset.y
        if place < self.option_count:
            chosen = self.get_option_at_index(place).value in self.selected
            if not chosen:
                return _without_mark(strip)
        return strip


def _without_mark(strip: Strip) -> Strip:
    segments = list(strip)
    for place, segment in enumerate(segments):
        if segment.text == Checkbox.BUTTON_INNER:
            segments[place] = Segment(" ", segment.style, segment.control)
            break
    return Strip(segments, strip.cell_length)


class MarkedCheckbox(Checkbox):
    """A box with an X when it is chosen, and a blank when not."""

    def on_mount(self) -> None:
        """Draw the mark it begins with."""
        self._mark()

    def watch_value(self) -> None:
        """Draw the other mark."""
        self._mark()
        super().watch_value()

    def _mark(self) -> None:
        self.BUTTON_INNER = "X" if self.value else " "
        self.refresh(layout=True)
