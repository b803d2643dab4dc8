"""Pause, resume and drain at a gateway: what it is aimed at, what follows from it, and how much it asks. Pure."""

from enum import StrEnum

from llmgw_tui.present.acts import Ask
from llmgw_tui.present.detail import BLANK, fact
from llmgw_tui.present.queue import GATEWAY, TENANT, QueueItem, gateway_name, item_state
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.present.units import count_of


class Steer(StrEnum):
    """What a person can do to a queue."""

    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"


_KINDS = {
    Steer.PAUSE: ("model", "tenant"),
    Steer.RESUME: ("model", "tenant", "engine"),
    Steer.DRAIN: ("model", "engine"),
}
_NOT_SO = {
    (Steer.PAUSE, "engine"): "An engine is not paused but drained (D).",
    (Steer.DRAIN, TENANT): "A tenant is not drained but paused (P).",
}


def refusal(steer: Steer, item: QueueItem | None) -> str | None:
    """Why there is nothing to do it to; None when there is."""
    if item is None:
        return "Nothing is selected."
    if item.kind == GATEWAY:
        return f"Choose a model, a tenant or an engine below the gateway to {steer.value} it."
    if item.view.fault is not None:
        return f"{gateway_name(item.view)} does not answer now."
    if item.kind not in _KINDS[steer]:
        return _NOT_SO[steer, item.kind]
    if steer is Steer.RESUME and not _is_held(item):
        return f"{item.name} is neither paused nor draining."
    return None


def _is_held(item: QueueItem) -> bool:
    for thing in (item.tenant, item.engine, item.model):
        if thing is not None:
            return bool(getattr(thing, "paused", False) or getattr(thing, "draining", False))
    return False


def ask_about(steer: Steer, item: QueueItem) -> Ask:
    """What the dialog shows. What holds up a model's traffic asks for its name, else enter is enough."""
    model = item.model if item.kind == "model" else None
    is_busy = model is not None and bool(model.running or model.waiting or model.admitted)
    return Ask(
        act=steer,
        targets=(item.key,),
        title=f"{steer.value.capitalize()} {_article(item.kind)} {item.kind}",
        typed=item.name if is_busy and steer is not Steer.RESUME else None,
        why="It has traffic." if is_busy else "",
        does=f"{steer.value}s it",
        else_does="leaves it as it is",
        lines=(
            fact(item.kind, span(item.name, Tone.STRONG)),
            fact("gateway", gateway_name(item.view)),
            fact("state", *item_state(item).cell),
            *_counts(item),
            BLANK,
            *_what_follows(steer, item),
        ),
    )


def _article(kind: str) -> str:
    return "an" if kind == "engine" else "a"


def _counts(item: QueueItem) -> tuple[Line, ...]:
    if item.tenant is not None:
        waiting, running = item.tenant.waiting, item.tenant.running
    elif item.engine is not None:
        return (fact("running", count_of(item.engine.running, "request")),)
    elif item.model is not None:
        waiting, running = item.model.waiting, item.model.running
    else:
        return ()
    return (fact("now", f"{running} running, {waiting} waiting"),)


def _what_follows(steer: Steer, item: QueueItem) -> tuple[Line, ...]:
    whose = "its requests for every model" if item.kind == TENANT else "requests"
    if steer is Steer.PAUSE:
        said = f"What runs goes on; {whose} wait, and end with 504 at their deadline."
    elif steer is Steer.RESUME:
        said = "Requests go on at once."
    elif item.kind == "engine":
        said = "What runs there goes on; it gets nothing new until it is resumed."
    else:
        said = "What runs and waits comes to its end; new requests get 503 until it is resumed."
    tone = Tone.NORMAL if steer is Steer.RESUME else Tone.WARN
    again = "The gateway forgets this when it is started anew."
    return (line(span(said, tone)), line(span(again, Tone.DIM)))
