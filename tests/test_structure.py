"""The shape of the code, counted: small modules, small functions, everything public described."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted([*(ROOT / "llmgw_core").rglob("*.py"), *(ROOT / "llmgw_tui").rglob("*.py")])
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 80
MAX_PUBLIC_METHODS = (
    22  # a Textual widget or app has an action and a handler for each key and message
)
NODE_SIDE = ("llmgw_core/errors.py", "llmgw_core/domain/", "llmgw_core/agent/")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_is_small_enough_to_be_read_at_once(path: Path) -> None:
    lines = [
        line
        for line in path.read_text("utf-8").splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]

    assert len(lines) <= MAX_MODULE_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))

    long = [
        f"{function.name}: {function.end_lineno - function.lineno + 1} lines"
        for function in functions(tree)
        if function.end_lineno is not None
        and function.end_lineno - function.lineno + 1 > MAX_FUNCTION_LINES
    ]

    assert long == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_classes_have_few_public_methods(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))

    wide = {
        node.name: len(public)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and len(public := [f for f in node.body if is_public_function(f)]) > MAX_PUBLIC_METHODS
    }

    assert wide == {}


def is_public_function(node: ast.stmt) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return not node.name.startswith(("_", "action_", "watch_", "on_", "check_"))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_public_functions_and_classes_say_what_they_are_for(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    if not tree.body:
        return

    silent = [
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]

    assert ast.get_docstring(tree) is not None, "the module has no docstring"
    assert silent == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_function_rebinds_a_global(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))

    assert [node.names for node in ast.walk(tree) if isinstance(node, ast.Global)] == []


@pytest.mark.parametrize(
    "path", [path for path in MODULES if name_of(path).startswith(NODE_SIDE)], ids=name_of
)
def test_node_side_parses_as_python_3_9(path: Path) -> None:
    ast.parse(path.read_text("utf-8"), feature_version=(3, 9))
