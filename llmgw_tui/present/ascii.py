"""What is drawn on a terminal that shows ASCII alone, and whether this one does. Every state keeps a sign of its own. Pure."""

import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from rich.cells import cell_len

_SIGNS = str.maketrans(
    {
        # States: no two that may stand in one place share a sign.
        **dict(zip("■□▲✖●○◌◔◐◓✓▸", "#.!X*o~:%;+>", strict=True)),
        # Bars and curves: the longer, and the higher the digit, the more.
        **dict(zip("━╌▁▂▃▄▅▆▇█", "=-12345678", strict=True)),
        # Punctuation and arrows.
        **dict(zip("—–·…›→←↑↓×°│‖─▼", "--.~>><^vx ||-v", strict=True)),
        # Frames, as Textual draws them.
        **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼▎▏▕▊▔▖▗▘▝", "+"),
    }
)
_ASCII_TERMINALS = ("dumb", "linux", "ansi", "vt100", "vt102", "vt220")


@lru_cache(maxsize=4096)
def to_ascii(text: str) -> str:
    """The text in ASCII and in as many terminal cells; letters lose their accents, what has no likeness is `?`."""
    if text.isascii():
        return text
    signs = text.translate(_SIGNS)
    return signs if signs.isascii() else "".join(map(_letter, signs))


def _letter(sign: str) -> str:
    if sign.isascii():
        return sign
    cells = cell_len(sign)
    plain = "".join(part for part in unicodedata.normalize("NFKD", sign) if part.isascii())
    return plain if plain and len(plain) == cells else "?" * cells


def needs_ascii(environ: Mapping[str, str]) -> bool:
    """Whether the terminal cannot be trusted with more than ASCII: its kind, or a locale that is not UTF-8.

    No locale at all says nothing: most terminals of today take UTF-8, and a container often names none.
    """
    if environ.get("TERM", "").casefold() in _ASCII_TERMINALS:
        return True
    locale = environ.get("LC_ALL") or _ctype(environ) or environ.get("LANG", "")
    return bool(locale) and "utf8" not in locale.casefold().replace("-", "")


def _ctype(environ: Mapping[str, str]) -> str:
    """LC_CTYPE, but for what Python itself writes there at its start when the locale is C (PEP 538)."""
    ctype = environ.get("LC_CTYPE", "")
    return "" if ctype == "C.UTF-8" and environ.get("LANG") in ("C", "POSIX") else ctype
