"""How a leader ended: what its wait status says, and the record of it, which must reach the disk.

`os` alone: the shim imports this and must stay small.
"""

# ruff: noqa: PTH118, PTH123
# pathlib would double the shim's memory.
from __future__ import annotations

import os
import signal
import time

from llmgw_core.agent.durable import remove_quietly, write_json_durably
from llmgw_core.agent.pump import list_segments

EXIT_RETRY_S = 0.5
EXIT_PATIENCE_S = 3600.0


def now_rfc3339() -> str:
    """The time now, UTC, for people."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def describe_end(status: int, was_stopped: bool, ooms_rose: bool) -> dict[str, object]:
    """The exit record of a leader that ended with this wait status."""
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if was_stopped:
        reason = "stopped"
    elif number == signal.SIGKILL and ooms_rose:
        reason = "oom"
    else:
        reason = "exited" if number is None else "killed"
    return {"code": code, "signal": number, "reason": reason, "ended_at": now_rfc3339()}


class ExitNote:
    """How the leader ended, on its way to the disk. A full disk gives up the oldest part of the log for it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._record: dict[str, object] = {}
        self._give_up_at = 0.0
        self._tried_at = 0.0
        self.is_made = False
        self.is_pending = False

    def make(self, record: dict[str, object]) -> None:
        """Take what is to be written."""
        self._record = record
        self._give_up_at = time.monotonic() + EXIT_PATIENCE_S
        self.is_made = self.is_pending = True

    def write(self) -> None:
        """Try to write it, at most twice a second, for an hour: a read-only file system may come back."""
        now = time.monotonic()
        if not self.is_pending or now - self._tried_at < EXIT_RETRY_S:
            return
        self._tried_at = now
        try:
            write_json_durably(os.path.join(self._directory, "exit.json"), self._record)
        except FileNotFoundError:
            self.is_pending = False  # the directory was removed
        except OSError:
            for _, oldest in list_segments(os.path.join(self._directory, "log"))[:1]:
                remove_quietly(oldest)
            self.is_pending = now < self._give_up_at
        else:
            self.is_pending = False


class OomWatch:
    """Whether the kernel has just killed for memory. Over an engine's whole life that is true of any busy host."""

    def __init__(self) -> None:
        now = count_ooms()
        self._counts = (now, now)
        self._looked_at = time.monotonic()

    def look(self) -> None:
        """Remember the count; at most once a second."""
        now = time.monotonic()
        if now - self._looked_at >= 1:
            self._looked_at = now
            self._counts = (self._counts[1], count_ooms())

    def has_risen(self) -> bool:
        """Whether it killed within the last one to three seconds."""
        return count_ooms() > self._counts[0]


def count_ooms() -> int:
    """How often the kernel killed for memory since boot, on this host. Source: proc(5), /proc/vmstat."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        return 0
    return 0
