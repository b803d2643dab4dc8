"""Quantities and times as an operator reads them. None, not known, is an em dash. Pure."""

from datetime import datetime

MIB_PER_GIB = 1024
UNKNOWN = "—"
_MINUTE = 60
_HOUR = 3600
_DAY = 86400


def format_age(seconds: float | None) -> str:
    """Seconds as the two largest units: `4s`, `3m`, `2h05m`, `5d03h`. A clock that went back counts as 0."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02d}h"


def parse_rfc3339(text: str | None) -> float | None:
    """UTC epoch seconds of `2026-01-01T00:00:00Z`; None for None and for what is no time."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def format_clock(at: float) -> str:
    """The local time of day of UTC epoch seconds: `22:31:05`."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def format_uptime(started_at: str | None, now: float) -> str:
    """How long ago the RFC 3339 time was."""
    started = parse_rfc3339(started_at)
    return UNKNOWN if started is None else format_age(now - started)


def format_gib(mib: int | None) -> str:
    """MiB as GiB: one decimal below 10, none above."""
    if mib is None:
        return UNKNOWN
    gib = mib / MIB_PER_GIB
    return f"{gib:.1f}" if 0 < gib < 10 else f"{gib:.0f}"  # noqa: PLR2004 - a second digit is enough


def format_bytes(count: int) -> str:
    """Bytes in the largest binary unit below it: `812 B`, `1.5 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < MIB_PER_GIB or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= MIB_PER_GIB
    return f"{count} B"


def format_number(value: float | None, unit: str = "") -> str:
    """A whole number with its unit; an em dash when it is not known."""
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def format_gbps(value: float | None) -> str:
    """Gb/s: one decimal below 100, none above."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004 - a fourth digit is noise


def format_percent(fraction: float | None) -> str:
    """0 to 1 as `42 %`."""
    return UNKNOWN if fraction is None else f"{int(max(0.0, min(1.0, fraction)) * 100)} %"


def count_of(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
