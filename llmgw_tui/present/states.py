"""States as glyph and word, with a tone: never a colour alone. Pure."""

from typing import NamedTuple

from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import Contact, NodeView
from llmgw_tui.present.text import Line, Span, Tone, line, span
from llmgw_tui.present.units import format_percent


class State(NamedTuple):
    """A glyph, a word and a tone that say the same."""

    glyph: str
    word: str
    tone: Tone

    @property
    def cell(self) -> Line:
        """Glyph and word as a cell."""
        return line(span(f"{self.glyph} {self.word}", self.tone))


_ENGINE = {
    EngineState.PENDING: State("○", "pending", Tone.DIM),
    EngineState.STARTING: State("◔", "starting", Tone.BUSY),
    EngineState.LOADING: State("◐", "loading", Tone.BUSY),
    EngineState.READY: State("●", "ready", Tone.OK),
    EngineState.UNREADY: State("▲", "unready", Tone.WARN),
    EngineState.STOPPING: State("◓", "stopping", Tone.BUSY),
    EngineState.STOPPED: State("○", "stopped", Tone.DIM),
    EngineState.FAILED: State("✖", "failed", Tone.ERROR),
    EngineState.ORPHANS: State("✖", "orphans", Tone.ERROR),
    EngineState.STUCK: State("✖", "stuck", Tone.ERROR),
    EngineState.UNKNOWN: State("?", "unknown", Tone.WARN),
    EngineState.UNREACHABLE: State("◌", "unreachable", Tone.DIM),
}
_ENGINE_ORDER = tuple(_ENGINE)
# Faults that wait for a person, and the words for them; the rest is a matter of retrying.
_FOR_A_PERSON = {
    "host-key-unknown": "host key?",
    "host-key-changed": "host key!",
    "auth": "no login",
    "no-python": "no python",
    "home-unwritable": "home r/o",
    "disk-full": "disk full",
    "bootstrap": "no agent",
    "protocol": "protocol",
    "dns": "no such name",
}
# The worst first.
_GPU_TROUBLE = (
    ("fault", State("✖", "GPU fault", Tone.ERROR)),
    ("held", State("▲", "GPU held", Tone.WARN)),
    ("warning", State("▲", "GPU warning", Tone.WARN)),
)
_AWAY = {
    "timeout": "timeout",
    "refused": "refused",
    "dropped": "dropped",
    "login-cut": "login cut",
}


def engine_state(status: EngineStatus) -> State:
    """The state of one engine."""
    return _ENGINE[status.state]


def seen_state(status: EngineStatus, contact: Contact) -> State:
    """The state of an engine as seen from here: on a node that does not answer it is the last one known."""
    state = engine_state(status)
    if contact is Contact.CONNECTED or status.state.is_over:
        return state
    return State("◌", f"was {state.word}", Tone.DIM)


def engine_state_of_name(state: EngineState) -> State:
    """The look of an engine state by itself, for counts."""
    return _ENGINE[state]


def engine_order(state: EngineState) -> int:
    """The place of a state in the life of an engine, for counts in a fixed order."""
    return _ENGINE_ORDER.index(state)


def engine_cell(status: EngineStatus, contact: Contact) -> Line:
    """State and, while it loads, how far: `◐ loading 42 %`."""
    state = seen_state(status, contact)
    if status.progress is None or status.state is not EngineState.LOADING:
        return state.cell
    return (*state.cell, span(f" {format_percent(status.progress)}", state.tone))


def node_state(view: NodeView) -> State:
    """The state of a node: its connection first, then the worst of its GPUs."""
    if view.contact is Contact.CONNECTING:
        return State("◌", "connecting", Tone.DIM)
    if view.contact is Contact.UNREACHABLE:
        return _away_state(view)
    if view.node.error is not None:
        return State("▲", "partial", Tone.WARN)
    states = {gpu_state(gpu).word for gpu in view.node.gpus}
    for word, state in _GPU_TROUBLE:
        if word in states:
            return state
    return State("●", "up", Tone.OK)


def _away_state(view: NodeView) -> State:
    code = view.node.error.code if view.node.error else ""
    if code in _FOR_A_PERSON:
        return State("✖", _FOR_A_PERSON[code], Tone.ERROR)
    return State("◌", _AWAY.get(code, "unreachable"), Tone.WARN)


def gpu_state(gpu: Gpu) -> State:
    """The state of a GPU: a fault, an engine of ours, something else's memory, or free."""
    errors = {flag.code for flag in gpu.health if flag.severity is Severity.ERROR}
    if errors - {"memory-held"}:
        return State("✖", "fault", Tone.ERROR)
    if gpu.engine is not None:
        return State("■", "engine", Tone.ACCENT)
    if errors:
        return State("▲", "held", Tone.WARN)
    if any(flag.severity is Severity.WARNING for flag in gpu.health):
        return State("▲", "warning", Tone.WARN)
    if not gpu.available:
        return State("?", "unknown", Tone.WARN)
    return State("□", "free", Tone.OK)


def gpu_strip(gpus: tuple[Gpu, ...], most: int = 16) -> Line:
    """One glyph a GPU, in order; what does not fit is counted."""
    glyphs = [Span(state.glyph, state.tone) for state in map(gpu_state, gpus[:most])]
    if len(gpus) > most:
        glyphs.append(span(f"+{len(gpus) - most}", Tone.DIM))
    return tuple(glyphs)


def severity_state(severity: Severity) -> State:
    """The look of a finding."""
    return {
        Severity.ERROR: State("✖", "error", Tone.ERROR),
        Severity.WARNING: State("▲", "warning", Tone.WARN),
        Severity.INFO: State("·", "note", Tone.DIM),
    }[severity]
