"""The launch form, with the plan beside it: what is shown is what will run."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Button, Checkbox, Input, Label, Select, SelectionList

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.launch import LaunchPlan
from llmgw_core.errors import LlmgwError
from llmgw_tui.messages import LaunchRequested, PlanRequested
from llmgw_tui.present.detail import BLANK
from llmgw_tui.present.launch_form import (
    LaunchForm,
    class_options,
    gpu_options,
    node_options,
    read_form,
)
from llmgw_tui.present.plan import is_launchable, plan_lines
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.widgets.checks import MarkedCheckbox, MarkedList
from llmgw_tui.widgets.still_input import StillInput
from llmgw_tui.widgets.toned import LineBar, Pane

PLAN_DELAY_SECONDS = 0.3
_TEXT_FIELDS = {
    "name": ("Name", "how you and its clients call it"),
    "model": ("Model", "path on the node, or hub name"),
    "gpu_count": ("GPUs", "count; empty: as many as TP"),
    "tensor_parallel": ("TP", "tensor parallel; empty: all its GPUs"),
    "port": ("Port", "empty: the first free from 8000"),
    "venv": ("Venv", "empty: the node's own"),
    "args": ("Arguments", "passed on to the engine"),
    "over": ("Nodes", "several: how many, or n1,n2"),
    "settings": ("Settings", "max_model_len=4096 env.NAME=x …"),
}


class LaunchScreen(ModalScreen[None]):
    """Plans as one types; launches the plan that is seen, and nothing else."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel"),
        Binding("f5", "launch", "Launch"),
    ]
    CSS_PATH = "launch.tcss"

    def __init__(self, snapshot: FleetSnapshot | None, node: str | None) -> None:
        super().__init__()
        self._snapshot = snapshot
        options = [value for _, value in node_options(snapshot)]
        self._node = node if node in options else None
        self._number = 0
        self._plan: LaunchPlan | None = None
        self._timer: Timer | None = None
        self._is_launching = False
        self._seen = LaunchForm()
        self._failure: tuple[Line, ...] = ()  # why the last launch did not happen

    def compose(self) -> ComposeResult:
        """Form, plan, buttons."""
        with Container(id="launch") as box:
            box.border_title = "Launch an engine"
            box.border_subtitle = "F5 launches · tab next field · esc cancels"
            with Horizontal(id="launch-body"):
                with VerticalScroll(id="launch-form", can_focus=False):
                    yield from self._compose_form()
                yield Pane(id="launch-plan")
            yield LineBar(id="launch-said")
            with Horizontal(id="launch-buttons"):
                yield Button("Launch (F5)", id="go", variant="primary", compact=True, disabled=True)
                yield Button("Cancel (esc)", id="cancel", compact=True)

    def _compose_form(self) -> ComposeResult:
        yield from self._text_row("name")
        with Horizontal(classes="row"):
            yield Label("Engine")
            kinds = [(kind.value, kind.value) for kind in EngineKind]
            yield Select(kinds, id="engine", allow_blank=False, compact=True)
        yield from self._text_row("model")
        with Horizontal(classes="row"):
            yield Label("Node")
            options = [(Content(text), value) for text, value in node_options(self._snapshot)]
            yield Select(
                options,
                id="node",
                prompt="any that fits",
                compact=True,
                value=Select.NULL if self._node is None else self._node,
            )
        yield from self._text_row("over")
        with Horizontal(classes="row"):
            yield Label("Class")
            classes = [(Content(text), value) for text, value in class_options(self._snapshot)]
            yield Select(classes, id="class", prompt="any", compact=True)
        yield from self._text_row("gpu_count")
        with Horizontal(classes="row", id="gpus-row"):
            yield Label("or pick")
            yield MarkedList(id="gpus", compact=True)
        for name in ("tensor_parallel", "port", "venv", "args", "settings"):
            yield from self._text_row(name)
        with Horizontal(classes="row"):
            yield Label("Ready")
            yield MarkedCheckbox("after one token came back", value=True, id="verify", compact=True)

    def _text_row(self, name: str) -> ComposeResult:
        title, hint = _TEXT_FIELDS[name]
        with Horizontal(classes="row"):
            yield Label(title)
            yield StillInput(id=name, placeholder=hint, compact=True)
        yield Label("", id=f"{name}-error", classes="error", markup=False)

    def on_mount(self) -> None:
        """Start in the first field."""
        self._fill_gpus()
        self._seen = self._form()
        self.query_one("#name", Input).focus()
        self._say(line(span("Fill in name and model: the plan appears beside.", Tone.DIM)))

    def update_snapshot(self, snapshot: FleetSnapshot) -> None:
        """Offer the nodes that answer by now; what was chosen stays chosen."""
        before = [value for _, value in node_options(self._snapshot)]
        self._snapshot = snapshot
        options = node_options(snapshot)
        names = [value for _, value in options]
        if names == before or (self._node is not None and self._node not in names):
            return
        chooser = self.query_one("#node", Select)
        with self.prevent(Select.Changed):
            chooser.set_options([(Content(text), value) for text, value in options])
            if self._node is not None:
                chooser.value = self._node

    @property
    def plan_text(self) -> str:
        """What the plan pane says."""
        return self.query_one("#launch-plan", Pane).text

    def _fill_gpus(self) -> None:
        choices = gpu_options(self._snapshot, self._node)
        self.query_one("#gpus-row").display = bool(choices)
        picker = self.query_one("#gpus", SelectionList)
        picker.clear_options()
        picker.add_options([(Content(text), index) for text, index in choices])

    def _form(self) -> LaunchForm:
        chosen = self.query_one("#class", Select).value
        text = {name: self.query_one(f"#{name}", Input).value for name in _TEXT_FIELDS}
        return LaunchForm(
            engine=str(self.query_one("#engine", Select).value),
            node=self._node,
            gpus=tuple(self.query_one("#gpus", SelectionList).selected),
            gpu_class=None if chosen is Select.NULL else str(chosen),
            verify=self.query_one("#verify", Checkbox).value,
            **text,
        )

    @on(Select.Changed, "#node")
    def _on_node(self, event: Select.Changed) -> None:
        node = None if event.value is Select.NULL else str(event.value)
        if node != self._node:
            self._node = node
            self._fill_gpus()

    @on(Input.Changed)
    @on(Select.Changed)
    @on(SelectionList.SelectedChanged)
    @on(Checkbox.Changed)
    def _on_changed(self) -> None:
        """Whatever was planned is not what the form says any more; widgets also tell of changes that are none."""
        form = self._form()
        if form == self._seen:
            return
        self._seen = form
        self._number += 1
        self._failure = ()
        self._set_plan(None)
        self._show_errors(form)
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(PLAN_DELAY_SECONDS, self._ask_plan)

    def _show_errors(self, form: LaunchForm) -> bool:
        """Say in place what cannot be read; True when nothing is wrong."""
        errors = read_form(form).errors
        for name in _TEXT_FIELDS:
            text = errors.get(name, "")
            label = self.query_one(f"#{name}-error", Label)
            shown = text and not (text == "needed" and not getattr(form, name))
            label.update(f"✖ {text}" if shown else "")
            label.display = bool(shown)
        return not errors

    def _ask_plan(self) -> None:
        reading = read_form(self._form())
        if reading.request is None:
            missing = [_TEXT_FIELDS[name][0].lower() for name in reading.errors]
            self._say(line(span(f"Still to fill in or correct: {', '.join(missing)}", Tone.DIM)))
            self._show_lines(())
            return
        self._say(line(span("planning…", Tone.DIM)))
        self.post_message(PlanRequested(self._number, reading.request))

    def show_plan(self, number: int, plan: LaunchPlan | None, error: LlmgwError | None) -> None:
        """Take in an answer, if it is to the latest question."""
        if number != self._number:
            return
        if plan is None:
            text = str(error) if error else "no plan"
            self._show_lines((line(span(f"✖ {text}", Tone.ERROR)),))
            self._say(line(span("There is no plan for this.", Tone.ERROR)))
            return
        self._set_plan(plan)
        self._show_lines(plan_lines(plan))
        self._say(
            line(
                span(
                    "Exactly what is shown will run."
                    if is_launchable(plan)
                    else "Correct what the plan says first.",
                    Tone.DIM,
                )
            )
        )

    def show_trouble(self, error: LlmgwError) -> None:
        """Planning or launching broke down: say so, and wait for another try."""
        self._is_launching = False
        self._set_plan(None)
        self._failure = (line(span(f"✖ {error}", Tone.ERROR)), BLANK)
        self._show_lines(())
        self._say(line(span("Change something, or cancel.", Tone.DIM)))

    def show_failure(self, error: LlmgwError) -> None:
        """The launch did not happen: say why here, and plan anew: a port or a GPU may be gone since."""
        self._is_launching = False
        self._failure = (line(span(f"✖ {error}", Tone.ERROR)), BLANK)
        self._set_plan(None)
        self._show_lines(())
        self._number += 1
        self._ask_plan()

    def _show_lines(self, lines: tuple[Line, ...]) -> None:
        self.query_one("#launch-plan", Pane).set_lines((*self._failure, *lines), top=True)

    def _set_plan(self, plan: LaunchPlan | None) -> None:
        self._plan = plan
        self.query_one("#go", Button).disabled = self._is_launching or not is_launchable(plan)

    def _say(self, value: Line) -> None:
        self.query_one("#launch-said", LineBar).set_line((span(" "), *value))

    @on(Button.Pressed, "#go")
    def action_launch(self) -> None:
        """Carry out the plan that is shown, once."""
        if self._is_launching or self._plan is None or not is_launchable(self._plan):
            return
        self._is_launching = True
        self._failure = ()
        self._set_plan(self._plan)
        self._say(line(span("launching…", Tone.BUSY)))
        self.post_message(LaunchRequested(self._plan))

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        """Close the form; nothing was started."""
        self.dismiss(None)
