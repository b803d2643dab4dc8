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
Rank = tuple[float, tuple[tuple[float, str], ...]]


def filter_rows(rows: Sequence[Row], query: str) -> tuple[Row, ...]:
    """The rows that hold every word of the query in some cell, whatever the case; all for an empty query."""
    words = query.casefold().split()
    if not words:
        return tuple(rows)
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
    """What a cell's text is compared by: `512 MiB` before `61 GiB`, `gpu9` before `gpu10`."""
    found = _AMOUNT.match(text)
    amount = float(found[1]) * _SCALE.get(found[2], 1.0) if found else float("inf")
    pieces = _PIECE.split(text.casefold())
    return amount, tuple((float(p), "") if p.isdecimal() else (-1.0, p) for p in pieces)
