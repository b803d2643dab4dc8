"""docs/faults.md and the tests say the same."""

import ast
import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent.parent
TABLE = TESTS.parent / "docs/faults.md"


def has_mark(decorators: list[ast.expr]) -> bool:
    return any("mark.faults" in ast.unparse(item) for item in decorators)


def find_marked_tests() -> Counter[str]:
    """Names of the tests that are marked `faults`, by themselves or with all of their module."""
    found: Counter[str] = Counter()
    for path in TESTS.rglob("test_*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        whole = any(
            isinstance(item, ast.Assign)
            and ast.unparse(item.targets[0]) == "pytestmark"
            and has_mark([item.value])
            for item in tree.body
        )
        found.update(
            item.name
            for item in tree.body
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
            and item.name.startswith("test_")
            and (whole or has_mark(item.decorator_list))
        )
    return found


def test_every_row_has_its_tests_and_every_test_its_row() -> None:
    rows = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)}
    empty = [
        row for row in rows if not row.startswith("| fault |") and not re.search(r"`test_\w+`", row)
    ]
    marked = find_marked_tests()

    assert empty == []
    assert named == set(marked)
    assert set(marked.values()) == {1}, "a name stands for one test"
