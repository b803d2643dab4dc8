"""What two pictures say has happened between them."""

from dataclasses import replace

import pytest

from llmgw_core.domain.engine import Diagnosis, EngineState
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import GpuHealth
from llmgw_core.domain.inventory import Contact, Node, NodeFault, NodeView
from llmgw_tui.present.events import Event, EventBook, find_events
from llmgw_tui.present.text import Tone
from tests.support.cells import cells_of, text_of
from tests.support.fleets import (
    NOW,
    make_cluster,
    make_engine,
    make_gpu,
    make_node,
    make_port,
    make_snapshot,
    make_view,
)

OOM = Diagnosis("out-of-memory", "GPU 0 ran out of memory", "lower --max-model-len")
LOST = GpuHealth("gpu-lost", Severity.ERROR, "it has fallen off the bus: reboot the node")


def between(
    old: Node, new: Node, was: Contact = Contact.CONNECTED, now: Contact = Contact.CONNECTED
) -> list[tuple[str, str, str]]:
    """(kind, subject, text) of what has happened to one node."""
    before = make_snapshot(make_view(old, was, age=3.0))
    after = make_snapshot(make_view(new, now, age=1.0))
    return [(event.kind, event.subject, event.text) for event in find_events(before, after)]


N1 = make_node("n1")
FAULT = NodeFault("timeout", "n1 did not answer within 10 s", "try ssh n1")


@pytest.mark.parametrize(
    ("old", "new", "was", "now", "event"),
    [
        (N1, N1, Contact.CONNECTING, Contact.CONNECTED, ("node", "n1", "it answers")),
        (N1, N1, Contact.UNREACHABLE, Contact.CONNECTED, ("node", "n1", "it is back")),
        (
            N1,
            replace(N1, error=FAULT),
            Contact.CONNECTED,
            Contact.UNREACHABLE,
            ("node", "n1", "it does not answer: n1 did not answer within 10 s"),
        ),
        (
            N1,
            replace(N1, error=NodeFault("partial", "nvidia-smi hangs", "")),
            Contact.CONNECTED,
            Contact.CONNECTED,
            ("node", "n1", "nvidia-smi hangs"),
        ),
        (
            replace(N1, error=FAULT),
            N1,
            Contact.CONNECTED,
            Contact.CONNECTED,
            ("node", "n1", "it answers in full again"),
        ),
    ],
)
def test_nodes_come_and_go(
    old: Node, new: Node, was: Contact, now: Contact, event: tuple[str, str, str]
) -> None:
    assert between(old, new, was, now) == [event]


@pytest.mark.parametrize(
    ("old", "new", "event"),
    [
        (
            replace(N1, gpus=(make_gpu(0),)),
            replace(N1, gpus=(make_gpu(0, health=(LOST,)),)),
            ("GPU", "GPU 0", LOST.message),
        ),
        (
            replace(N1, gpus=(make_gpu(0, health=(LOST,)),)),
            replace(N1, gpus=(make_gpu(0),)),
            ("GPU", "GPU 0", "gpu-lost is over"),
        ),
        (
            replace(N1, gpus=(make_gpu(0), make_gpu(1))),
            replace(N1, gpus=(make_gpu(0),)),
            ("GPU", "GPU 1", "its driver does not list it any more"),
        ),
        (
            replace(N1, ports=(make_port(0),)),
            replace(N1, ports=(make_port(0, state="DOWN"),)),
            ("port", "mlx5_0:1", "active → down"),
        ),
        (N1, replace(N1, engines=(make_engine("a"),)), ("engine", "a", "ready")),
        (
            replace(N1, engines=(make_engine("a", EngineState.LOADING),)),
            replace(N1, engines=(make_engine("a", EngineState.FAILED, diagnosis=OOM),)),
            ("engine", "a", "loading → failed: GPU 0 ran out of memory"),
        ),
        (
            replace(N1, engines=(make_engine("a", EngineState.STOPPED),)),
            N1,
            ("engine", "a", "its record was removed"),
        ),
    ],
)
def test_hardware_and_engines_change(old: Node, new: Node, event: tuple[str, str, str]) -> None:
    assert between(old, new) == [event]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (N1, replace(N1, gpus=())),
        (N1, replace(N1, gpus=tuple(make_gpu(n, utilization_percent=99) for n in range(4)))),
        (
            replace(N1, engines=(make_engine("a", EngineState.LOADING, progress=0.1),)),
            replace(N1, engines=(make_engine("a", EngineState.LOADING, progress=0.2),)),
        ),
    ],
)
def test_a_driver_that_is_silent_and_readings_that_move_are_no_events(old: Node, new: Node) -> None:
    assert between(old, new) == []


def test_the_first_reading_of_a_node_is_that_it_answers_and_nothing_else() -> None:
    before = make_snapshot(NodeView(Node("n1"), Contact.CONNECTING))
    after = make_snapshot(make_view(make_node("n1", engines=(make_engine("a"),))))

    assert [event.text for event in find_events(before, after)] == ["it answers"]


def test_the_same_picture_again_tells_nothing() -> None:
    assert find_events(make_cluster(), make_cluster()) == ()


def test_events_are_shown_newest_first_with_time_and_age() -> None:
    book = EventBook()
    book.add([Event("node", "n1", "n1", "it is back", Tone.OK)], NOW)
    book.add([Event("you", "", "", "chat is being stopped", Tone.ACCENT)], NOW + 60)

    rows = book.rows(make_cluster(), NOW + 65)

    assert [cells_of(row) for row in rows] == [
        ["00:01:00", "▸ you", "", "", "chat is being stopped", "5s"],
        ["00:00:00", "● node", "n1", "n1", "it is back", "1m"],
    ]


def test_the_detail_of_an_event_says_what_to_do() -> None:
    book = EventBook()
    event = Event("engine", "n1", "a", "failed", Tone.ERROR, ("engines", ("n1", "a-1")), "lower it")
    book.add([event], NOW)

    assert "→ lower it" in text_of(book.detail(make_cluster(), ("1",), NOW))
    assert "no longer kept" in text_of(book.detail(make_cluster(), ("7",), NOW))


def test_a_book_keeps_the_last_events_only() -> None:
    book = EventBook(max_events=2)
    book.add([Event("node", "n", "n", str(number), Tone.OK) for number in range(5)], NOW)

    assert [row.key for row in book.rows(make_cluster(), NOW)] == [("5",), ("4",)]
