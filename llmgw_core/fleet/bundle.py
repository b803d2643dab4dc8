"""The node side as one archive, named by the hash of its content: the same code gives the same bytes everywhere."""

import bz2
import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import llmgw_core

HASH_DIGITS = 16
_MAIN = """\
import sys

from llmgw_core.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
# Lines of comment, and comments behind code as far as nothing of theirs could be the end of a text.
_COMMENT = re.compile(r"""^ *#.*$|  #[^"'\n]*$""", re.MULTILINE)
_DOCSTRING = re.compile(
    r'(?P<before>(?:\A|:(?: *#[^\n]*)?\n) *)"""(?P<text>(?:[^"\\]|\\.|"(?!""))*)"""(?= *$)',
    re.MULTILINE | re.DOTALL,
)

_DEF = re.compile(r"^ *(?:async )?def [^\n]*$", re.MULTILINE)
_RETURNS = re.compile(r"^( *(?:async )?def [^\n]*\)| *\)) -> [^\n]+:$", re.MULTILINE)
_TYPED = re.compile(r"(?<=[(, *])(\w+): [A-Za-z_.]+(?=[,)\n]| = )")
_LONG_DEF = re.compile(r"^ *(?:async )?def \w+\(\n(?: +[^\n]*\n)+? *\)[^\n]*:$", re.MULTILINE)
# Within functions alone: a field's type is looked at when its record is read.
_TYPED_LOCAL = re.compile(r"^( {8,}[\w.]+): [A-Z][^=\n]*? = ", re.MULTILINE)
# Of the domain, and of no use to a node.
_OPERATORS_ONLY = frozenset(["domain/deployment.py", "domain/queue.py"])


@dataclass(frozen=True)
class Bundle:
    """What is sent to a node."""

    hash: str  # 16 hex digits
    text: bytes  # JSON {path: text}: a zip compresses each small file alone, and is a third larger

    @cached_property
    def data(self) -> bytes:
        """What is uploaded. For Python source of this size bzip2 beats xz by 7 % and zlib by 20 %."""
        return bz2.compress(self.text, 9)

    @cached_property
    def plain_data(self) -> bytes:
        """The same by zlib, for a Python that was built without bzip2."""
        return zlib.compress(self.text, 9)


@lru_cache(maxsize=1)
def build_bundle() -> Bundle:
    """Return the archive of the code this process runs from."""
    return pack_files(collect_files(Path(llmgw_core.__file__).parent))


def collect_files(package: Path) -> dict[str, str]:
    """Return path in the bundle → text: the package's node side without its prose, and a `__main__.py` that starts it."""
    paths = [package / "__init__.py", package / "errors.py"]
    for part in ("domain", "agent"):
        paths += (package / part).rglob("*.py")
    files = {
        path.relative_to(package.parent).as_posix(): strip_prose(path.read_text("utf-8"))
        for path in paths
        if path.relative_to(package).as_posix() not in _OPERATORS_ONLY
    }
    files["__main__.py"] = _MAIN
    return dict(sorted(files.items()))


def strip_prose(source: str) -> str:
    """Return the Python source without docstrings, comments and most types in functions, each statement on its line.

    A third of the bytes go; a traceback from a node still points at the right line. By pattern and not by parsing, which
    takes a quarter of a second for all files; a test compares the syntax trees of each. Nothing reads functions' types at
    run time; the fields' of dataclasses stay.
    """
    bare = _DOCSTRING.sub(_keep_lines, _COMMENT.sub("", source))
    bare = _RETURNS.sub(r"\1:", bare)
    for signature in (_DEF, _LONG_DEF):
        bare = signature.sub(lambda found: _TYPED.sub(r"\1", found[0]), bare)
    return _TYPED_LOCAL.sub(r"\1 = ", bare)


def pack_files(files: dict[str, str]) -> Bundle:
    """Return the bundle of these files."""
    text = json.dumps(files, sort_keys=True, separators=(",", ":"))
    return Bundle(hash_files(files), text.encode("ascii"))


def hash_files(files: dict[str, str]) -> str:
    """Return the first 16 hex digits of the SHA-256 over `<path> NUL <sha256 of content> LF`, sorted by path.

    `bootstrap_program` computes the same over what it finds on the node.
    """
    digest = hashlib.sha256()
    for name, text in sorted(files.items()):
        digest.update(f"{name}\0{hashlib.sha256(text.encode()).hexdigest()}\n".encode())
    return digest.hexdigest()[:HASH_DIGITS]


def _keep_lines(match: re.Match[str]) -> str:
    """An empty string where a docstring was: a body must not be empty."""
    return f'{match["before"]}""' + "\n" * match["text"].count("\n")
