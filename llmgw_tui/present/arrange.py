"""Which rows of a table are seen, and in which order. Pure."""

import re
from collections.abc import Sequence

from llmgw_tui.present.table import Row
from llmgw_tui.present.text import plain

_PIECE = re.compile(r"(\d+)")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")
_SCALE = {
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
UNKNOWN = ("", "—", "?")
# What a cell begins with, by what it means: what needs a person first.
_STATES = {glyph: place for place, glyph in enumerate("✖▲?◌◓◔◐●■□○·")}
_BAR = re.compile("[━╌]+")
_SPARK = "▁▂▃▄▅▆▇█"
Rank = tuple[float, tuple[tuple[float, str], ...]]


def filter_rows(rows: Sequence[Row], query: str) -> Sequence[Row]:
    """The rows that hold every word of the query in some cell, whatever the case; all for an empty query."""
    words = query.casefold().split()
    if not words:
        return rows
    return tuple(row for row in rows if _holds(row, words))


def _holds(row: Row, words: Sequence[str]) -> bool:
    text = "\n".join(plain(cell) for cell in row.cells).casefold()
    return all(word in text for word in words)


def sort_rows(rows: Sequence[Row], place: int, *, reverse: bool) -> tuple[Row, ...]:
    """The rows by one column: amounts by size, then text with its numbers by value. Unknown stays last; equals keep their order."""
    texts = [(plain(row.cells[place]).strip(), row) for row in rows]
    known = [(rank_of(text), row) for text, row in texts if text not in UNKNOWN]
    known.sort(key=lambda item: item[0], reverse=reverse)
    return (*(row for _, row in known), *(row for text, row in texts if text in UNKNOWN))


def rank_of(text: str) -> Rank:
    """What a cell's text is compared by: `512 MiB` before `61 GiB`, `gpu9` before `gpu10`, states by how bad they are.

    Of a strip of states the worst one counts, then how many they are; of a bar its length; of a curve its last value.
    """
    head = text.split(" ", 1)[0]
    if head and all(glyph in _STATES for glyph in head):
        worst = min(_STATES[glyph] for glyph in head)
        count = sum(_STATES[glyph] == worst for glyph in head)
        return float(worst), ((-float(count), ""), *_pieces(text))
    if head and all(glyph in _SPARK for glyph in head):
        return float(_SPARK.index(head[-1])), _pieces(text)
    if found := _BAR.match(text):
        return found[0].count("━") / len(found[0]), _pieces(text)
    amount = _AMOUNT.match(text)
    size = float(amount[1]) * _SCALE.get(amount[2], 1.0) if amount else float("inf")
    return size, _pieces(text)


def _pieces(text: str) -> tuple[tuple[float, str], ...]:
    """The text with its numbers as numbers."""
    parts = _PIECE.split(text.casefold())
    return tuple((float(part), "") if part.isdecimal() else (-1.0, part) for part in parts)
