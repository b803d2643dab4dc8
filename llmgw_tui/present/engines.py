"""The engine view: every engine of the cluster, how far it is, and why it ended. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmgw_core.domain.deployment import deployment_id, sum_up
from llmgw_core.domain.engine import EngineExit, EngineState, EngineStatus
from llmgw_core.domain.inventory import Contact, FleetSnapshot, NodeView
from llmgw_tui.present.detail import BLANK, age_text, away_note, fact, heading, is_waiting
from llmgw_tui.present.states import seen_state
from llmgw_tui.present.table import Column, Key, Row
from llmgw_tui.present.text import Line, Tone, bar, fit, line, span
from llmgw_tui.present.units import format_percent, format_uptime

BAR_CELLS = 10
RANK_STATE_CELLS = 13
LAST_LOG_LINES = 8
COLUMNS = (
    Column("NAME", least=8, most=32, keep=9),
    Column("STATE", least=13, most=17, keep=9),
    Column("PHASE", least=15, most=32, keep=7),
    Column("NODE", least=8, most=24, keep=8),
    Column("GPUS", least=4, most=16, keep=6),
    Column("UP", least=3, most=7, keep=6, right=True),
    Column("URL", least=21, most=36, keep=5),
    Column("ENGINE", least=6, most=7, keep=4),
    Column("MODEL", least=12, most=44, keep=3),
    Column("PID", least=5, most=8, keep=2, right=True),
)


@dataclass(frozen=True)
class EngineView:
    """An engine with the node it is on, as seen from here."""

    status: EngineStatus
    node: NodeView

    @property
    def key(self) -> Key:
        """(node, engine id): what an action on it is aimed at."""
        return (self.node.node.name, self.status.id)


def engines_of(snapshot: FleetSnapshot) -> tuple[EngineView, ...]:
    """All engines by node, those that are over after those that live."""
    found = [EngineView(status, view) for view in snapshot.nodes for status in view.node.engines]
    return tuple(sorted(found, key=lambda item: item.status.state.is_over))


def find_engine(snapshot: FleetSnapshot | None, key: Key | None) -> EngineView | None:
    """The engine of that key, None when it is not there."""
    if snapshot is None or key is None:
        return None
    return next((item for item in engines_of(snapshot) if item.key == key), None)


def rows(snapshot: FleetSnapshot, now: float) -> tuple[Row, ...]:
    """One row an engine (one rank of one)."""
    return tuple(_row(item, now) for item in engines_of(snapshot))


def _row(item: EngineView, now: float) -> Row:
    status, contact = item.status, item.node.contact
    row = Row(
        item.key,
        (
            line(span(name_text(status), Tone.STRONG)),
            seen_state(status, contact).cell,
            phase_cell(status),
            line(item.node.node.name),
            line(span(",".join(map(str, status.gpus))) if status.gpus else span("CPU", Tone.DIM)),
            line(span(None) if status.state.is_over else format_uptime(status.started_at, now)),
            line(span(status.url)),
            line(status.engine.value),
            line(span(status.model, Tone.DIM)),
            line(span(status.pid, Tone.DIM)),
        ),
    )
    return row.as_dim() if contact is not Contact.CONNECTED or status.state.is_over else row


def name_text(status: EngineStatus) -> str:
    """The name, with the rank where there are several."""
    return status.name if status.ranks == 1 else f"{status.name} {status.rank + 1}/{status.ranks}"


def phase_cell(status: EngineStatus) -> Line:
    """What it is doing: a bar while it loads, else the phase, or how it ended."""
    if status.state.is_over:
        return _end_cell(status)
    if status.progress is not None and status.state is EngineState.LOADING:
        drawn = f"{bar(status.progress, BAR_CELLS)} {format_percent(status.progress)}"
        return line(span(drawn, Tone.BUSY), span(f" {status.phase or ''}", Tone.DIM))
    return line(span(status.phase))


def _end_cell(status: EngineStatus) -> Line:
    if status.diagnosis is not None:
        return line(span(status.diagnosis.code, Tone.ERROR))
    if status.exit is None:
        return line(span(None))
    tone = Tone.ERROR if status.state is EngineState.FAILED else Tone.DIM
    return line(span(exit_text(status.exit), tone))


def exit_text(end: EngineExit) -> str:
    """`exited, code 1` or `killed, signal 9`."""
    parts = [end.reason]
    if end.code is not None:
        parts.append(f"code {end.code}")
    if end.signal is not None:
        parts.append(f"signal {end.signal}")
    return ", ".join(parts)


def detail(
    snapshot: FleetSnapshot, key: Key, now: float, log_tail: Sequence[Line] = ()
) -> tuple[Line, ...]:
    """Everything known of one engine: why it failed first, then what it is, then the end of its log."""
    item = find_engine(snapshot, key)
    if item is None:
        return (line(span(f"{key[-1]} is no longer listed on {key[0]}.", Tone.DIM)),)
    status = item.status
    state = seen_state(status, item.node.contact)
    lines: list[Line] = [
        line(span(name_text(status), Tone.TITLE), "  ", *state.cell),
        *_away_lines(item, now),
        *_diagnosis_lines(status),
        BLANK,
        *_rank_lines(snapshot, item),
        *_fact_lines(item, now),
        BLANK,
        heading("Log"),
        *(log_tail or [line(span("  nothing yet: l opens the whole log", Tone.DIM))]),
    ]
    return tuple(lines)


def ranks_of(snapshot: FleetSnapshot | None, item: EngineView) -> tuple[EngineView, ...]:
    """All ranks of the engine that this is one of, as far as their nodes list them."""
    if item.status.ranks == 1 or snapshot is None:
        return (item,)
    launch = deployment_id(item.status)
    return tuple(other for other in engines_of(snapshot) if deployment_id(other.status) == launch)


def _rank_lines(snapshot: FleetSnapshot, item: EngineView) -> list[Line]:
    """The ranks of the launch side by side, with what each is at; nothing for an engine on one node."""
    if item.status.ranks == 1:
        return []
    ranks = sorted(ranks_of(snapshot, item), key=lambda one: one.status.rank)
    whole = sum_up([(one.node.node.name, one.status) for one in ranks])
    widest = max(len(one.node.node.name) for one in ranks)
    lines = [heading(f"{item.status.ranks} ranks: {whole.state.value}")]
    for one in ranks:
        mark = "▸" if one.key == item.key else " "
        state = fit(line(*seen_state(one.status, one.node.contact).cell), RANK_STATE_CELLS)
        name = f"{one.node.node.name:<{widest}}"
        lines.append(
            line(f"{mark} {one.status.rank}  {name}  ", *state, "  ", *phase_cell(one.status))
        )
    missing = item.status.ranks - len(ranks)
    if missing > 0:
        lines.append(
            line(span(f"  {missing} not heard of: their nodes do not list them", Tone.WARN))
        )
    return [*lines, BLANK]


def _away_lines(item: EngineView, now: float) -> list[Line]:
    if item.node.contact is Contact.CONNECTED:
        return []
    age = age_text(item.node, now) or "never"
    text = f"◌ {item.node.node.name} does not answer: last seen {age} ago; it may well be serving"
    return [line(span(text, Tone.WARN))]


def _diagnosis_lines(status: EngineStatus) -> list[Line]:
    found = status.diagnosis
    if found is None:
        return []
    return [
        line(span(f"✖ {found.message}", Tone.ERROR), span(f"  [{found.code}]", Tone.DIM)),
        line(span(f"→ {found.hint}", Tone.STRONG)),
    ]


def _fact_lines(item: EngineView, now: float) -> list[Line]:
    status = item.status
    gpus = ", ".join(map(str, status.gpus)) if status.gpus else "none (CPU)"
    lines = [
        fact("phase", *phase_cell(status)),
        fact("node", item.node.node.name, f", GPUs {gpus}"),
        fact("url", span(status.url, Tone.ACCENT) if status.url else span(None)),
        fact("serves", span(status.served_model_name)),
        fact("model", span(status.model)),
        fact("engine", f"{status.engine.value}, id {status.id}"),
        fact("pid", span(status.pid), ", adopted from an earlier agent" if status.adopted else ""),
        fact("started", span(status.started_at), f" ({format_uptime(status.started_at, now)} ago)"),
    ]
    if status.exit is not None:
        lines.append(fact("ended", exit_text(status.exit)))
    return lines


def empty(snapshot: FleetSnapshot | None) -> tuple[Line, ...]:
    """What stands in place of the table when it has no row."""
    if is_waiting(snapshot):
        return (line(span("No engine is known yet: waiting for nodes to answer.", Tone.DIM)),)
    return (
        heading("No engines"),
        line("Nothing runs on these nodes that llmgw started: press L to launch an engine."),
        *away_note(snapshot),
    )
