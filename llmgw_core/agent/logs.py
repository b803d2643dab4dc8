"""Reading an engine's log: pieces by byte offset, and lines as they come."""

import os
import re
from pathlib import Path
from typing import List, Sequence, Tuple

from llmgw_core.agent.pump import list_segments, read_dropped
from llmgw_core.domain.engine import LogChunk

MAX_LINE_BYTES = 16 << 10
_TELLING_BYTES = 4  # fewer bytes of a secret tell nothing
_LINE_END = re.compile(rb"[\r\n]+")


def read_chunk(
    directory: Path, engine: str, offset: int, max_bytes: int, secrets: Sequence[bytes] = ()
) -> LogChunk:
    """At most so many bytes of the log from that offset on; a negative offset counts from the end.

    An offset that is no longer kept is answered with the oldest bytes there are and `skipped`. Segments may vanish
    while they are read; then the piece is shorter. Secrets come back as stars, also where a piece would cut one.
    """
    segments = _sizes(directory)
    start = segments[0][0] if segments else 0
    end = segments[-1][0] + segments[-1][2] if segments else 0
    wanted = max(start, end + offset) if offset < 0 else min(offset, end)
    first = max(wanted, start)
    margin = max((len(secret) for secret in secrets), default=1) - 1
    low, high = max(start, first - margin), min(end, first + max(0, max_bytes) + margin)
    seen = hide_secrets(_read_bytes(segments, low, high - low), secrets)
    data = seen[first - low :][: max(0, max_bytes)]
    if first + len(data) == end:
        data = data[: len(data) - _begun_secret(data, secrets)]
    return LogChunk(
        engine=engine,
        offset=first,
        data=data.decode("utf-8", "surrogateescape"),
        next_offset=first + len(data),
        start_offset=start,
        end_offset=end,
        skipped=first - wanted,
        dropped=read_dropped(os.fspath(directory)),
    )


def read_ends(directory: Path, head_bytes: int, tail_bytes: int) -> str:
    """The first and the last bytes of what is kept, as text: where a cause is found in a log of any size."""
    segments = _sizes(directory)
    if not segments:
        return ""
    start, end = segments[0][0], segments[-1][0] + segments[-1][2]
    if end - start <= head_bytes + tail_bytes:
        return _read_bytes(segments, start, end - start).decode("utf-8", "replace")
    head = _read_bytes(segments, start, head_bytes)
    tail = _read_bytes(segments, end - tail_bytes, tail_bytes)
    return (head + b"\n" + tail).decode("utf-8", "replace")


def hide_secrets(data: bytes, secrets: Sequence[bytes]) -> bytes:
    """The same number of bytes, with each secret replaced by stars: engines print their arguments and environment."""
    for secret in secrets:
        data = data.replace(secret, b"*" * len(secret))
    return data


def _begun_secret(data: bytes, secrets: Sequence[bytes]) -> int:
    """How many bytes at the end may be the beginning of a secret whose rest is not written yet."""
    lengths = [
        count
        for secret in secrets
        for count in range(_TELLING_BYTES, len(secret))
        if data.endswith(secret[:count])
    ]
    return max(lengths, default=0)


class LineReader:
    """Follows a log from an offset on and cuts it into lines; a redrawn bar (`\\r`) is a line for each drawing."""

    def __init__(self, directory: Path, offset: int = 0) -> None:
        self._directory = directory
        self._offset = offset
        self._rest = b""

    def read_lines(self, max_bytes: int) -> List[str]:
        """Complete lines that came since the last call. When more came than `max_bytes`, the older part is left out.

        Lines are cut at 16 KiB; bytes that are no UTF-8 become replacement characters.
        """
        segments = _sizes(self._directory)
        if not segments:
            return []
        end = segments[-1][0] + segments[-1][2]
        oldest = max(segments[0][0], end - max_bytes)
        if self._offset > end or self._offset < oldest:
            self._offset, self._rest = oldest, b""
        data = _read_bytes(segments, self._offset, end - self._offset)
        self._offset += len(data)
        return self._cut(data)

    def _cut(self, data: bytes) -> List[str]:
        pieces = _LINE_END.split(self._rest + data)
        # A bar that is still being drawn has no end yet; its text counts from the next drawing on.
        self._rest = pieces.pop()[-MAX_LINE_BYTES:]
        return [piece[:MAX_LINE_BYTES].decode("utf-8", "replace") for piece in pieces if piece]


def _sizes(directory: Path) -> List[Tuple[int, str, int]]:
    found: List[Tuple[int, str, int]] = []
    for offset, path in list_segments(os.fspath(directory)):
        try:
            found.append((offset, path, os.stat(path).st_size))  # noqa: PTH116 - a string already
        except OSError:
            continue  # rotated away meanwhile
    return found


def _read_bytes(segments: Sequence[Tuple[int, str, int]], first: int, count: int) -> bytes:
    pieces: List[bytes] = []
    for offset, path, size in segments:
        if count <= 0:
            break
        if offset + size <= first:
            continue
        if offset > first:
            break  # a hole: what follows is asked for next
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - a string already
                file.seek(first - offset)
                piece = file.read(min(count, size - (first - offset)))
        except OSError:
            break
        pieces.append(piece)
        first += len(piece)
        count -= len(piece)
    return b"".join(pieces)
