"""Numbers of a node that are valid JSON, and that arithmetic and terminals stumble over later: they are refused at the door."""

import json
import re

# In all other messages there is none, and they are not read a second time. It may be a part of a text.
_SUSPECT = re.compile(rb"[0-9]{19}|[0-9][eE]\+?[0-9]{2}")
_LIMIT = 1 << 63
_MAX_DIGITS = 20  # with a sign


def refuse_long_numbers(body: bytes) -> None:
    """Do nothing for JSON whose numbers all fit into 64 bits.

    Raises:
        ValueError: one does not.
    """
    if _SUSPECT.search(body):
        json.loads(body, parse_int=_check_int, parse_float=_check_float)


def _check_int(text: str) -> None:
    if len(text) > _MAX_DIGITS or abs(int(text)) >= _LIMIT:
        raise ValueError("a number of more than 64 bits")


def _check_float(text: str) -> None:
    if not abs(float(text)) < _LIMIT:
        raise ValueError("a number of more than 64 bits")
