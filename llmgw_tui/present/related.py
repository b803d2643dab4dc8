"""What an entity is tied to, so that every one is reached from every other: node, GPU, process, port, engine, log. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import FleetSnapshot, Node, NodeView
from llmgw_tui.present.engines import EngineView, engines_of, find_engine, name_text, ranks_of
from llmgw_tui.present.events import Event
from llmgw_tui.present.processes import find_process
from llmgw_tui.present.table import Key

LOG = "log"


class Place(NamedTuple):
    """Somewhere to go: a view, and the key of the row there. In the log view the key is the engine's."""

    text: str
    view: str
    key: Key


def related(
    snapshot: FleetSnapshot | None, view: str, key: Key | None, event: Event | None = None
) -> tuple[Place, ...]:
    """What the selected row is tied to, the nearest first; nothing when the row is gone.

    Args:
        event: the event that is selected, in the event view.
    """
    if event is not None:
        if event.target is None:
            return ()
        there = Place(f"{event.kind} {event.subject} on {event.node}", *event.target)
        return (there, *related(snapshot, there.view, there.key))
    if snapshot is None or not key:
        return ()
    found = next((item for item in snapshot.nodes if item.node.name == key[0]), None)
    if found is None:
        return ()
    return _unique(_places(snapshot, found, view, key), (view, key))


def _places(snapshot: FleetSnapshot, found: NodeView, view: str, key: Key) -> Iterable[Place]:
    node = found.node
    if view == "gpus":
        yield from _of_gpu(node, next((g for g in node.gpus if str(g.index) == key[1]), None))
    elif view == "processes":
        yield from _of_process(snapshot, node, key)
    elif view in ("engines", LOG):
        yield from _of_engine(snapshot, find_engine(snapshot, key), is_log=view == LOG)
    elif view == "fabric":
        yield from _peers(snapshot, node, key)
    yield from _of_node(snapshot, node)


def _of_node(snapshot: FleetSnapshot, node: Node) -> Iterable[Place]:
    """The node itself, its engines, its GPUs and its ports: tied to everything on it."""
    yield Place(f"node {node.name}", "cluster", (node.name,))
    for item in engines_of(snapshot):
        if item.key[0] == node.name and not item.status.state.is_over:
            yield _engine_place(item.key, name_text(item.status))
    for gpu in node.gpus:
        yield Place(f"GPU {gpu.index}", "gpus", (node.name, str(gpu.index)))
    for port in node.ports[:1]:
        yield Place(f"ports of {node.name}", "fabric", (node.name, port.hca, str(port.port)))


def _of_gpu(node: Node, gpu: Gpu | None) -> Iterable[Place]:
    if gpu is None:
        return
    if gpu.engine is not None:
        yield _engine_place((node.name, gpu.engine), gpu.engine)
        yield Place(f"log of {gpu.engine}", LOG, (node.name, gpu.engine))
    for process in gpu.processes:
        keys = (node.name, str(gpu.index), str(process.pid))
        yield Place(f"process {process.pid} ({process.name or '?'})", "processes", keys)


def _of_process(snapshot: FleetSnapshot, node: Node, key: Key) -> Iterable[Place]:
    found = find_process(snapshot, key)
    if found is None:
        return
    _, gpu, process = found
    if process.engine is not None:
        yield _engine_place((node.name, process.engine), process.engine)
        yield Place(f"log of {process.engine}", LOG, (node.name, process.engine))
    yield Place(f"GPU {gpu.index}", "gpus", (node.name, str(gpu.index)))


def _of_engine(
    snapshot: FleetSnapshot, item: EngineView | None, *, is_log: bool
) -> Iterable[Place]:
    if item is None:
        return
    node, status = item.node.node, item.status
    if is_log:
        yield _engine_place(item.key, name_text(status))
    else:
        yield Place(f"log of {name_text(status)}", LOG, item.key)
    for other in ranks_of(snapshot, item):
        yield Place(f"rank {other.status.rank} on {other.key[0]}", "engines", other.key)
    for gpu in node.gpus:
        if gpu.index in status.gpus:
            yield Place(f"GPU {gpu.index}", "gpus", (node.name, str(gpu.index)))
            for process in gpu.processes:
                if process.engine == status.id:
                    keys = (node.name, str(gpu.index), str(process.pid))
                    yield Place(f"process {process.pid} on GPU {gpu.index}", "processes", keys)


def _peers(snapshot: FleetSnapshot, node: Node, key: Key) -> Iterable[Place]:
    """The first port of each other node on the same fabric."""
    here = next((p for p in node.ports if key[1:] == (p.hca, str(p.port))), None)
    if here is None or here.fabric is None:
        return
    for view in snapshot.nodes:
        port = next((p for p in view.node.ports if p.fabric == here.fabric), None)
        if port is not None and view.node.name != node.name:
            keys = (view.node.name, port.hca, str(port.port))
            yield Place(f"{view.node.name} on the same fabric", "fabric", keys)


def _engine_place(key: Key, name: str) -> Place:
    return Place(f"engine {name}", "engines", key)


def _unique(places: Iterable[Place], here: tuple[str, Key]) -> tuple[Place, ...]:
    seen = {here}
    kept = []
    for place in places:
        if (place.view, place.key) not in seen:
            seen.add((place.view, place.key))
            kept.append(place)
    return tuple(kept)


def crumbs(view: str, key: Key | None) -> str:
    """Where one is, from the whole to the part: `gpu1 › GPU 3 › pid 4711`."""
    if not key:
        return ""
    if view == "events":
        return ""
    if view == "queue":
        return " › ".join(word for word in (key[0] or "this machine", *key[3:]) if word)
    words = [key[0]]
    if view in ("gpus", "processes"):
        words.append(f"GPU {key[1]}")
    if view == "processes":
        words.append(f"pid {key[2]}")
    if view == "fabric":
        words += [":".join(key[1:])] if len(key) > 1 else []
    if view in ("engines", LOG):
        words.append(key[1])
    return " › ".join(words)
