"""An input whose cursor does not blink: nothing goes over the wire while nobody types."""

from textual.widgets import Input


class StillInput(Input):
    """A line of text."""

    def on_mount(self) -> None:
        """Keep the cursor still."""
        self.cursor_blink = False
