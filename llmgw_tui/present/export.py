"""A table as a file for other programs: every row that the filter leaves, in the order that is shown. Pure."""

import csv
import io
import json
from collections.abc import Sequence

from llmgw_tui.present.table import Column, Row, column_word
from llmgw_tui.present.text import plain

FORMATS = ("csv", "json")
_FORMULA = ("=", "@", "+")  # a spreadsheet would run such a cell, and nodes say what is in it


def export_table(columns: Sequence[Column], rows: Sequence[Row], form: str) -> str:
    """The rows as CSV with a head, or as a JSON list of objects. Cells are text, as they are read on the screen."""
    names = [column_word(column) for column in columns]
    cells = [[plain(cell).strip() for cell in row.cells] for row in rows]
    if form == "json":
        objects = [dict(zip(names, row, strict=True)) for row in cells]
        return json.dumps(objects, indent=2, ensure_ascii=False) + "\n"
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(
        [f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in row] for row in cells
    )
    return sink.getvalue()
