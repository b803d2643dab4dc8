"""Text as the console draws it: spans with a tone, cropped, padded and wrapped by terminal cells. Pure."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

ELLIPSIS = "…"
# Control characters, and the marks that reorder text: what a node sends is shown, never obeyed.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Tone(StrEnum):
    """What a piece of text means; widgets give each a colour of the theme. Never the only carrier of a state."""

    NORMAL = "normal"
    DIM = "dim"
    STRONG = "strong"
    TITLE = "title"
    OK = "ok"
    BUSY = "busy"
    WARN = "warn"
    ERROR = "error"
    ACCENT = "accent"
    MATCH = "match"


class Span(NamedTuple):
    """A piece of text in one tone."""

    text: str
    tone: Tone = Tone.NORMAL


Line = tuple[Span, ...]
Part = str | Span | None


def clean(text: str) -> str:
    """The text with control and direction characters made visible as `·`: one line, safe to draw."""
    if text.isascii() and text.isprintable():  # most of it, in a fifth of the time
        return text
    return _UNSAFE.sub("·", text)


def span(text: object, tone: Tone = Tone.NORMAL) -> Span:
    """A span of cleaned text; None is drawn as an em dash, dimmed: it means "not known"."""
    return Span("—", Tone.DIM) if text is None else Span(clean(str(text)), tone)


def line(*parts: Part) -> Line:
    """A line of the parts that are there; plain strings are of normal tone."""
    return tuple(
        Span(clean(part)) if isinstance(part, str) else part for part in parts if part is not None
    )


def join(lines: Iterable[Line], separator: str = "  ") -> Line:
    """The lines one after the other in one line; empty ones leave no separator."""
    joined: list[Span] = []
    for item in lines:
        if not item:
            continue
        if joined:
            joined.append(Span(separator, Tone.DIM))
        joined.extend(item)
    return tuple(joined)


def plain(value: Line) -> str:
    """The text alone, as it is copied."""
    return "".join(part.text for part in value)


def width(value: Line) -> int:
    """How many terminal cells the line takes."""
    return sum(map(_cells_of, (part.text for part in value)))


def _cells_of(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def fit(value: Line, cells: int, *, right: bool = False) -> Line:
    """The line in exactly `cells` cells: padded, or cropped with an ellipsis."""
    if cells <= 0:
        return ()
    have = width(value)
    if have <= cells:
        padding = Span(" " * (cells - have))
        return (padding, *value) if right else (*value, padding)
    return _crop(value, cells)


def _crop(value: Line, cells: int) -> Line:
    kept: list[Span] = []
    room = cells - 1
    for part in value:
        size = cell_len(part.text)
        if size > room:
            kept.append(Span(set_cell_size(part.text, room) + ELLIPSIS, part.tone))
            break
        kept.append(part)
        room -= size
    return tuple(kept)


def dimmed(value: Line) -> Line:
    """The line in the dim tone; warnings and errors keep theirs."""
    loud = (Tone.WARN, Tone.ERROR)
    return tuple(part if part.tone in loud else Span(part.text, Tone.DIM) for part in value)


def wrap(value: Line, cells: int) -> tuple[Line, ...]:
    """The line broken at blanks into lines of at most `cells` cells, continued under its indentation.

    A line that begins with a dimmed label and blanks continues under what follows them.
    """
    cells = max(cells, 1)
    if width(value) <= cells:
        return (value,)
    indent = min(_indent(value), cells // 2)
    lines: list[list[Span]] = [[]]
    used = 0
    for word, tone in _words(value):
        for number, piece in enumerate(_pieces(word, cells - indent)):
            size = cell_len(piece)
            if lines[-1] and (number or used + size > cells):
                lines.append([Span(" " * indent)] if indent else [])
                used = indent
                piece = piece.lstrip(" ")  # noqa: PLW2901 - a blank never starts a continued line
                size = cell_len(piece)
            if piece:
                lines[-1].append(Span(piece, tone))
                used += size
    return tuple(tuple(item) for item in lines)


def _indent(value: Line) -> int:
    text = plain(value)
    first = value[0]
    if first.tone is Tone.DIM and len(value) > 1 and first.text.endswith(" "):
        return cell_len(first.text)
    return len(text) - len(text.lstrip(" "))


def _words(value: Line) -> Iterable[tuple[str, Tone]]:
    """Words with the blanks before them, and their tones."""
    for part in value:
        for word in re.findall(r" *[^ ]+| +", part.text):
            yield word, part.tone


def _pieces(word: str, cells: int) -> Sequence[str]:
    """The word, or what a line holds of it at a time."""
    return [word] if cell_len(word) <= cells else chop_cells(word, max(cells, 2))


def bar(fraction: float | None, cells: int) -> str:
    """A bar of characters for 0 to 1; blanks where the fraction is not known."""
    if fraction is None:
        return "·" * cells
    filled = round(max(0.0, min(1.0, fraction)) * cells)
    return "━" * filled + "╌" * (cells - filled)
