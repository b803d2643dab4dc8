"""Calls that may hang, on a dead mount or in a driver: made in a thread of their own, and not waited for too long."""

import threading
from typing import Callable, Optional


class Aside:
    """Makes one kind of call at a time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: Optional[threading.Event] = None

    def run(self, call: Callable[[], None], wait_s: float) -> bool:
        """Whether the call has ended within that time.

        While an earlier one has not come back, none is made and nothing waited for. The call must not raise.
        """
        with self._lock:
            if self._done is not None and not self._done.is_set():
                return False
            done = self._done = threading.Event()
        threading.Thread(target=_make, args=(call, done), daemon=True).start()
        return done.wait(wait_s)


def _make(call: Callable[[], None], done: threading.Event) -> None:
    try:
        call()
    finally:
        done.set()
