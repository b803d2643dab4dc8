"""What is done to engines: what it is aimed at, what is lost by it, and how much it asks before it acts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from llmgw_core.domain.deployment import deployment_id
from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.inventory import Contact
from llmgw_tui.present.detail import BLANK, fact
from llmgw_tui.present.engines import EngineView, name_text
from llmgw_tui.present.states import seen_state
from llmgw_tui.present.table import Key
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.present.units import count_of, format_uptime

_SERVING = (EngineState.READY, EngineState.UNREADY)
_REMAINS = (EngineState.ORPHANS, EngineState.STUCK)


class Act(StrEnum):
    """What a person can do to engines that are there."""

    STOP = "stop"
    RESTART = "restart"
    FORGET = "forget"


# Title, what enter does, what escape does, for one and for several.
_WORDS = {
    Act.STOP: ("Stop", "stops", "keeps running what runs"),
    Act.RESTART: ("Restart", "restarts", "leaves everything as it is"),
    Act.FORGET: ("Forget", "forgets", "keeps the records"),
}


@dataclass(frozen=True)
class Ask:
    """The engines as they were when the key was pressed; an id names one start of an engine and no other.

    Attributes:
        targets: (node, engine id) of each.
        typed: what must be typed before it is done; None: enter is enough.
        why: why it must be typed.
    """

    act: StrEnum
    targets: tuple[Key, ...]
    title: str
    typed: str | None
    why: str
    does: str
    else_does: str
    lines: tuple[Line, ...]


def refusal(act: Act, items: Sequence[EngineView]) -> str | None:
    """Why there is nothing to do it to; None when there is."""
    if not items:
        return "No engine is selected: choose one in the engine view (4)."
    for item in items:
        status = item.status
        if act is Act.STOP and status.state.is_over:
            return f"{status.name} is over already: nothing of it runs."
        if act is Act.FORGET and not status.state.is_over:
            return f"{status.name} is {status.state.value}: stop it first (X), then forget it."
        if act is Act.RESTART and status.state in (*_REMAINS, EngineState.UNKNOWN):
            return f"{status.name} is {status.state.value}: stop it first (X), then launch it (L)."
    if act is Act.RESTART and len({deployment_id(item.status) for item in items}) > 1:
        return "Restart one engine at a time: each must fit again where it was."
    return None


def ask_about(act: Act, items: Sequence[EngineView], now: float) -> Ask:
    """What the dialog shows. Whatever serves asks for its name, several ask for their number, else enter is enough."""
    names = sorted({item.status.name for item in items})
    serving = [item for item in items if item.status.state in _SERVING or item.status.ready]
    typed, why = None, ""
    if len({deployment_id(item.status) for item in items}) > 1:
        typed, why = f"{act} {len(items)}", f"These are {len(items)} engines."
    elif serving and act is not Act.FORGET:
        typed, why = names[0], "It is serving."
    title, does, else_does = _WORDS[act]
    many = len(items) > 1
    lines = _many_lines(items) if many else _one_lines(items[0], now)
    return Ask(
        act=act,
        targets=tuple(item.key for item in items),
        title=f"{title} {count_of(len(items), 'engine') if many else 'an engine'}",
        typed=typed,
        why=why,
        does=f"{does} {'them' if many else 'it'}",
        else_does=else_does,
        lines=(*lines, BLANK, *_loss_lines(act, items, len(serving))),
    )


def _one_lines(item: EngineView, now: float) -> tuple[Line, ...]:
    status = item.status
    return (
        fact("engine", span(name_text(status), Tone.STRONG), f"  ({status.id})"),
        fact("node", item.node.node.name),
        fact("pid", span(status.pid)),
        fact("state", *seen_state(status, item.node.contact).cell),
        fact("up", format_uptime(None if status.state.is_over else status.started_at, now)),
    )


def _many_lines(items: Sequence[EngineView]) -> tuple[Line, ...]:
    return tuple(
        line(
            span(name_text(item.status), Tone.STRONG),
            f" on {item.node.node.name}  ",
            *seen_state(item.status, item.node.contact).cell,
            span(f"  {item.status.id}", Tone.DIM),
        )
        for item in items
    )


def _loss_lines(act: Act, items: Sequence[EngineView], serving: int) -> tuple[Line, ...]:
    if act is Act.FORGET:
        lines = [
            line(
                span("Its record, its log and its diagnosis are removed from the node.", Tone.WARN)
            ),
            line(span("Save the log first (S in the log) if it may be needed.", Tone.DIM)),
        ]
    else:
        lines = [_serving_line(items, serving), *_stop_lines(act, items)]
    away = sorted(
        {item.node.node.name for item in items if item.node.contact is not Contact.CONNECTED}
    )
    if away:
        text = f"{', '.join(away)} does not answer now: this will fail unless it is back."
        lines.append(line(span(f"▲ {text}", Tone.WARN)))
    return tuple(lines)


def _serving_line(items: Sequence[EngineView], serving: int) -> Line:
    status = items[0].status
    if len(items) > 1:
        text = f"{count_of(serving, 'rank')} serving: requests in flight are cut off."
        return line(span(text, Tone.WARN if serving else Tone.NORMAL))
    if serving:
        text = (
            f"It serves {status.served_model_name} at {status.url}: requests in flight are cut off."
        )
        return line(span(text, Tone.WARN))
    if status.state in _REMAINS:
        return line("What is left of it is killed.")
    if status.state.is_over:
        return line("It is over: nothing is lost.")
    return line("It serves nothing yet; what it loaded is lost.")


def _stop_lines(act: Act, items: Sequence[EngineView]) -> list[Line]:
    lines = []
    if not all(item.status.state.is_over for item in items):
        how = "asked to end (SIGTERM), and killed when the grace is over."
        lines.append(line(span(f"{'Each' if len(items) > 1 else 'It'} is {how}", Tone.DIM)))
    gpus = [
        f"{item.node.node.name} GPU {', '.join(map(str, item.status.gpus))}"
        for item in items
        if item.status.gpus and not item.status.state.is_over
    ]
    if act is Act.RESTART:
        text = "Then the same command line starts on the same GPUs, and loads from the beginning."
        lines.append(line(span(text, Tone.DIM)))
    elif gpus:
        lines.append(line(span(f"That frees {'; '.join(gpus)}.", Tone.DIM)))
    return lines
