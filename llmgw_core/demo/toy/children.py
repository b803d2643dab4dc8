"""Child processes of the toy engine, forked, so that they share its session, its group and its pipes."""

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

DEATH_PIPE_DELAY_S = 1.0  # vLLM's workers notice the end of their parent within about two


@dataclass(frozen=True)
class Child:
    """A child and the two pipes to it."""

    pid: int
    inbox: int  # what it says; at the end of file it is gone
    outbox: int  # what it is told

    def hears(self, timeout_s: float) -> bytes | None:
        """Return what it said; b"": it has ended; None: nothing within the time."""
        ready, _, _ = select.select([self.inbox], [], [], timeout_s)
        return os.read(self.inbox, 64) if ready else None

    def tell(self, text: bytes) -> None:
        """Tell it something; nothing happens when it has ended."""
        try:
            os.write(self.outbox, text)
        except BrokenPipeError:
            return

    def signal(self, number: int) -> None:
        """Signal it; nothing happens when it has ended."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return


def fork_child(body: Callable[[int, int], int], close: tuple[int, ...] = ()) -> Child:
    """Fork; the child runs `body(inbox, outbox)` and ends with the exit status that it returns.

    Args:
        close: descriptors of the parent that the child must not keep open, or nobody would see their other end close.
    """
    up_read, up_write = os.pipe()
    down_read, down_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for descriptor in (up_read, down_write, *close):
            os.close(descriptor)
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            status = body(down_read, up_write)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        finally:
            sys.stdout.flush()
            os._exit(status)
    os.close(up_write)
    os.close(down_read)
    return Child(pid, up_read, down_write)


def wait_for_word(inbox: int) -> bytes:
    """Return the next word of the parent; wait for ever when it has ended, as a core without its front end does."""
    word = os.read(inbox, 64)
    while not word:
        time.sleep(60)
    return word


def wait_for_end(inbox: int) -> None:
    """Return when the parent has ended."""
    while os.read(inbox, 64):
        pass
    time.sleep(DEATH_PIPE_DELAY_S)


def find_ended(children: tuple[Child, ...]) -> tuple[Child, int] | None:
    """Return a child that has ended and its exit code (negative: by a signal); None when all live."""
    for child in children:
        try:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
        except ChildProcessError:  # reaped by a signal handler meanwhile
            return child, 0
        if pid:
            return child, os.waitstatus_to_exitcode(status)
    return None
