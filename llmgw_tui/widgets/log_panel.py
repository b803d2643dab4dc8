"""The log view: whose log it is, the log, and a line to search in it."""

import io
from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input

from llmgw_core.domain.engine import LogChunk
from llmgw_tui.present.log import LogAssembler, empty, log_status
from llmgw_tui.present.log_lines import log_line
from llmgw_tui.present.table import Key
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.widgets.log_view import LogView
from llmgw_tui.widgets.still_input import StillInput
from llmgw_tui.widgets.table import EmptyState
from llmgw_tui.widgets.toned import LineBar


class SearchInput(StillInput):
    """A text to search; escape leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave", show=False)]

    def action_leave(self) -> None:
        """Search for nothing."""
        self.value = ""
        self.post_message(self.Submitted(self, ""))


class LogPanel(Container):
    """Follows one engine's log at a time; what it was told of another is dropped."""

    DEFAULT_CSS = """
    LogPanel {
        layout: vertical;
        & > LogView { height: 1fr; padding: 0 1; }
        & > SearchInput { display: none; height: 1; border: none; background: $surface; }
        & > SearchInput.-asked { display: block; }
        & > EmptyState { display: none; }
        &.-empty > EmptyState { display: block; }
        &.-empty > LogView { display: none; }
    }
    """

    def __init__(self, clock: Callable[[], float], *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._clock = clock
        self._live_from: int | None = None  # byte offset: what comes from here on is new
        self._subject: Key | None = None
        self._title: str | None = None
        self._chunk: LogChunk | None = None
        self._trouble = ""
        self._assembler = LogAssembler()
        # Held rather than looked up: a timer may still come while the children are being removed.
        self._status = LineBar(id="log-status")
        self._empty = EmptyState()
        self.view = LogView()

    def compose(self) -> ComposeResult:
        """Status line, log, search line."""
        yield self._status
        yield self._empty
        yield self.view
        yield SearchInput(
            placeholder="words or a regular expression · enter marks, n and N go on · esc ends",
            id="log-search",
        )

    @property
    def subject(self) -> Key | None:
        """(node, engine id) of the engine it follows."""
        return self._subject

    @property
    def next_offset(self) -> int | None:
        """Where reading goes on; None before the first piece."""
        return None if self._chunk is None else self._chunk.next_offset

    def follow(self, subject: Key | None, title: str | None) -> bool:
        """Follow another engine's log; True when it is another, and its log is wanted from the start."""
        if subject == self._subject:
            return False
        self._subject, self._title = subject, title
        self._chunk, self._trouble, self._assembler = None, "", LogAssembler()
        self._live_from = None
        self.view.clear()
        self.show_status()
        return True

    def add(self, key: Key, chunk: LogChunk) -> None:
        """Take in a piece of the log, if it is of the engine that is followed."""
        if key != self._subject:
            return
        # What was there before it was looked at is of an unknown time.
        self._live_from = chunk.end_offset if self._live_from is None else self._live_from
        now = self._clock() if chunk.offset >= self._live_from else 0.0
        self._chunk, self._trouble = chunk, ""
        self.view.add(self._assembler.add(chunk), self._assembler.partial, now=now)
        self.show_status()

    def interrupt(self, key: Key, reason: str) -> None:
        """Say that the log cannot be read now."""
        if key == self._subject:
            self._trouble = reason
            self.show_status()

    def tail(self, count: int) -> tuple[Line, ...]:
        """The last lines with their tones, indented, for a detail pane."""
        return tuple((span("  "), *log_line(text)) for text in self.view.tail(count))

    def show_status(self) -> None:
        """Draw the status line."""
        view = self.view
        look = view.look
        self.set_class(view.line_count == 0, "-empty")
        self._empty.set_lines(empty(self._title))
        if self._title is None:
            value: Line = line(span("log", Tone.DIM))
        else:
            value = log_status(self._title, self._chunk, look)
        if self._trouble:
            value = (*value, span(f"  ▲ {self._trouble}", Tone.WARN))
        self._status.set_line((span(" "), *value))

    def focus_list(self) -> None:
        """Give the keys to the log."""
        self.view.focus()

    @on(LogView.Moved)
    def _on_moved(self) -> None:
        self.show_status()

    @on(LogView.SaveWanted)
    def _on_save_wanted(self) -> None:
        name = "-".join(self._subject or ("no", "engine"))
        self.app.deliver_text(io.StringIO(self.view.shown_text()), save_filename=f"{name}.log")

    @on(LogView.SearchWanted)
    def _on_search_wanted(self) -> None:
        box = self.query_one(SearchInput)
        box.add_class("-asked")
        box.focus()

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        event.input.remove_class("-asked")
        self.view.focus()
        wrong = self.view.search(event.value)
        if wrong:
            self.notify(wrong, severity="warning", markup=False)
        self.show_status()
