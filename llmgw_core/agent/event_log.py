"""The daemon's own log: one line per event, `time event key=value …`, at most 2 × 1 MB."""

import json
import os
import time
from pathlib import Path

MAX_FILE_BYTES = 1_000_000


class EventLog:
    """Appends events to a file and turns it over when it is full. Never raises: a full disk costs lines, nothing else."""

    def __init__(self, path: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._fd = -1
        self._holds_standard_streams = False

    def write(self, event: str, **fields: object) -> None:
        """Append one line. Values with blanks are quoted as JSON."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        words = [f"{key}={_quote(str(value))}" for key, value in fields.items()]
        line = " ".join([stamp, event, *words]) + "\n"
        try:
            self._append(line.encode("utf-8", "backslashreplace"))
        except OSError:
            return

    def hold_standard_streams(self) -> None:
        """Send what this process prints to the file, also after it was turned over."""
        self._holds_standard_streams = True
        try:
            self._open()
        except OSError:
            return

    def _append(self, line: bytes) -> None:
        if self._fd < 0:
            self._open()
        if os.fstat(self._fd).st_size + len(line) > self._max_bytes:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._open()
        os.write(self._fd, line)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        if self._holds_standard_streams:
            os.dup2(fd, 1)
            os.dup2(fd, 2)


def _quote(text: str) -> str:
    plain = text and all(char.isprintable() and char not in ' "=' for char in text)
    return text if plain else json.dumps(text)
