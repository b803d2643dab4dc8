"""The console's one screen: header, numbered views, error line, footer. Posts commands, awaits nothing."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import ContentSwitcher

from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_tui.messages import (
    ActRequested,
    CommandWanted,
    LogArrived,
    LogInterrupted,
    RefreshRequested,
)
from llmgw_tui.present import engines
from llmgw_tui.present.acts import Act, ask_about, refusal
from llmgw_tui.present.events import Event, EventBook, find_events
from llmgw_tui.present.header import header
from llmgw_tui.present.pick import engine_under
from llmgw_tui.present.related import Place, crumbs, related
from llmgw_tui.present.table import Key
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.screens.confirm import ConfirmScreen
from llmgw_tui.screens.following import LogFollower
from llmgw_tui.screens.go_to import GoToScreen
from llmgw_tui.screens.help import HelpScreen, help_groups
from llmgw_tui.screens.launch import LaunchScreen
from llmgw_tui.screens.pacing import DrawPacer
from llmgw_tui.screens.queue import QueueView
from llmgw_tui.screens.views import (
    CLUSTER,
    COMMANDS,
    ENGINES_ID,
    EVENTS_ID,
    FABRIC,
    GPUS,
    IDS,
    LOG_ID,
    PROCESSES,
    QUEUE_ID,
    TITLES,
    engines_spec,
    events_spec,
)
from llmgw_tui.widgets.key_bar import KeyBar
from llmgw_tui.widgets.log_panel import LogPanel
from llmgw_tui.widgets.log_view import LogView
from llmgw_tui.widgets.master_detail import MasterDetail
from llmgw_tui.widgets.tab_bar import TabBar
from llmgw_tui.widgets.table import Table
from llmgw_tui.widgets.toned import LineBar

TICK_SECONDS = 1.0  # ages are drawn anew; widgets whose text stays the same are not


class MainScreen(Screen[None]):
    """Shows the latest snapshot; keeps what is selected, by key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(place + 1), f"view({place})", title, show=False)
            for place, title in enumerate(TITLES)
        ),
        Binding("L", "launch", "Launch", key_display="L", tooltip="Launch an engine"),
        Binding(
            "X",
            "act('stop')",
            "Stop",
            key_display="X",
            tooltip="Stop the selected engine, or the marked ones; asks first",
        ),
        Binding("l", "logs", "Log", tooltip="Follow the log of the selected engine"),
        Binding(
            "R",
            "act('restart')",
            "Restart",
            key_display="R",
            tooltip="Stop the selected engine and launch the same again; asks first",
        ),
        Binding(
            "F",
            "act('forget')",
            "Forget",
            key_display="F",
            tooltip="Remove the record and the log of an engine that is over; asks first",
        ),
        Binding("i", "related", "Go to", tooltip="Go to what the selected row is tied to"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape,backspace", "back", "Back", show=False),
        Binding("q", "back_or_quit", "Back/quit", tooltip="Back; at the top, quit"),
        Binding("r", "refresh", "Refresh", tooltip="Read all nodes again now"),
        Binding("y", "copy", "Copy", tooltip="Copy the row, the detail, or the log lines seen"),
        Binding(
            "colon",
            "command",
            "Commands",
            key_display=":",
            tooltip="Type a command; ctrl+p lists them with nodes and engines",
        ),
    ]
    CSS = """
    #error { display: none; background: $surface; }
    #error.-shown { display: block; }
    #views { height: 1fr; }
    """

    def __init__(self, cluster: str, clock: Callable[[], float], *, read_only: bool) -> None:
        super().__init__()
        self._cluster = cluster
        self._clock = clock
        self._read_only = read_only
        self._snapshot: FleetSnapshot | None = None
        self._book = EventBook()
        self._trail: list[tuple[str, Key | None]] = []  # where one came from, the latest last
        self._awaited: Key | None = None  # an engine just launched: selected once it is listed
        self._pacer = DrawPacer(self, self._draw)
        self._follower = LogFollower(LogPanel(clock, id=LOG_ID), self._wanted_log, self._title_of)

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield LineBar(id="header")
        yield TabBar(TITLES)
        with ContentSwitcher(initial=CLUSTER.id, id="views"):
            for spec in (CLUSTER, GPUS, FABRIC, engines_spec(self._engine_detail)):
                yield MasterDetail(spec)
            yield self.log_panel
            yield MasterDetail(PROCESSES)
            yield MasterDetail(events_spec(self._book))
            yield QueueView(QUEUE_ID, read_only=self._read_only)
        yield LineBar(id="error")
        yield KeyBar()

    def _engine_detail(self, snapshot: FleetSnapshot, key: Key, now: float) -> tuple[Line, ...]:
        log = self.log_panel
        tail = log.tail(engines.LAST_LOG_LINES) if log.subject == key else ()
        return engines.detail(snapshot, key, now, tail)

    def on_mount(self) -> None:
        """Draw the empty picture at once; ages tick from here on."""
        self.set_interval(TICK_SECONDS, self._pacer.draw_soon)
        self.redraw()
        self.log_panel.show_status()
        self.view_of(CLUSTER.id).focus_list()

    @property
    def log_panel(self) -> LogPanel:
        """The log view."""
        return self._follower.panel

    @property
    def current(self) -> str:
        """Id of the view that is shown."""
        return self.query_one(ContentSwitcher).current or CLUSTER.id

    @property
    def snapshot(self) -> FleetSnapshot | None:
        """The picture that is shown; None before the first."""
        return self._snapshot

    @property
    def is_drawn(self) -> bool:
        """Whether the latest picture is on the screen, and no drawing waits."""
        return self._snapshot is not None and self._pacer.is_idle

    def view_of(self, name: str) -> MasterDetail:
        """A numbered view by its id."""
        return self.query_one(f"#{name}", MasterDetail)

    def show_snapshot(self, snapshot: FleetSnapshot) -> None:
        """Take in a new picture, and draw what is seen of it as soon as there is time."""
        if self._snapshot is not None:
            self._book.add(find_events(self._snapshot, snapshot), self._clock())
        self._snapshot = snapshot
        self._pacer.draw_soon()

    def note(self, event: Event) -> None:
        """Write into the events what the operator did, or what came of it."""
        self._book.add((event,), self._clock())

    def redraw(self) -> None:
        """Draw header and current view now, as of now."""
        self._pacer.draw_now()

    def _draw(self) -> None:
        now = self._clock()
        value = header(
            self._snapshot, self._cluster, now, self.size.width, read_only=self._read_only
        )
        self.query_one("#header", LineBar).set_line(value)
        if self.current != LOG_ID:
            self.view_of(self.current).show(self._snapshot, now)
        self._select_awaited()
        self._show_where()

    def _show_where(self) -> None:
        # After the view, which chooses a row.
        self.query_one(TabBar).show(
            IDS.index(self.current), crumbs(self.current, self.selected_key)
        )

    def _select_awaited(self) -> None:
        if self._awaited is not None and self.current == ENGINES_ID:
            view = self.view_of(ENGINES_ID)
            if view.select(self._awaited):
                self._awaited = None

    def await_engine(self, key: Key) -> None:
        """Go to the engine view, and to this engine as soon as its node lists it."""
        self._awaited = key
        self.action_view(IDS.index(ENGINES_ID))
        self._select_awaited()

    def show_error(self, text: str) -> None:
        """Keep an error in sight until the next key `escape`."""
        bar = self.query_one("#error", LineBar)
        bar.set_line(line(span(f" ✖ {text}", Tone.ERROR), span("  (esc)", Tone.DIM)))
        bar.add_class("-shown")

    @property
    def selected_key(self) -> Key | None:
        """The key of the selected row; in the log its engine's."""
        if self.current == LOG_ID:
            return self.log_panel.subject
        return self.view_of(self.current).table.cursor_key

    def selected_engine(self) -> engines.EngineView | None:
        """The engine that a key would act on now: in the log its own, elsewhere the selected row's."""
        if self.current == LOG_ID:
            return engines.find_engine(self._snapshot, self.log_panel.subject)
        return engine_under(self._snapshot, self.current, self.selected_key)

    # --- what is told -------------------------------------------------------------------------

    def show_log(self, message: LogArrived) -> None:
        """Add a piece of log, and draw the detail that quotes it."""
        self.log_panel.add((message.node, message.chunk.engine), message.chunk)
        if self.current == ENGINES_ID:
            self.view_of(ENGINES_ID).show_detail()

    def show_log_trouble(self, message: LogInterrupted) -> None:
        """Say that the log cannot be read now."""
        reason = f"{message.error.message}; trying again"
        self.log_panel.interrupt((message.node, message.engine_id), reason)

    @on(LogView.CauseWanted)
    def _on_cause_wanted(self) -> None:
        item = engines.find_engine(self._snapshot, self.log_panel.subject)
        found = item.status.diagnosis if item else None
        if not self.log_panel.view.go_to_cause(found.message if found else ""):
            said = (
                f"{found.message} → {found.hint}" if found else "No line of this log is an error."
            )
            self.notify(said, markup=False)

    @on(Table.Selected)
    def _on_selected(self, event: Table.Selected) -> None:
        self._show_where()
        if event.table is self.view_of(ENGINES_ID).table:
            self._follower.follow_soon()

    @on(Table.Opened)
    def _on_opened(self, event: Table.Opened) -> None:
        if self.current != LOG_ID and event.table is self.view_of(self.current).table:
            self.view_of(self.current).open_detail()

    @on(TabBar.Chosen)
    def _on_chosen(self, event: TabBar.Chosen) -> None:
        self.action_view(event.place)

    # --- the log that is followed -------------------------------------------------------------

    def _wanted_log(self) -> Key | None:
        if self.current == ENGINES_ID:
            return self.view_of(ENGINES_ID).table.cursor_key
        return self.log_panel.subject if self.current == LOG_ID else None

    # --- keys ---------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Grey what a read-only console does not do."""
        del parameters
        return None if self._read_only and action in ("launch", "act") else True

    def action_view(self, place: int) -> None:
        """Show a numbered view."""
        self._trail = [self._here] if IDS[place] == LOG_ID != self.current else []
        self._open(IDS[place])

    @property
    def _here(self) -> tuple[str, Key | None]:
        return self.current, self.selected_key

    def _open(self, name: str) -> None:
        if name == LOG_ID and self.log_panel.subject is None:
            item = self.selected_engine() or self._first_engine()
            if item is not None:
                self._follower.point_at(item.key)
        self.query_one(ContentSwitcher).current = name
        self.redraw()
        if name == LOG_ID:
            self.log_panel.show_status()
            self.log_panel.focus_list()
        else:
            self.view_of(name).focus_list()
        self._follower.follow_soon()

    def _first_engine(self) -> engines.EngineView | None:
        found = engines.engines_of(self._snapshot) if self._snapshot else ()
        return found[0] if found else None

    def _title_of(self, key: Key) -> str:
        item = engines.find_engine(self._snapshot, key)
        return f"{engines.name_text(item.status) if item else key[-1]} on {key[0]}"

    def action_logs(self) -> None:
        """Show the log of the selected engine."""
        if self.current == LOG_ID:
            return
        item = self.selected_engine()
        if item is None:
            self.notify("No engine is selected: choose one in the engine view (4).", markup=False)
            return
        self.go_to(LOG_ID, item.key)

    def action_related(self) -> None:
        """List what the selected row is tied to, and go to what is chosen."""
        view, key = self._here
        event = self._book.find(key or ()) if view == EVENTS_ID else None
        places = related(self._snapshot, view, key, event)
        if not places:
            self.notify("There is nothing to go to from here.", markup=False)
            return
        title = event.subject if event else crumbs(view, key)
        self.app.push_screen(GoToScreen(title, places), self._on_place)

    def _on_place(self, place: Place | None) -> None:
        if place is not None:
            self.go_to(place.view, place.key)

    def action_launch(self, node: str = "") -> None:
        """Open the launch form, on this node; else on the selected one."""
        key = self.selected_key
        if not node and key and self.current not in (LOG_ID, EVENTS_ID, QUEUE_ID):
            node = key[0]
        self.app.push_screen(LaunchScreen(self._snapshot, node or None))

    def chosen_engines(self) -> tuple[engines.EngineView, ...]:
        """The engines that a key would act on now: the marked ones, else the selected one with all its ranks."""
        if self.current == ENGINES_ID:
            keys = self.view_of(ENGINES_ID).table.marked
            found = (engines.find_engine(self._snapshot, key) for key in keys)
            marked = tuple(item for item in found if item is not None)
            if marked:
                return marked
        item = self.selected_engine()
        return () if item is None else engines.ranks_of(self._snapshot, item)

    def action_act(self, name: str) -> None:
        """Ask about stopping, restarting or forgetting the engines chosen now, whatever moves meanwhile."""
        act, items = Act(name), self.chosen_engines()
        why_not = refusal(act, items)
        if why_not is not None:
            self.notify(why_not, severity="warning", markup=False)
            return
        self.app.push_screen(ConfirmScreen(ask_about(act, items, self._clock())), self._on_answer)

    def _on_answer(self, request: ActRequested | None) -> None:
        if request is not None:
            self.view_of(ENGINES_ID).table.clear_marks()
            self.post_message(request)

    def action_refresh(self) -> None:
        """Read all nodes again now."""
        self.post_message(RefreshRequested())

    def action_copy(self) -> None:
        """Copy the selected row, or the log lines that are seen."""
        if self.current == LOG_ID:
            text = self.log_panel.view.visible_text()
        else:
            view = self.view_of(self.current)
            text = view.pane.text if view.pane.has_focus else view.table.selected_text
        if text:
            self.app.copy_to_clipboard(text)
            self.notify("Copied. A terminal without OSC 52: shift-drag to select.", markup=False)

    def action_command(self) -> None:
        """Type a command."""
        self.post_message(CommandWanted())

    def action_help(self) -> None:
        """Show every key."""
        groups = help_groups(
            self.app.get_key_display,
            {
                "Everywhere": type(self),
                "In a list": Table,
                "List and detail": MasterDetail,
                "In the queue": QueueView,
                "In the log": LogView,
            },
            COMMANDS,
        )
        self.app.push_screen(HelpScreen(groups))

    def action_back(self) -> bool:
        """Undo the last step inwards: the error line, the open detail, the log. True if there was one."""
        bar = self.query_one("#error", LineBar)
        if bar.has_class("-shown"):
            bar.remove_class("-shown")
        elif self.current != LOG_ID and self.view_of(self.current).is_entered:
            self.view_of(self.current).focus_list()
        elif self._trail:
            view, key = self._trail.pop()
            self._show_place(view, key)
        elif self.current == LOG_ID:
            self._open(CLUSTER.id)
        else:
            return False
        return True

    def action_back_or_quit(self) -> None:
        """Back; at the top the console ends. Engines go on."""
        if not self.action_back():
            self.app.exit()

    def go_to(self, view: str, key: Key) -> None:
        """Open a view with the cursor on this key; `back` returns to where one was."""
        self._trail.append(self._here)
        self._show_place(view, key)

    def _show_place(self, view: str, key: Key | None) -> None:
        if view == LOG_ID and key is not None:
            self._follower.point_at(key)
        self._open(view)
        if view == LOG_ID:
            self._follower.follow_now()
        elif key is not None:
            self.view_of(view).select(key)
