"""One JSON line for each request, without a word of prompts or answers. Never waits: a thread writes.

When whoever reads it is slow, lines are dropped and counted rather than kept without bound.
"""

import json
import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

from llmgw_core.errors import ConfigError

MAX_LINES = 10_000  # not written yet
_FLUSH_S = 0.2


class AccessLog:
    """Takes lines until closed."""

    def __init__(self, where: str) -> None:
        """Begin.

        Args:
            where: a file that is appended to, "-" for stdout, "off" for none.

        Raises:
            ConfigError: the file cannot be opened.
        """
        self.dropped = 0
        self._lines: deque[dict[str, Any]] = deque()
        self._is_closed = threading.Event()
        self._path = None if where in ("-", "off") else Path(where)
        self._handle = sys.stdout.fileno() if where == "-" else -1
        self.reopen()
        self._thread: threading.Thread | None = None
        if where != "off":
            self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
            self._thread.start()

    def write(self, line: dict[str, Any]) -> None:
        """Take a line."""
        if self._thread is None:
            return
        if len(self._lines) >= MAX_LINES:
            self.dropped += 1
            return
        self._lines.append(line)

    def reopen(self) -> None:
        """Open the file anew, after it was rotated away.

        Raises:
            ConfigError: it cannot be opened; the former one stays in use.
        """
        if self._path is None:
            return
        try:
            fresh = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        except OSError as error:
            why = error.strerror or ""
            raise ConfigError(f"cannot write {self._path}", why, "name another file") from None
        former, self._handle = self._handle, fresh
        if former >= 0:
            os.close(former)

    def close(self) -> None:
        """Write what is left."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_closed.wait(_FLUSH_S)
            self._flush()

    def _flush(self) -> None:
        if not self._lines:
            return
        taken = [self._lines.popleft() for _ in range(len(self._lines))]
        data = b"".join(json.dumps(line).encode() + b"\n" for line in taken)
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            self.dropped += len(taken)
