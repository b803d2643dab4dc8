"""What a person reads on a terminal: tables, ages, errors. Results go to stdout, words to stderr."""

import sys
import unicodedata
from collections.abc import Iterable, Sequence

from llmgw_core.domain.findings import Finding
from llmgw_core.errors import LlmgwError
from llmgw_core.fleet.printable import without_controls

EXIT_USAGE = 2
EXIT_SOME_SILENT = 3
EXIT_ALL_SILENT = 4


def print_result(text: str) -> None:
    """Write one line or document to stdout."""
    shown = clean_lines(text)
    sys.stdout.write(shown if shown.endswith("\n") else shown + "\n")


def print_note(text: str) -> None:
    """Write one line for a person to stderr, at once."""
    sys.stderr.write(f"{clean_lines(text)}\n")
    sys.stderr.flush()


def print_error(error: LlmgwError) -> None:
    """Write an error to stderr: what, why, and what to do next on a line of its own."""
    where = f"{error.node}: " if error.node else ""
    print_note(f"llmgw: {where}{clean(error.message)}")
    if error.fix:
        print_note(f"  → {clean(error.fix)}")


def render_finding(finding: Finding) -> str:
    """One finding in a line to three: what, why, what to do."""
    first = f"{finding.severity.value:7} {finding.code}  {finding.subject}: {finding.what}"
    why = f"\n        because {clean(finding.why)}" if finding.why else ""
    return clean(first) + why + (f"\n        → {clean(finding.fix)}" if finding.fix else "")


def render_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, two blanks apart. None is shown as `-`."""
    table = [tuple(header), *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [max(_width(row[column]) for row in table) for column in range(len(header))]
    lines = [
        "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        )
        for row in table
    ]
    return "\n".join(line.rstrip() for line in lines)


def clean(text: str) -> str:
    """The text without what a terminal would obey: a node's words must not move the cursor."""
    return without_controls(text, blanks="\n\t")


def clean_lines(text: str) -> str:
    """The same of several lines, which stay lines."""
    if (
        text.isascii() and text.replace("\n", "").isprintable()
    ):  # most of it, and a document of megabytes
        return text
    return "\n".join(clean(line) for line in text.split("\n"))


def render_duration(seconds: float) -> str:
    """Two units at most: `42s`, `3m10s`, `2h05m`, `9d04h`."""
    whole = max(0, int(seconds))
    if whole < 60:  # noqa: PLR2004 - seconds in a minute, and so on
        return f"{whole}s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:  # noqa: PLR2004
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else clean(str(value))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
