"""One cause of failure: how it is told in a log, and what to do about it. Pure."""

import re
from typing import NamedTuple, Pattern


class Rule(NamedTuple):
    """One cause: how it is told, how deep it lies, and what to do about it."""

    depth: (
        int  # 0: a root cause; 1: names the area; 2: a victim of another process; 3: after the fact
    )
    code: str
    pattern: Pattern[str]  # a group `text` is what is shown; else the line
    summary: str  # put before the text; "" where the engine's own words say it
    hint: str


def make_rule(depth: int, code: str, pattern: str, hint: str, summary: str = "") -> Rule:
    """The rule with its pattern compiled; see `Rule`."""
    return Rule(depth, code, re.compile(pattern), summary, hint)
