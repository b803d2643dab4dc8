"""Which engine a key acts on, and where the palette can jump to. Pure."""

from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_tui.present.engines import EngineView, engines_of, find_engine, name_text
from llmgw_tui.present.processes import find_process
from llmgw_tui.present.table import Key


def engine_under(snapshot: FleetSnapshot | None, view: str, key: Key | None) -> EngineView | None:
    """The engine meant by the selected row of a view: itself, a GPU's, or the only one of a node."""
    if snapshot is None or key is None:
        return None
    if view in ("engines", "log"):
        return find_engine(snapshot, key)
    if view == "events":
        return None
    if view == "gpus":
        return _engine_on_gpu(snapshot, key)
    if view == "processes":
        process = find_process(snapshot, key)
        engine = process[2].engine if process else None
        return find_engine(snapshot, (key[0], engine)) if engine is not None else None
    alive = [
        item
        for item in engines_of(snapshot)
        if item.key[0] == key[0] and not item.status.state.is_over
    ]
    return alive[0] if len(alive) == 1 else None


def _engine_on_gpu(snapshot: FleetSnapshot, key: Key) -> EngineView | None:
    for view in snapshot.nodes:
        for gpu in view.node.gpus:
            if (view.node.name, str(gpu.index)) == key and gpu.engine is not None:
                return find_engine(snapshot, (view.node.name, gpu.engine))
    return None


def jump_targets(snapshot: FleetSnapshot | None) -> tuple[tuple[str, str, Key], ...]:
    """(text, view, key) of every node and engine, for the palette."""
    if snapshot is None:
        return ()
    nodes = [(f"node {view.node.name}", "cluster", (view.node.name,)) for view in snapshot.nodes]
    engines = [
        (f"engine {name_text(item.status)} on {item.key[0]}", "engines", item.key)
        for item in engines_of(snapshot)
    ]
    return (*nodes, *engines)
