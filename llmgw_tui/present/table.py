"""What a table shows: columns, rows by key, and how the columns share the width there is. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

from llmgw_tui.present.text import Line, dimmed, width

Key = tuple[str, ...]
GAP = 2  # blanks between columns


class Column(NamedTuple):
    """One column. `keep` orders who stays when it gets narrow: 9 always, 1 goes first."""

    title: str
    least: int = 4  # cells it shrinks to before a column is dropped
    most: int = 40
    keep: int = 5
    right: bool = False


def column_word(column: Column) -> str:
    """The column as it is typed and kept: `held-by`. Only titles count, which may change their place."""
    return column.title.casefold().replace(" ", "-")


@dataclass(frozen=True)
class Row:
    """One row. The key is its identity, whatever its place."""

    key: Key
    cells: tuple[Line, ...]

    def as_dim(self) -> "Row":
        """The row greyed: what it says is old."""
        return Row(self.key, tuple(dimmed(cell) for cell in self.cells))


class Rows(Sequence[Row]):
    """Rows that are made when they are looked at: of eight thousand GPUs a screen shows fifty.

    Args:
        keys: of all rows, in their order.
        make: the row at a place; called once for each place that is asked for.
    """

    def __init__(self, keys: Sequence[Key], make: Callable[[int], Row]) -> None:
        self.keys = keys
        self._make = make
        self._made: dict[int, Row] = {}

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Rows":
        """These rows, which are there already."""
        return rows if isinstance(rows, Rows) else cls([row.key for row in rows], rows.__getitem__)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, place: int | slice) -> Row | tuple[Row, ...]:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(len(self.keys))))
        wanted = range(len(self.keys))[place]
        row = self._made.get(wanted)
        if row is None:
            row = self._made[wanted] = self._make(wanted)
        return row

    def __iter__(self) -> Iterator[Row]:
        return (self[place] for place in range(len(self.keys)))

    def place_of(self, key: Key | None, likely: int = 0) -> int | None:
        """Where the key is; None when it is not there. Quick when it is where it was."""
        if 0 <= likely < len(self.keys) and self.keys[likely] == key:
            return likely
        return next((place for place, other in enumerate(self.keys) if other == key), None)


def natural_widths(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[int, ...]:
    """The width each column would like, between its title's and its most."""
    widths = [len(column.title) for column in columns]
    for row in rows:
        for place, cell in enumerate(row.cells):
            widths[place] = max(widths[place], width(cell))
    return tuple(
        min(wish, max(column.most, len(column.title)))
        for wish, column in zip(widths, columns, strict=True)
    )


def share_width(
    columns: Sequence[Column], wishes: Sequence[int], available: int
) -> tuple[int, ...]:
    """Cells for each column, 0 for one that is left out: shrink first, then drop the least worth keeping."""
    shown = list(range(len(columns)))
    while True:
        widths = _shrink(columns, wishes, shown, available)
        total = sum(widths[place] for place in shown) + GAP * max(0, len(shown) - 1)
        if total <= available or len(shown) <= 1:
            return tuple(widths)
        # Of equals the one further to the right goes.
        shown.remove(min(shown, key=lambda place: (columns[place].keep, -place)))


def _shrink(
    columns: Sequence[Column], wishes: Sequence[int], shown: Sequence[int], available: int
) -> list[int]:
    """Take cells from the widest that may still shrink until the rest fits, or none may."""
    widths = [0] * len(columns)
    for place in shown:
        widths[place] = wishes[place]
    surplus = sum(widths) + GAP * max(0, len(shown) - 1) - available
    while surplus > 0:
        able = [place for place in shown if widths[place] > columns[place].least]
        if not able:
            return widths
        widest = max(able, key=lambda place: widths[place])
        widths[widest] -= 1
        surplus -= 1
    return widths


def anchor(rows: Rows, key: Key | None, old_place: int) -> int:
    """Where the cursor goes: to its key wherever that is now, else to the nearest place there is."""
    place = rows.place_of(key, old_place)
    return max(0, min(old_place, len(rows) - 1)) if place is None else place
