"""JSON from files that anybody may have written: bounded in size, depth and digits, never a device, never a hang."""

import json
import os
import stat
from pathlib import Path
from typing import Any, Dict, Optional, Union

MAX_DIGITS = 18
_PIECE_BYTES = 1 << 24


class Unreadable(Exception):
    """Why a file is of no use, in words."""


def read_bytes(path: Path, limit: int, offset: int = 0) -> bytes:
    """At most `limit` bytes of a regular file.

    Raises:
        Unreadable: there is none, it may not be read, or it is no regular file.
    """
    try:
        # O_NONBLOCK: a FIFO would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise Unreadable(getattr(error, "strerror", None) or str(error)) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unreadable("it is no regular file")
        os.lseek(fd, offset, os.SEEK_SET)
        data = b""
        while len(data) < limit:
            piece = os.read(fd, min(limit - len(data), _PIECE_BYTES))
            if not piece:
                break
            data += piece
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
    finally:
        os.close(fd)
    return data


def read_whole(path: Path, limit: int) -> bytes:
    """All bytes of a regular file that is not longer than `limit`.

    Raises:
        Unreadable: it is longer, or as of `read_bytes`.
    """
    data = read_bytes(path, limit + 1)
    if len(data) > limit:
        raise Unreadable(f"it is longer than {limit >> 20} MiB")
    return data


def parse_object(data: bytes) -> Dict[str, Any]:
    """The JSON object in these bytes; numbers of more than 18 digits read as None.

    Raises:
        Unreadable: no JSON, nested too deeply, or no object.
    """
    try:
        # A number of a million digits takes older Pythons minutes.
        value = json.loads(data.decode("utf-8"), parse_int=_parse_int)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except ValueError as error:
        raise Unreadable(f"it is no JSON: {error}"[:120]) from None
    if not isinstance(value, dict):
        raise Unreadable("it is no JSON object")
    return value


def _parse_int(text: str) -> Union[int, None]:
    return int(text) if len(text) <= MAX_DIGITS else None


def positive(value: Any) -> Optional[int]:  # Any: whatever a file says
    """The value where it is a whole number above 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
