"""Files that are there whole or not at all, with `os` alone: the shim imports this and must stay small."""

# ruff: noqa: PTH104, PTH108, PTH120, PTH123
# pathlib would double the shim's memory.
from __future__ import annotations

import json
import os


def write_durably(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace the file by these bytes, so that a crash at any instant leaves the old or the new ones.

    Raises:
        OSError: it could not be written; the old file, if any, is as it was.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        remove_quietly(temporary)
        raise
    sync_directory(os.path.dirname(path))


def write_json_durably(path: str, value: dict[str, object]) -> None:
    """Replace the file by that object as JSON, as `write_durably` does."""
    write_durably(path, json.dumps(value, sort_keys=True).encode("ascii") + b"\n")


def read_json(path: str) -> dict[str, object]:
    """The object in the file.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no JSON object.
    """
    with open(path, "rb") as file:
        value = json.loads(file.read().decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a JSON object")  # noqa: TRY004 - one class for all that is wrong with content
    return value


def write_all(fd: int, data: bytes) -> None:
    """Write every byte; a nearly full disk takes a part first and fails on the next call."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_directory(path: str) -> None:
    """Make renames and new names in the directory survive a crash."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_quietly(path: str) -> None:
    """Remove the file if it is there."""
    try:
        os.unlink(path)
    except OSError:
        return
