"""When the screen is drawn: at once when it is idle, else after a rest, so that keys go first."""

import time
from collections.abc import Callable

from textual.timer import Timer
from textual.widget import Widget

DRAW_REST = 4  # rests this many times as long as the last drawing took


class DrawPacer:
    """Draws at most one fifth of the time. `owner` holds the timer, so that it dies with the screen."""

    def __init__(self, owner: Widget, draw: Callable[[], None]) -> None:
        self._owner = owner
        self._draw = draw
        self._timer: Timer | None = None
        self._drawn_at = 0.0
        self._cost_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no drawing waits."""
        return self._timer is None

    def draw_soon(self) -> None:
        """Draw now, or after a rest in proportion to what drawing costs."""
        if self._timer is not None:
            return
        rest_s = self._cost_s * DRAW_REST - (time.monotonic() - self._drawn_at)
        if rest_s > 0:
            self._timer = self._owner.set_timer(rest_s, self.draw_now)
        else:
            self.draw_now()

    def draw_now(self) -> None:
        """Draw; a drawing that waits is done by it."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        began = time.monotonic()
        self._draw()
        self._drawn_at = time.monotonic()
        self._cost_s = self._drawn_at - began
