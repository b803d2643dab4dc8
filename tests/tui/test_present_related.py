"""Every entity is reached from every other it is tied to; processes as a table."""

from collections import deque

import pytest

from llmgw_core.domain.hardware import GpuProcess
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_tui.present import processes
from llmgw_tui.present.events import Event
from llmgw_tui.present.related import crumbs, related
from llmgw_tui.present.table import Key
from llmgw_tui.present.text import Tone, plain
from tests.support.cells import cells_of, text_of
from tests.support.fleets import NOW, make_cluster, make_gpu, make_node, make_snapshot, make_view


def reached(snapshot: FleetSnapshot, view: str, key: Key) -> set[tuple[str, Key]]:
    """All places reached from one, over any number of steps."""
    seen = {(view, key)}
    waiting = deque(seen)
    while waiting:
        for place in related(snapshot, *waiting.popleft()):
            if (place.view, place.key) not in seen:
                seen.add((place.view, place.key))
                waiting.append((place.view, place.key))
    return seen


@pytest.mark.parametrize(
    ("view", "key", "first"),
    [
        ("gpus", ("gpu1", "0"), "engine chat-0badcafe"),
        ("processes", ("gpu1", "0", "4000"), "engine chat-0badcafe"),
        ("engines", ("gpu1", "chat-0badcafe"), "log of chat"),
        ("log", ("gpu1", "chat-0badcafe"), "engine chat"),
        ("cluster", ("gpu1",), "engine chat"),
        ("fabric", ("gpu1", "mlx5_0", "1"), "gpu2 on the same fabric"),
    ],
)
def test_the_nearest_place_is_first(view: str, key: Key, first: str) -> None:
    assert related(make_cluster(), view, key)[0].text == first


@pytest.mark.parametrize(
    ("view", "key"),
    [
        ("cluster", ("gpu1",)),
        ("gpus", ("gpu1", "0")),
        ("processes", ("gpu1", "0", "4000")),
        ("engines", ("gpu1", "chat-0badcafe")),
        ("log", ("gpu1", "chat-0badcafe")),
        ("fabric", ("gpu1", "mlx5_0", "1")),
    ],
)
def test_from_each_view_every_other_one_is_reached(view: str, key: Key) -> None:
    views = {name for name, _ in reached(make_cluster(), view, key)}

    assert views == {"cluster", "gpus", "processes", "engines", "log", "fabric"}


def test_the_way_from_a_gpu_to_the_log_takes_three_steps() -> None:
    snapshot = make_cluster()
    steps: list[tuple[str, Key]] = [("gpus", ("gpu1", "0"))]
    for wanted in ("processes", "engines", "log"):
        places = related(snapshot, *steps[-1])
        steps.append(next((p.view, p.key) for p in places if p.view == wanted))

    assert [view for view, _ in steps] == ["gpus", "processes", "engines", "log"]


@pytest.mark.parametrize(
    ("view", "key"),
    [("gpus", ("gone", "0")), ("cluster", None), ("engines", ()), ("events", ("7",))],
)
def test_what_is_gone_leads_nowhere(view: str, key: Key | None) -> None:
    assert related(make_cluster(), view, key) == ()


def test_an_event_leads_to_what_it_happened_to_and_on() -> None:
    event = Event("GPU", "gpu1", "GPU 0", "x", Tone.WARN, ("gpus", ("gpu1", "0")))

    texts = [place.text for place in related(make_cluster(), "events", ("1",), event)]

    assert texts[:2] == ["GPU GPU 0 on gpu1", "engine chat-0badcafe"]


@pytest.mark.parametrize(
    ("view", "key", "text"),
    [
        ("cluster", ("n1",), "n1"),
        ("gpus", ("n1", "3"), "n1 › GPU 3"),
        ("processes", ("n1", "3", "42"), "n1 › GPU 3 › pid 42"),
        ("fabric", ("n1", "mlx5_0", "1"), "n1 › mlx5_0:1"),
        ("engines", ("n1", "chat-1"), "n1 › chat-1"),
        ("events", ("9",), ""),
        ("cluster", None, ""),
    ],
)
def test_crumbs(view: str, key: Key | None, text: str) -> None:
    assert crumbs(view, key) == text


def test_every_process_on_every_gpu_has_a_row() -> None:
    rows = [cells_of(row) for row in processes.rows(make_cluster(), NOW)]

    assert [row[:6] for row in rows][1:3] == [
        ["gpu1", "1", "4001", "serve", "73 GiB", "■ chat-0badcafe"],
        ["gpu2", "1", "4411", "alice", "61 GiB", "▲ not of llmgw"],
    ]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("orphan", "▲ dead, memory held"),
        ("container", "▲ in a container"),
        (None, "▲ not of llmgw"),
    ],
)
def test_what_a_process_is_that_is_no_engine(kind: str | None, word: str) -> None:
    assert plain(processes.whose_cell(GpuProcess(1, kind=kind))) == word


def test_the_detail_of_a_process_names_every_gpu_it_is_on() -> None:
    process = GpuProcess(7, "python", "bob", 1024, command="python train.py --secret-free")
    gpus = tuple(make_gpu(index, processes=(process,)) for index in range(3))
    snapshot = make_snapshot(make_view(make_node("n1", gpus=gpus)))

    shown = text_of(processes.detail(snapshot, ("n1", "0", "7"), NOW))

    assert "python train.py" in shown
    assert "also on  GPU 1, 2" in shown
    assert "holds nothing" in text_of(processes.detail(snapshot, ("n1", "0", "8"), NOW))
