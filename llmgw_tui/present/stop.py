"""What a stop is aimed at, what is lost by it, and how much it asks before it acts. Pure."""

from dataclasses import dataclass

from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.inventory import Contact
from llmgw_tui.present.detail import BLANK, fact
from llmgw_tui.present.engines import EngineView, name_text
from llmgw_tui.present.states import seen_state
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.present.units import format_uptime

_SERVING = (EngineState.READY, EngineState.UNREADY)


@dataclass(frozen=True)
class StopTarget:
    """The engine as it was when the key was pressed; the id names this start of it and no other."""

    node: str
    engine_id: str
    name: str
    must_type_name: bool
    lines: tuple[Line, ...]


def refusal(item: EngineView | None) -> str | None:
    """Why there is nothing to stop; None when there is."""
    if item is None:
        return "No engine is selected: choose one in the engine view (4)."
    if item.status.state.is_over:
        return f"{item.status.name} is over already: nothing of it runs."
    return None


def stop_target(item: EngineView, now: float) -> StopTarget:
    """What the dialog shows. An engine that serves asks for its name, any other for enter."""
    status = item.status
    return StopTarget(
        node=item.node.node.name,
        engine_id=status.id,
        name=status.name,
        must_type_name=status.state in _SERVING or status.ready,
        lines=(
            fact("engine", span(name_text(status), Tone.STRONG), f"  ({status.id})"),
            fact("node", item.node.node.name),
            fact("pid", span(status.pid)),
            fact("state", *seen_state(status, item.node.contact).cell),
            fact("up", format_uptime(status.started_at, now)),
            BLANK,
            *_loss_lines(item),
        ),
    )


def _loss_lines(item: EngineView) -> tuple[Line, ...]:
    status = item.status
    gpus = f"That frees GPU {', '.join(map(str, status.gpus))}." if status.gpus else ""
    if status.state in _SERVING:
        said = (
            f"It serves {status.served_model_name} at {status.url}: requests in flight are cut off."
        )
        tone = Tone.WARN
    elif status.state in (EngineState.ORPHANS, EngineState.STUCK):
        said, tone = "What is left of it is killed.", Tone.NORMAL
    else:
        said, tone = "It serves nothing yet; what it loaded is lost.", Tone.NORMAL
    how = "It is asked to end (SIGTERM), and killed when its grace is over."
    lines = [line(span(said, tone)), line(span(how, Tone.DIM))]
    if gpus:
        lines.append(line(span(gpus, Tone.DIM)))
    if item.node.contact is not Contact.CONNECTED:
        text = f"{item.node.node.name} does not answer now: the stop will fail unless it is back."
        lines.append(line(span(f"▲ {text}", Tone.WARN)))
    return tuple(lines)
