"""What happened in the cluster while the console watched: told by two pictures, one after the other. Pure.

`EventBook` has a memory and touches nothing else.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_

from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu, Port
from llmgw_core.domain.inventory import Contact, FleetSnapshot, NodeView
from llmgw_tui.present.detail import BLANK, fact
from llmgw_tui.present.states import engine_state_of_name, severity_state
from llmgw_tui.present.table import Column, Key, Row
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.present.units import format_age, format_clock

MAX_EVENTS = 2000
COLUMNS = (
    Column("TIME", least=8, most=8, keep=9),
    Column("WHAT", least=9, most=12, keep=9),
    Column("NODE", least=6, most=24, keep=8),
    Column("SUBJECT", least=8, most=28, keep=8),
    Column("EVENT", least=20, most=120, keep=9),
    Column("AGE", least=3, most=7, keep=4, right=True),
)
_GLYPHS = {Tone.ERROR: "✖", Tone.WARN: "▲", Tone.OK: "●", Tone.BUSY: "◐", Tone.ACCENT: "▸"}

# What events are told of.
_GPU_FACTS = attrgetter("uuid", "index", "health")
_PORT_FACTS = attrgetter("hca", "port", "state")


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: "node", "GPU", "port", "engine", "you".
        target: (view, key) of what it happened to; None when there is nothing to go to.
    """

    kind: str
    node: str
    subject: str
    text: str
    tone: Tone
    target: tuple[str, Key] | None = None
    hint: str = ""


def find_events(before: FleetSnapshot, after: FleetSnapshot) -> tuple[Event, ...]:
    """What has changed from one picture to the next, in the order of nodes. Readings that merely move are none."""
    old = {view.node.name: view for view in before.nodes}
    events: list[Event] = []
    for view in after.nodes:
        known = old.pop(view.node.name, None)
        if known is None or known is view:
            continue
        events += _node_events(known, view)
        if known.updated_at is None or view.updated_at == known.updated_at:
            continue  # the first reading is no change, and the last one seen again neither
        # Of a thousand nodes most changed in readings alone, and what is the same object needs no look.
        if not _is_kept(known.node.gpus, view.node.gpus, _GPU_FACTS):
            events += _gpu_events(known, view)
        if not _is_kept(known.node.ports, view.node.ports, _PORT_FACTS):
            events += _port_events(known, view)
        if known.node.engines is not view.node.engines:
            events += _engine_events(known, view)
    return tuple(events)


def _is_kept(
    old: Sequence[object], new: Sequence[object], facts: Callable[[object], tuple[object, ...]]
) -> bool:
    return len(old) == len(new) and all(
        was is now or all(map(is_, facts(was), facts(now)))
        for was, now in zip(old, new, strict=True)
    )


def _node_events(old: NodeView, new: NodeView) -> Iterable[Event]:
    name, fault = new.node.name, new.node.error
    target = ("cluster", (name,))
    was, now = old.contact, new.contact
    if was is not now and now is Contact.CONNECTED:
        word = "answers" if was is Contact.CONNECTING else "is back"
        yield Event("node", name, name, f"it {word}", Tone.OK, target)
    elif was is not now and now is Contact.UNREACHABLE:
        text = f"it does not answer: {fault.message}" if fault else "it does not answer"
        yield Event("node", name, name, text, Tone.ERROR, target, fault.hint if fault else "")
    elif now is Contact.CONNECTED and fault is not None and fault != old.node.error:
        yield Event("node", name, name, fault.message, Tone.WARN, target, fault.hint)
    elif now is Contact.CONNECTED and fault is None and old.node.error is not None:
        yield Event("node", name, name, "it answers in full again", Tone.OK, target)


def _gpu_events(old: NodeView, new: NodeView) -> Iterable[Event]:
    before = {gpu.uuid or str(gpu.index): gpu for gpu in old.node.gpus}
    for gpu in new.node.gpus:
        known = before.pop(gpu.uuid or str(gpu.index), None)
        if known is not None:
            yield from _health_events(new.node.name, known, gpu)
    for gpu in before.values():
        if new.node.gpus:  # with none at all the driver is silent, which the node says
            subject = f"GPU {gpu.index}"
            text = "its driver does not list it any more"
            yield Event(
                "GPU", new.node.name, subject, text, Tone.ERROR, ("cluster", (new.node.name,))
            )


def _health_events(node: str, old: Gpu, new: Gpu) -> Iterable[Event]:
    target, subject = ("gpus", (node, str(new.index))), f"GPU {new.index}"
    codes = {flag.code for flag in old.health}
    for flag in new.health:
        if flag.code not in codes and flag.severity is not Severity.INFO:
            tone = severity_state(flag.severity).tone
            yield Event("GPU", node, subject, flag.message, tone, target)
    for code in sorted(codes - {flag.code for flag in new.health}):
        yield Event("GPU", node, subject, f"{code} is over", Tone.OK, target)


def _port_events(old: NodeView, new: NodeView) -> Iterable[Event]:
    before = {(port.hca, port.port): port for port in old.node.ports}
    for port in new.node.ports:
        known = before.get((port.hca, port.port))
        if known is not None and known.state != port.state:
            yield _port_event(new.node.name, known, port)


def _port_event(node: str, old: Port, new: Port) -> Event:
    tone = Tone.OK if new.state == "ACTIVE" else Tone.WARN
    text = f"{(old.state or 'unknown').lower()} → {(new.state or 'unknown').lower()}"
    name = f"{new.hca}:{new.port}"
    return Event("port", node, name, text, tone, ("fabric", (node, new.hca, str(new.port))))


def _engine_events(old: NodeView, new: NodeView) -> Iterable[Event]:
    before = {engine.id: engine for engine in old.node.engines}
    node = new.node.name
    for engine in new.node.engines:
        known = before.pop(engine.id, None)
        if known is None or known.state is not engine.state:
            yield _engine_event(node, known, engine)
    for engine in before.values():
        text = "its record was removed"
        yield Event("engine", node, engine.name, text, Tone.DIM, ("cluster", (node,)))


def _engine_event(node: str, old: EngineStatus | None, new: EngineStatus) -> Event:
    look = engine_state_of_name(new.state)
    text = look.word if old is None else f"{engine_state_of_name(old.state).word} → {look.word}"
    hint = ""
    if new.diagnosis is not None and new.state is not EngineState.READY:
        text, hint = f"{text}: {new.diagnosis.message}", new.diagnosis.hint
    return Event("engine", node, new.name, text, look.tone, ("engines", (node, new.id)), hint)


class EventBook:
    """The last events with their times, newest first when shown."""

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._events: deque[tuple[int, float, Event]] = deque(maxlen=max_events)
        self._count = 0

    def add(self, events: Iterable[Event], now: float) -> None:
        """Note them. `now` in UTC epoch seconds, by this machine's clock."""
        for event in events:
            self._count += 1
            self._events.append((self._count, now, event))

    @property
    def unread_mark(self) -> int:
        """How many there have ever been."""
        return self._count

    def find(self, key: Key) -> Event | None:
        """The event of a row's key."""
        return next((event for number, _, event in self._events if key == (str(number),)), None)

    def rows(self, snapshot: FleetSnapshot, now: float) -> tuple[Row, ...]:
        """One row an event, the newest first."""
        del snapshot
        return tuple(_row(number, at, event, now) for number, at, event in reversed(self._events))

    def detail(self, snapshot: FleetSnapshot, key: Key, now: float) -> Sequence[Line]:
        """One event in full."""
        del snapshot
        for number, at, event in self._events:
            if key == (str(number),):
                return _detail(at, event, now)
        return (line(span("This event is no longer kept.", Tone.DIM)),)

    def empty(self, snapshot: FleetSnapshot | None) -> Sequence[Line]:
        """What stands in place of the table when nothing has happened."""
        del snapshot
        return (
            line(span("Nothing has happened since the console was opened", Tone.TITLE)),
            line(
                "Nodes that come and go, health flags, ports, engine states and what you do stand here."
            ),
        )


def _row(number: int, at: float, event: Event, now: float) -> Row:
    return Row(
        (str(number),),
        (
            line(span(format_clock(at), Tone.DIM)),
            line(span(f"{_GLYPHS.get(event.tone, '·')} {event.kind}", event.tone)),
            line(span(event.node, Tone.STRONG)),
            line(event.subject),
            line(span(event.text, event.tone if event.tone in (Tone.ERROR, Tone.WARN) else Tone.NORMAL)),
            line(span(format_age(now - at), Tone.DIM)),
        ),
    )  # fmt: skip


def _detail(at: float, event: Event, now: float) -> tuple[Line, ...]:
    head = [line(span(f"{event.node} {event.subject}".strip(), Tone.TITLE)), BLANK]
    said = [line(span(event.text, event.tone))]
    hint = [line(span(f"→ {event.hint}", Tone.STRONG))] if event.hint else []
    go = [line(span("i goes to it", Tone.DIM))] if event.target else []
    when = fact("when", f"{format_clock(at)}, {format_age(now - at)} ago, by this machine's clock")
    return (*head, *said, *hint, BLANK, when, *go)
