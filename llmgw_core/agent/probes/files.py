"""Small files of /sys and /proc. One that is missing, refuses, vanishes or holds odd bytes is None, never an error."""

import os
from pathlib import Path
from typing import List, Mapping, Optional, Union

MAX_BYTES = 1 << 20
AnyPath = Union[str, Path]


def read_text(path: AnyPath) -> Optional[str]:
    """The text without blanks around it; None when the file cannot be read.

    Reading sysfs may end in EINVAL, EIO, ENODEV or EACCES, by driver and moment.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None


def list_names(path: AnyPath) -> Optional[List[str]]:
    """Names in a directory, in no order; None when it cannot be listed."""
    try:
        return [entry.name for entry in Path(path).iterdir()]
    except (OSError, ValueError):
        return None


def read_link_name(path: AnyPath) -> Optional[str]:
    """The last part of what a symlink points to, e.g. the driver of a device; None when it is no link."""
    try:
        return Path(path).readlink().name
    except (OSError, ValueError):
        return None


def resolve(path: AnyPath) -> Path:
    """The path with every symlink followed as far as it goes, also where the end does not exist."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError):
        return Path(path)


def exists(path: AnyPath) -> bool:
    """Whether something is there."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def find_program(name: str, env: Mapping[str, str]) -> Optional[str]:
    """The first executable of that name on PATH; None when there is none."""
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = f"{folder or '.'}/{name}"
        if exists(path) and os.access(path, os.X_OK):
            return path
    return None
