"""The bundle: small, the same everywhere, and exactly the code it was made from."""

import ast
import re
from pathlib import Path

import pytest

import llmgw_core
from llmgw_core.fleet.bootstrap_program import hash_directory, read_archive, write_files
from llmgw_core.fleet.bundle import (
    Bundle,
    build_bundle,
    collect_files,
    hash_files,
    pack_files,
    strip_prose,
)

PACKAGE = Path(llmgw_core.__file__).parent
# It was 96 kB until API keys and the way to gateways came; it is sent once per node and version.
MAX_BYTES = 112 * 1000
MODULES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for part in ("errors.py", "domain/**/*.py", "agent/**/*.py")
    for path in PACKAGE.glob(part)
    if path.name not in ("deployment.py", "queue.py")  # which operators alone have a use for
)


def test_bundle_is_small(capsys: pytest.CaptureFixture[str]) -> None:
    size = len(build_bundle().data)

    with capsys.disabled():
        print(f"\n  bundle: {size} bytes compressed")  # noqa: T201 - a number to be seen growing
    assert size <= MAX_BYTES


def test_same_files_give_the_same_bytes() -> None:
    files = collect_files(PACKAGE)
    turned = dict(reversed(files.items()))

    assert pack_files(turned) == pack_files(files)


def test_a_python_without_bz2_gets_the_same_files() -> None:
    bundle = build_bundle()

    assert read_archive(bundle.plain_data) == read_archive(bundle.data)


def test_hash_changes_with_content_and_with_names() -> None:
    hashes = {
        hash_files(files) for files in ({"a.py": "1"}, {"a.py": "2"}, {"b.py": "1"}, {"a.py": ""})
    }

    assert len(hashes) == 4
    assert all(re.fullmatch("[0-9a-f]{16}", item) for item in hashes)


def test_bundle_holds_the_node_side_and_nothing_else() -> None:
    bundle = build_bundle()

    names = set(read_archive(bundle.data))

    assert names == {f"llmgw_core/{name}" for name in MODULES} | {
        "__main__.py",
        "llmgw_core/__init__.py",
    }


def test_node_computes_the_same_hash_over_what_it_unpacked(tmp_path: Path) -> None:
    files = collect_files(PACKAGE)
    bundle: Bundle = pack_files(files)

    write_files(str(tmp_path / "x"), read_archive(bundle.data))

    assert hash_directory(str(tmp_path / "x")) == bundle.hash


@pytest.mark.parametrize("name", MODULES)
def test_stripped_code_is_the_same_code_on_the_same_lines(name: str) -> None:
    source = (PACKAGE / name).read_text("utf-8")
    expected = ast.parse(source)
    for node in ast.walk(expected):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None:
                assert isinstance(first, ast.Expr)
                assert isinstance(first.value, ast.Constant)
                first.value.value = ""

    stripped = ast.parse(strip_prose(source))

    assert ast.dump(untyped(stripped)) == ast.dump(untyped(expected))
    assert statement_lines(stripped) == statement_lines(expected)


def untyped(tree: ast.AST) -> ast.AST:
    """The tree without the types of functions, their parameters and their variables."""
    tree = Untyped().visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return tree


class Untyped(ast.NodeTransformer):
    """Turns `x: T = v` into `x = v` within functions."""

    def __init__(self) -> None:
        self.depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Look into it."""
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Drop the type."""
        if not self.depth or node.value is None:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def statement_lines(tree: ast.AST) -> list[int]:
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def test_fields_keep_their_types_and_functions_lose_theirs() -> None:
    source = 'class A:\n    x: int = 1\n    async def f(self, a: int, *, b: str = "c: d") -> None:\n        y: int = a\n        z: Dict[str, int] = {}\n'

    assert (
        strip_prose(source)
        == 'class A:\n    x: int = 1\n    async def f(self, a, *, b = "c: d"):\n        y: int = a\n        z = {}\n'
    )


def test_hash_signs_in_code_and_texts_that_are_values_survive_stripping() -> None:
    source = 'def f():\n    """× –\n    doc"""\n    # gone\n    x = g("  # stays")  # gone\n    y = 1  # "stays"\n    return """x"""\n'

    stripped = strip_prose(source)

    assert (
        stripped
        == 'def f():\n    ""\n\n\n    x = g("  # stays")\n    y = 1  # "stays"\n    return """x"""\n'
    )
