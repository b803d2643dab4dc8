"""Where huggingface_hub keeps models on this node, and the room on that disk.

Source: huggingface_hub/constants.py.
"""

import os
import re
from typing import Mapping, NamedTuple, Optional

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


class Room(NamedTuple):
    """Of a file system, in bytes; free is what a user without privileges can fill."""

    total_bytes: Optional[int] = None
    free_bytes: Optional[int] = None


def find_hub_cache(env: Mapping[str, str]) -> str:
    """The directory by the same rules as the library's, which is not asked: it need not be here."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(name):
            return _expand(env[name], env)
    cache = env.get("XDG_CACHE_HOME") or "~/.cache"
    return _expand(f"{env.get('HF_HOME') or f'{cache}/huggingface'}/hub", env)


def _expand(path: str, env: Mapping[str, str]) -> str:
    """`~/x` and `$HOME/x` by that environment; a variable that is not set stays as it is written."""
    if path == "~" or path.startswith("~/"):
        path = env.get("HOME", "/") + path[1:]
    return _VARIABLE.sub(lambda found: env.get(found[1] or found[2], found[0]), path)


def read_room(path: str) -> Room:
    """The room where that directory is, or would be made. May hang on a dead network file system."""
    while True:
        try:
            found = os.statvfs(path)
        except FileNotFoundError:
            parent = os.path.dirname(path)  # noqa: PTH120 - pathlib costs at each reading
            if parent in (path, ""):
                return Room()
            path = parent
        except (OSError, ValueError):
            return Room()
        else:
            unit = found.f_frsize
            return Room(found.f_blocks * unit, found.f_bavail * unit)
