"""The app: routes messages between feed and screens. It owns no fleet and awaits nothing of it."""

import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from llmgw_core.errors import LlmgwError, UsageError
from llmgw_tui.feed import Feed
from llmgw_tui.messages import (
    ActAccepted,
    ActionFailed,
    ActRequested,
    CommandGiven,
    CommandWanted,
    GatewaysArrived,
    GatewaysWanted,
    LaunchFailed,
    LaunchRequested,
    LaunchSucceeded,
    LogArrived,
    LogInterrupted,
    LogWanted,
    PlanArrived,
    PlanRequested,
    RefreshRequested,
    SnapshotArrived,
    SteerRequested,
)
from llmgw_tui.present.commands import Call
from llmgw_tui.present.events import Event
from llmgw_tui.present.pick import jump_targets
from llmgw_tui.present.text import Tone
from llmgw_tui.screens.command_line import CommandLine
from llmgw_tui.screens.commanding import Commander
from llmgw_tui.screens.launch import LaunchScreen
from llmgw_tui.screens.main import MainScreen
from llmgw_tui.screens.queue import QueueView
from llmgw_tui.screens.views import COMMANDS
from llmgw_tui.widgets.filters import Look
from llmgw_tui.widgets.themes import (
    DEFAULT_THEME,
    OWN_THEMES,
    THEME_NAMES,
    THEME_WITHOUT_COLOR,
)

DISCOVERED = 12
LOOK = Look()  # a terminal of today


class JumpProvider(Provider):
    """Nodes and engines by name, in the palette."""

    async def discover(self) -> Hits:
        """What is offered before a letter is typed: the first few."""
        for text, view, key in self._targets()[:DISCOVERED]:
            yield DiscoveryHit(text, partial(self._console.main.go_to, view, key))

    async def search(self, query: str) -> Hits:
        """What matches the letters typed."""
        matcher = self.matcher(query)
        for text, view, key in self._targets():
            score = matcher.match(text)
            if score > 0:
                jump = partial(self._console.main.go_to, view, key)
                yield Hit(score, matcher.highlight(text), jump, text=text)

    @property
    def _console(self) -> "LlmgwApp":
        app = self.app
        if not isinstance(app, LlmgwApp):
            raise TypeError("the palette belongs to the console")
        return app

    def _targets(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        return jump_targets(self._console.main.snapshot)


class LlmgwApp(App[None]):
    """The console."""

    TITLE = "llmgw"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - Textual declares it so
        (0, "-narrow"),
        (100, "-normal"),
        (160, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 - Textual declares it so
        (0, "-short"),
        (32, "-tall"),
    ]
    COMMANDS = App.COMMANDS | {JumpProvider}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        feed: Feed,
        cluster: str,
        *,
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
        look: Look = LOOK,
    ) -> None:
        # Without colour the theme must keep to the terminal's own: of others Textual makes greys.
        super().__init__(ansi_color=None if look.colors else True)
        self._look = look
        self._feed = feed
        self._read_only = read_only
        self.animation_level = "none"
        for theme in OWN_THEMES:
            self.register_theme(theme)
        self.theme = DEFAULT_THEME if look.colors else THEME_WITHOUT_COLOR
        self.main = MainScreen(cluster, clock, read_only=read_only)
        self._commander = Commander(self.main, THEME_NAMES, {"theme": self._change_theme})

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line is passed through; Textual's own filter for NO_COLOR leaves no cursor to see."""
        given = super().get_line_filters() if self._look.colors else ()
        return (*given, *self._look.filters)

    def _change_theme(self, words: Sequence[str]) -> None:
        if not self._look.colors:
            self.notify("NO_COLOR is set: there are no colours to choose.", severity="warning")
        elif not words[0]:
            self.notify(f"{self.theme}; there are {', '.join(THEME_NAMES)}.", markup=False)
        else:
            self.theme = words[0]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours that no theme of Textual knows."""
        return {"tone-dim": "#7f8598"}

    def on_mount(self) -> None:
        """Show the console and begin to watch."""
        self.push_screen(self.main)
        self._work(self._feed.watch(self.post_message), "watch")

    def _work(
        self, coroutine: Coroutine[Any, Any, None], group: str, *, exclusive: bool = True
    ) -> None:
        """Run a method of the feed; whatever it raises is shown, and ends nothing else."""
        self.run_worker(coroutine, group=group, exclusive=exclusive, exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that died of an error of llmgw itself: say so."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            error, group = event.worker.error, event.worker.group
            text = f"{group}: {type(error).__name__}: {error} (a bug in llmgw)"
            form = self._launch_form()
            if form is not None and group in ("plan", "launch"):
                form.show_trouble(LlmgwError(text))
            else:
                self._complain(text)

    def _tell(self, text: str) -> None:
        """Say what came of something the operator did, and keep it among the events."""
        self.notify(text, markup=False)
        self.main.note(Event("you", "", "", text, Tone.ACCENT))

    def _complain(self, text: str) -> None:
        self.main.note(Event("you", "", "", text, Tone.ERROR))
        self.notify(text, severity="error", markup=False)
        self.main.show_error(text)

    # --- from the feed ------------------------------------------------------------------------

    @on(SnapshotArrived)
    def _on_snapshot(self, event: SnapshotArrived) -> None:
        self.main.show_snapshot(event.snapshot)
        form = self._launch_form()
        if form is not None:
            form.update_snapshot(event.snapshot)

    @on(PlanArrived)
    def _on_plan(self, event: PlanArrived) -> None:
        form = self._launch_form()
        if form is not None:
            form.show_plan(event.number, event.plan, event.error)

    def _launch_form(self) -> LaunchScreen | None:
        return next((item for item in self.screen_stack if isinstance(item, LaunchScreen)), None)

    @on(LaunchSucceeded)
    def _on_launched(self, event: LaunchSucceeded) -> None:
        form = self._launch_form()
        if form is not None and self.screen is form:
            form.dismiss(None)
        if event.engines:
            first = event.plan.ranks[0]
            self.main.await_engine((first.node, first.engine_id))
        self._tell(f"{event.plan.request.name} was started; it loads now.")

    @on(LaunchFailed)
    def _on_launch_failed(self, event: LaunchFailed) -> None:
        form = self._launch_form()
        if form is not None:
            form.show_failure(event.error)
        else:
            self._complain(f"launch {event.plan.request.name}: {event.error}")

    @on(ActAccepted)
    def _on_accepted(self, event: ActAccepted) -> None:
        self._tell(event.said)

    @on(ActionFailed)
    def _on_failed(self, event: ActionFailed) -> None:
        self._complain(f"{event.action}: {event.error}")

    @on(LogArrived)
    def _on_log(self, event: LogArrived) -> None:
        self.main.show_log(event)

    @on(LogInterrupted)
    def _on_log_trouble(self, event: LogInterrupted) -> None:
        self.main.show_log_trouble(event)

    @on(GatewaysArrived)
    def _on_gateways(self, event: GatewaysArrived) -> None:
        self.main.query_one(QueueView).take(event.picture)

    # --- to the feed --------------------------------------------------------------------------

    @on(PlanRequested)
    def _on_plan_wanted(self, event: PlanRequested) -> None:
        self._work(self._feed.plan(event.number, event.request, self.post_message), "plan")

    @on(LaunchRequested)
    def _on_launch_wanted(self, event: LaunchRequested) -> None:
        if self._refuse("launch"):
            return
        self._work(self._feed.launch(event.plan, self.post_message), "launch", exclusive=False)

    @on(ActRequested)
    def _on_act_wanted(self, event: ActRequested) -> None:
        if self._refuse(event.act):
            return
        doing = self._feed.act(event.act, event.targets, self.post_message)
        self._work(doing, event.act, exclusive=False)

    @on(GatewaysWanted)
    def _on_gateways_wanted(self, event: GatewaysWanted) -> None:
        self.workers.cancel_group(self, "gateways")
        if event.wanted:
            self._work(self._feed.watch_gateways(self.post_message), "gateways")

    @on(SteerRequested)
    def _on_steer_wanted(self, event: SteerRequested) -> None:
        if not self._refuse(event.verb):
            self._work(self._feed.steer(event, self.post_message), "steer", exclusive=False)

    def _refuse(self, action: str) -> bool:
        """Whether this console only looks; says so."""
        if self._read_only:
            error: LlmgwError = UsageError(
                "this console is read-only", fix="start it without --read-only"
            )
            self._complain(f"{action}: {error}")
        return self._read_only

    @on(LogWanted)
    def _on_log_wanted(self, event: LogWanted) -> None:
        self.workers.cancel_group(self, "log")
        if event.node is not None and event.engine_id is not None:
            follow = self._feed.follow_log(
                event.node, event.engine_id, event.offset, self.post_message
            )
            self._work(follow, "log")

    @on(RefreshRequested)
    def _on_refresh_wanted(self) -> None:
        self._work(self._feed.refresh(self.post_message), "refresh")

    # --- palette ------------------------------------------------------------------------------

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The same commands as after `:`, from the same table; those that need a word open the line."""
        if screen is not self.main:
            yield SystemCommand("quit", "leave the console; engines go on", self.action_quit)
            return
        for command in COMMANDS:
            if not (command.changes and self._read_only):
                message: Message = CommandWanted(f"{command.name} ")
                if not command.needs_words:
                    message = CommandGiven(command.name, ("",) * len(command.arguments))
                run = partial(self.post_message, message)
                yield SystemCommand(command.usage[1:], command.says, run)

    @on(CommandWanted)
    def _on_command_wanted(self, event: CommandWanted) -> None:
        line = CommandLine(
            COMMANDS, self._commander.vocabulary(), event.begin, read_only=self._read_only
        )
        self.push_screen(line, self._on_command_typed)

    def _on_command_typed(self, call: Call | None) -> None:
        if call is not None:
            self._commander.run(call.command.name, call.words)

    @on(CommandGiven)
    def _on_command_given(self, event: CommandGiven) -> None:
        self._commander.run(event.name, event.words)
