"""Whose log is read: that of the engine which is seen, and of no other."""

from collections.abc import Callable

from textual.timer import Timer

from llmgw_tui.messages import LogWanted
from llmgw_tui.present.table import Key
from llmgw_tui.widgets.log_panel import LogPanel

LOG_DELAY_SECONDS = 0.15  # the cursor rests this long on an engine before its log is read


class LogFollower:
    """Points the log panel at what is wanted, and asks for that log once.

    Args:
        panel: shows the log; its messages reach the app.
        wanted: the engine whose log is seen now, as (node, engine id); None when none is.
        title_of: what the panel calls an engine.
    """

    def __init__(
        self,
        panel: LogPanel,
        wanted: Callable[[], Key | None],
        title_of: Callable[[Key], str],
    ) -> None:
        self.panel = panel
        self._wanted = wanted
        self._title_of = title_of
        self._followed: Key | None = None
        self._timer: Timer | None = None

    def point_at(self, key: Key) -> None:
        """Let the panel be of this engine."""
        self.panel.follow(key, self._title_of(key))

    def follow_soon(self) -> None:
        """Follow what is seen once the cursor has come to rest."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.panel.set_timer(LOG_DELAY_SECONDS, self.follow_now)

    def follow_now(self) -> None:
        """Ask for the log of the engine that is seen; for none when none is."""
        wanted = self._wanted()
        if wanted is not None and wanted != self.panel.subject:
            self.point_at(wanted)
        if wanted == self._followed:
            return
        self._followed = wanted
        if wanted is None:
            self.panel.post_message(LogWanted(None, None))
        else:
            node, engine_id = wanted
            self.panel.post_message(LogWanted(node, engine_id, self.panel.next_offset))
