"""What one line of an engine's log says of itself: its level, and the process that wrote it. Pure."""

import re
from enum import IntEnum

from llmgw_tui.present.text import Line, Span, Tone


class Level(IntEnum):
    """How much a line matters."""

    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3


_LEVELS = (
    (
        re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Traceback)\b|\b\w+(?:Error|Exception): "),
        Level.ERROR,
    ),
    (re.compile(r"\bWARN(?:ING)?\b"), Level.WARN),
    (re.compile(r"\bDEBUG\b"), Level.DEBUG),
)
_TONES = {
    Level.DEBUG: Tone.DIM,
    Level.INFO: Tone.NORMAL,
    Level.WARN: Tone.WARN,
    Level.ERROR: Tone.ERROR,
}
# (Worker_TP1 pid=4102) · (RayWorkerWrapper pid=41, ip=10.0.0.2) · [2026-12-01 02:30:45 DP0 TP3] · [rank3]: …
# Source: the start-up logs of vLLM 0.10 to 0.32 and SGLang 0.4 to 0.5.
_PROCESS = re.compile(
    r"\((?P<vllm>[\w.:-]{1,40}) pid=\d+(?:, ip=[\d.]+)?\)"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?P<sglang>(?: [A-Z]{2,3}\d+)+)\]"
    r"|\[(?P<torch>rank\d+)\]:"
)


def level_of(text: str, before: Level = Level.INFO) -> Level:
    """The level that a line names; an indented line without one goes on the line before it, as in a traceback."""
    for pattern, level in _LEVELS:
        if pattern.search(text):
            return level
    return before if text.startswith((" ", "\t")) else Level.INFO


def process_of(text: str) -> str | None:
    """The process that a line names at its begin: `Worker_TP1`, `DP0 TP3`, `rank3`; None where it names none."""
    found = _PROCESS.match(text)
    if found is None:
        return None
    return (found["vllm"] or found["sglang"] or found["torch"]).strip()


def line_tone(text: str, level: Level | None = None) -> Tone:
    """The tone of a line by its level."""
    return _TONES[level_of(text) if level is None else level]


def log_line(text: str, pattern: re.Pattern[str] | None = None, level: Level | None = None) -> Line:
    """A cleaned line with its tone, and what was searched for marked."""
    tone = line_tone(text, level)
    if pattern is None:
        return (Span(text, tone),)
    parts: list[Span] = []
    place = 0
    for found in pattern.finditer(text):
        if found.end() == found.start():
            continue
        parts += [Span(text[place : found.start()], tone), Span(found.group(), Tone.MATCH)]
        place = found.end()
    return tuple(part for part in (*parts, Span(text[place:], tone)) if part.text)


def compile_search(text: str) -> tuple[re.Pattern[str] | None, str]:
    """The pattern of a search, whatever the case, and what is wrong with it when it is no regular expression and is
    searched as it stands.
    """
    if not text:
        return None, ""
    try:
        return re.compile(text, re.IGNORECASE), ""
    except re.error as error:
        pattern = re.compile(re.escape(text), re.IGNORECASE)
        return pattern, f"no regular expression ({error}): taken as text"
