"""Versions of engines, as numbers that compare. Pure."""

import re
from typing import Optional, Sequence, Tuple, TypeVar

Version = Tuple[int, ...]
T = TypeVar("T")
_RELEASE = re.compile(r"(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?", re.ASCII)


def parse_version(text: Optional[str]) -> Optional[Version]:
    """The release's three numbers: `0.32.0+cpu` → (0, 32, 0), `0.4.6.post5` → (0, 4, 6); None when it begins with none."""
    match = _RELEASE.match(text or "")
    return None if match is None else tuple(int(part or 0) for part in match.groups())


def since(changes: Sequence[Tuple[Version, T]], version: Version) -> T:
    """The value in force at that version.

    Args:
        changes: (first version, value) in order; the first holds for all that are older, too.
    """
    value = changes[0][1]
    for first, changed in changes:
        if version >= first:
            value = changed
    return value
