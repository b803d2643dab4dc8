"""Tables and panes as text, to be compared."""

from collections.abc import Iterable, Sequence

from llmgw_tui.present.table import Column, Row
from llmgw_tui.present.text import Line, plain


def text_of(lines: Iterable[Line]) -> str:
    """The lines as text, without tones."""
    return "\n".join(plain(value) for value in lines)


def cells_of(row: Row) -> list[str]:
    """The texts of a row."""
    return [plain(cell) for cell in row.cells]


def cell(row: Row, columns: Sequence[Column], title: str) -> str:
    """The text in the column of that title."""
    titles = [column.title for column in columns]
    return plain(row.cells[titles.index(title)])
