"""An engine's log as lines to show: escapes gone, progress bars at their last state, long lines cut.

`LogAssembler` has a memory (a torn line, a torn character) and touches nothing else.
"""

import codecs
import re

from llmgw_core.domain.engine import LogChunk
from llmgw_tui.present.text import Line, Span, Tone, clean, line, span
from llmgw_tui.present.units import format_bytes

MAX_LINE_CHARACTERS = 4096
MAX_PARTIAL_CHARACTERS = 65536
TAB = " " * 4
# CSI, OSC (ended by BEL or ST), and the two-character escapes. Source: ECMA-48 5.4, 8.3.89.
_ESCAPE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\\\)?"
    "|\x1b[ -/]*[0-~]|\x9b[0-?]*[ -/]*[@-~]"
)
_LEVELS = (
    (re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Traceback)\b|\b\w+(?:Error|Exception): "), Tone.ERROR),
    (re.compile(r"\bWARN(?:ING)?\b"), Tone.WARN),
    (re.compile(r"\bDEBUG\b"), Tone.DIM),
)


def clean_line(raw: str) -> str:
    """One line as it is shown: the last state of a `\\r` bar, without escapes, cut at 4 Ki characters.

    Example: `"\\rLoading: 10%\\rLoading: 50%"` gives `"Loading: 50%"`.
    """
    states = [state for state in raw.split("\r") if state.strip()]
    text = states[-1] if states else ""
    cut = len(text) > MAX_LINE_CHARACTERS * 2
    text = _ESCAPE.sub("", text[: MAX_LINE_CHARACTERS * 2]).replace("\t", TAB)
    if cut or len(text) > MAX_LINE_CHARACTERS:
        text = text[:MAX_LINE_CHARACTERS] + " … (line cut here)"
    return clean(text)


def line_tone(text: str) -> Tone:
    """The tone of a line by the level it names."""
    return next((tone for pattern, tone in _LEVELS if pattern.search(text)), Tone.NORMAL)


def log_line(text: str, needle: str = "") -> Line:
    """A cleaned line with its tone, and what was searched for marked."""
    tone = line_tone(text)
    if not needle:
        return (Span(text, tone),)
    parts: list[Span] = []
    place = 0
    for found in re.finditer(re.escape(needle), text, re.IGNORECASE):
        parts += [Span(text[place : found.start()], tone), Span(found.group(), Tone.MATCH)]
        place = found.end()
    return tuple(part for part in (*parts, Span(text[place:], tone)) if part.text)


class LogAssembler:
    """Turns chunks of bytes into whole lines, whatever the chunks are torn at."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._is_first = True

    def add(self, chunk: LogChunk) -> list[str]:
        """The lines that the chunk completes, cleaned; after a gap the torn line before it ends there."""
        lines: list[str] = []
        if self._is_first and chunk.offset > 0:
            lines = [earlier_text(chunk.offset)]
        elif chunk.skipped:
            lines = [*self._flush(), gap_text(chunk.skipped)]
        self._is_first = False
        text = self._decoder.decode(chunk.data.encode("utf-8", "surrogateescape"))
        *whole, self._partial = (self._partial + text).split("\n")
        lines += [clean_line(raw) for raw in whole]
        if len(self._partial) > MAX_PARTIAL_CHARACTERS:
            lines += self._fold()
        return [*lines, *self._flush()] if chunk.ended else lines

    @property
    def partial(self) -> str:
        """The line still being written, cleaned: often a progress bar."""
        return clean_line(self._partial)

    def _fold(self) -> list[str]:
        """Keep a line without end small: a bar keeps its last state, anything else is shown as it is."""
        head, _, last = self._partial.rpartition("\r")
        if head and len(last) <= MAX_PARTIAL_CHARACTERS:
            self._partial = last or head.rpartition("\r")[2][-MAX_PARTIAL_CHARACTERS:]
            return []
        return self._flush()

    def _flush(self) -> list[str]:
        self._decoder.reset()
        text, self._partial = self.partial, ""
        return [text] if text else []


def gap_text(skipped: int) -> str:
    """What stands where a piece of the log is no longer kept."""
    return f"── {format_bytes(skipped)} skipped here: no longer kept on the node ──"


def earlier_text(offset: int) -> str:
    """What stands above the first line when the log is longer than what was asked for."""
    return (
        f"── {format_bytes(offset)} before this are not shown: `llmgw logs` has all that is kept ──"
    )


def log_status(
    title: str, chunk: LogChunk | None, *, following: bool, behind: int, needle: str, hits: int
) -> Line:
    """The line above the log: whose it is, whether it follows, what was searched, what is lost."""
    parts = [span(title, Tone.STRONG)]
    if chunk is None:
        return line(*parts, span("  waiting for the node…", Tone.DIM))
    mode = span("  ▼ following", Tone.OK) if following else span("  ‖ held", Tone.WARN)
    parts.append(mode)
    if not following and behind:
        parts.append(span(f", {behind} new below (f follows)", Tone.WARN))
    if needle:
        parts.append(span(f"  /{needle}: {hits} found", Tone.ACCENT))
    if chunk.ended:
        parts.append(span("  end of log", Tone.DIM))
    if chunk.dropped:
        text = f"  ▲ {format_bytes(chunk.dropped)} were never stored (disk full)"
        parts.append(span(text, Tone.WARN))
    return line(*parts, span(f"  {format_bytes(chunk.end_offset)}", Tone.DIM))


def empty(title: str | None) -> tuple[Line, ...]:
    """What stands in place of the log when there is no line."""
    if title is None:
        return (
            line(span("No engine is selected", Tone.TITLE)),
            line("Choose one in the engine view (4) and press l."),
        )
    return (
        line(span(f"{title} has written nothing yet, or its node has not answered.", Tone.DIM)),
    )
