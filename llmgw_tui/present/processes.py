"""The process view: who holds memory on the GPUs of the cluster. Pure."""

from llmgw_core.domain.hardware import Gpu, GpuProcess
from llmgw_core.domain.inventory import Contact, FleetSnapshot, NodeView
from llmgw_tui.present.detail import BLANK, away_note, fact, gpu_line, heading, is_waiting
from llmgw_tui.present.table import Column, Key, Row
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.present.units import format_gib

COLUMNS = (
    Column("NODE", least=6, most=24, keep=9),
    Column("GPU", least=3, most=3, keep=9, right=True),
    Column("PID", least=5, most=8, keep=9, right=True),
    Column("USER", least=6, most=16, keep=7),
    Column("MEMORY", least=7, most=9, keep=8, right=True),
    Column("WHOSE", least=12, most=32, keep=8),
    Column("NAME", least=8, most=20, keep=5),
    Column("COMMAND", least=12, most=80, keep=4),
)
# What the node says a process is, in words a person acts by.
_KINDS = {
    "user": "somebody's",
    "container": "in a container",
    "orphan": "dead, memory held",
    "system": "of the system",
    "hidden": "not visible from here",
}


def rows(snapshot: FleetSnapshot, now: float) -> tuple[Row, ...]:
    """One row for each process on each GPU, by node, GPU and the driver's order."""
    del now
    return tuple(
        _row(view, gpu, process)
        for view in snapshot.nodes
        for gpu in view.node.gpus
        for process in gpu.processes
    )


def _row(view: NodeView, gpu: Gpu, process: GpuProcess) -> Row:
    row = Row(
        (view.node.name, str(gpu.index), str(process.pid)),
        (
            line(span(view.node.name, Tone.STRONG)),
            line(span(gpu.index)),
            line(span(process.pid)),
            line(span(process.user)),
            line(span(f"{format_gib(process.memory_mib)} GiB")),
            whose_cell(process),
            line(span(process.name)),
            line(span(process.command, Tone.DIM)),
        ),
    )
    return row if view.contact is Contact.CONNECTED else row.as_dim()


def whose_cell(process: GpuProcess) -> Line:
    """The engine it belongs to, or what else it is."""
    if process.engine is not None:
        return line(span(f"■ {process.engine}", Tone.ACCENT))
    return line(span(f"▲ {_KINDS.get(process.kind or '', 'not of llmgw')}", Tone.WARN))


def find_process(
    snapshot: FleetSnapshot | None, key: Key
) -> tuple[NodeView, Gpu, GpuProcess] | None:
    """The process of a row's key (node, GPU index, pid)."""
    for view in snapshot.nodes if snapshot else ():
        for gpu in view.node.gpus:
            for process in gpu.processes:
                if key == (view.node.name, str(gpu.index), str(process.pid)):
                    return view, gpu, process
    return None


def detail(snapshot: FleetSnapshot, key: Key, now: float) -> tuple[Line, ...]:
    """Everything known of one process."""
    del now
    found = find_process(snapshot, key)
    if found is None:
        return (line(span(f"pid {key[-1]} holds nothing on this GPU any more.", Tone.DIM)),)
    view, gpu, process = found
    lines = [
        line(span(f"{view.node.name} pid {process.pid}", Tone.TITLE), "  ", *whose_cell(process)),
        BLANK,
        fact("user", span(process.user or "owner not visible")),
        fact("name", span(process.name or "name not visible")),
        fact("memory", f"{format_gib(process.memory_mib)} GiB on GPU {gpu.index}"),
        fact("command", span(process.command or "not visible")),
        BLANK,
        heading("GPU"),
        gpu_line(gpu),
    ]
    others = [
        str(other.index)
        for other in view.node.gpus
        if other is not gpu and any(item.pid == process.pid for item in other.processes)
    ]
    if others:
        lines.append(fact("also on", f"GPU {', '.join(others)}"))
    return tuple(lines)


def empty(snapshot: FleetSnapshot | None) -> tuple[Line, ...]:
    """What stands in place of the table when it has no row."""
    if is_waiting(snapshot):
        text = "No process is known yet: waiting for nodes to answer."
        return (line(span(text, Tone.DIM)),)
    return (
        heading("No processes"),
        line("No process holds memory on a GPU of these nodes."),
        *away_note(snapshot),
    )
