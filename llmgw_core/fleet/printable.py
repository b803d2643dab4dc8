"""What a node said, fit for an operator's terminal: it must neither move the cursor nor fill the screen."""

from collections.abc import Mapping

from llmgw_core.errors import LlmgwError, from_wire

MAX_SHOWN_CHARS = 2000
_BLANKS = "\n\t\r\u00a0"


def without_controls(text: str, blanks: str = _BLANKS, kept: str = "") -> str:
    """The text with a blank for each of `blanks` and `�` for all else that is not printable, but for what is `kept`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in kept else " " if char in blanks else "�"
        for char in text
    )


def printable(text: object, limit: int = MAX_SHOWN_CHARS) -> str:
    """One line without control, direction or private characters, and no longer than `limit`."""
    whole = str(text)
    shown = without_controls(whole[:limit])
    return shown if len(whole) <= limit else f"{shown}…"


def read_error(facts: Mapping[str, object], node: str) -> LlmgwError:
    """The error that a node told, in printable words. The node's name is ours: it knows itself by another one."""
    texts = {
        key: printable(facts[key])
        for key in ("code", "what", "why", "fix")
        if facts.get(key) is not None
    }
    return from_wire({**texts, "node": node})
