"""An engine's log as lines to show: escapes gone, progress bars at their last state, long lines cut.

`LogAssembler` has a memory (a torn line, a torn character) and touches nothing else.
"""

import codecs
import re
from dataclasses import dataclass, field

from llmgw_core.domain.engine import LogChunk
from llmgw_tui.present.log_store import LogFilter
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


@dataclass(frozen=True)
class LogLook:
    """How a log is looked at now.

    Attributes:
        following: whether the end stays in sight.
        behind: lines that came while it was held.
        filter: which lines are shown, of `kept`.
        search: what was searched for, and how many lines have it; `hit`: the one last gone to, from 1.
    """

    following: bool = True
    behind: int = 0
    filter: LogFilter = field(default_factory=LogFilter)
    shown: int = 0
    kept: int = 0
    search: str = ""
    hits: int = 0
    hit: int = 0
    wrapped: bool = False
    timed: bool = False


def log_status(title: str, chunk: LogChunk | None, look: LogLook) -> Line:
    """The line above the log: whose it is, whether it follows, what is shown of it, what is lost."""
    parts = [span(title, Tone.STRONG)]
    if chunk is None:
        return line(*parts, span("  waiting for the node…", Tone.DIM))
    mode = span("  ▼ following", Tone.OK) if look.following else span("  ‖ held", Tone.WARN)
    parts.append(mode)
    if not look.following and look.behind:
        parts.append(span(f", {look.behind} new below (f follows)", Tone.WARN))
    parts += _filter_parts(look)
    if look.search:
        at = f"{look.hit} of " if look.hit else ""
        parts.append(span(f"  /{look.search}: {at}{look.hits} found", Tone.ACCENT))
    modes = [word for word, is_on in (("wrap", look.wrapped), ("time", look.timed)) if is_on]
    if modes:
        parts.append(span(f"  {' '.join(modes)}", Tone.DIM))
    if chunk.ended:
        parts.append(span("  end of log", Tone.DIM))
    if chunk.dropped:
        text = f"  ▲ {format_bytes(chunk.dropped)} were never stored (disk full)"
        parts.append(span(text, Tone.WARN))
    return line(*parts, span(f"  {format_bytes(chunk.end_offset)}", Tone.DIM))


def _filter_parts(look: LogLook) -> list[Span]:
    """What is left out, so that nobody takes a filtered log for a quiet one."""
    wanted = look.filter
    if wanted.is_open:
        return []
    words = [f"{wanted.level.name.lower()}+"] if wanted.level else []
    words += [wanted.process] if wanted.process is not None else []
    words += ["hits only"] if wanted.only_hits else []
    return [span(f"  only {', '.join(words)} ({look.shown} of {look.kept})", Tone.WARN)]


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
