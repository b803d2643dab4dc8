"""The GPU view: every GPU of the cluster in one table. Pure."""

from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import Contact, FleetSnapshot, NodeView
from llmgw_tui.present.detail import (
    BLANK,
    away_note,
    fact,
    fault_lines,
    heading,
    health_lines,
    is_waiting,
    memory_fraction,
    memory_text,
    process_lines,
)
from llmgw_tui.present.reasons import gpu_verdict
from llmgw_tui.present.states import gpu_state
from llmgw_tui.present.table import Column, Key, Row, Rows
from llmgw_tui.present.text import Line, Tone, bar, line, span
from llmgw_tui.present.trend import trend_lines
from llmgw_tui.present.units import format_number

BAR_CELLS = 10
COLUMNS = (
    Column("NODE", least=6, most=24, keep=9),
    Column("GPU", least=3, most=3, keep=9, right=True),
    Column("STATE", least=9, most=10, keep=9),
    Column("CLASS", least=10, most=20, keep=6),
    Column("MEMORY", least=10, most=BAR_CELLS, keep=3),
    Column("USED/TOTAL", least=10, most=14, keep=8, right=True),
    Column("UTIL", least=4, most=6, keep=7, right=True),
    Column("TEMP", least=5, most=7, keep=6, right=True),
    Column("POWER", least=9, most=11, keep=5, right=True),
    Column("HELD BY", least=12, most=32, keep=7),
    Column("ECC", least=3, most=5, keep=2, right=True),
    Column("PCI", least=12, most=16, keep=1),
    Column("NAME", least=10, most=32, keep=1),
)


def rows(snapshot: FleetSnapshot, now: float) -> Rows:
    """One row a GPU, by node and index."""
    del now
    items = [(view, gpu) for view in snapshot.nodes for gpu in view.node.gpus]
    keys = [(view.node.name, str(gpu.index)) for view, gpu in items]
    return Rows(keys, lambda place: _row(*items[place]))


def _row(view: NodeView, gpu: Gpu) -> Row:
    row = Row(
        (view.node.name, str(gpu.index)),
        (
            line(span(view.node.name, Tone.STRONG)),
            line(span(gpu.index)),
            gpu_state(gpu).cell,
            line(span(gpu.gpu_class)),
            line(span(bar(memory_fraction(gpu), BAR_CELLS), Tone.DIM)),
            line(span(memory_text(gpu))),
            line(span(format_number(gpu.utilization_percent, " %"))),
            line(span(format_number(gpu.temperature_celsius, " °C"))),
            line(span(power_text(gpu))),
            _holder_cell(gpu),
            line(span(gpu.ecc_uncorrected, Tone.WARN if gpu.ecc_uncorrected else Tone.NORMAL)),
            line(span(gpu.pci_bus_id, Tone.DIM)),
            line(span(gpu.name, Tone.DIM)),
        ),
    )
    return row if view.contact is Contact.CONNECTED else row.as_dim()


def power_text(gpu: Gpu) -> str:
    """`412/700 W`."""
    return f"{format_number(gpu.power_watts)}/{format_number(gpu.power_limit_watts)} W"


def _holder_cell(gpu: Gpu) -> Line:
    """The engine on it, or whoever else is."""
    if gpu.engine is not None:
        return line(span(gpu.engine, Tone.ACCENT))
    others = [process for process in gpu.processes if process.engine is None]
    if not others:
        return ()
    first = others[0]
    more = f" +{len(others) - 1}" if len(others) > 1 else ""
    return line(span(f"{first.name or '?'} ({first.user or '?'}){more}", Tone.WARN))


def detail(snapshot: FleetSnapshot, key: Key, now: float) -> tuple[Line, ...]:
    """Everything known of one GPU."""
    del now
    for view in snapshot.nodes:
        for gpu in view.node.gpus if view.node.name == key[0] else ():
            if (view.node.name, str(gpu.index)) == key:
                return _detail(view, gpu)
    return (line(span("This GPU is no longer there.", Tone.DIM)),)


def _detail(view: NodeView, gpu: Gpu) -> tuple[Line, ...]:
    node = view.node
    lines: list[Line] = [
        line(span(f"{node.name} GPU {gpu.index}", Tone.TITLE), "  ", *gpu_state(gpu).cell),
        *fault_lines(node.error),
        *gpu_verdict(view, gpu),
        *health_lines(gpu, with_index=False),
        BLANK,
        fact("name", span(gpu.name)),
        fact("class", span(gpu.gpu_class)),
        fact("memory", memory_text(gpu)),
        fact("load", format_number(gpu.utilization_percent, " %")),
        fact("temp", format_number(gpu.temperature_celsius, " °C")),
        fact("power", power_text(gpu)),
        fact("compute", span(gpu.compute_capability)),
        fact("ECC", _ecc_text(gpu)),
        fact("MIG", span(gpu.mig_mode)),
        fact("PCI", span(gpu.pci_bus_id)),
        fact("uuid", span(gpu.uuid)),
        fact("driver", span(node.driver_version)),
        BLANK,
        *_trend_block(view, gpu),
        heading("Processes"),
    ]
    processes = process_lines(gpu, with_index=False)
    return (*lines, *(processes or [line(span("  none", Tone.DIM))]))


def _trend_block(view: NodeView, gpu: Gpu) -> list[Line]:
    wanted = (
        ("load", "utilization_percent", 100.0, " %"),
        ("memory", "memory_used_mib", gpu.memory_total_mib, " MiB"),
        ("power", "power_watts", gpu.power_limit_watts, " W"),
        ("temp", "temperature_celsius", 100.0, " °C"),
    )
    lines = trend_lines(view, "gpu", gpu.uuid or str(gpu.index), wanted)
    return [*lines, BLANK] if lines else []


def _ecc_text(gpu: Gpu) -> str:
    if gpu.ecc_uncorrected is None:
        return "— (not reported)"
    return f"{gpu.ecc_uncorrected} uncorrected since the driver was loaded"


def empty(snapshot: FleetSnapshot | None) -> tuple[Line, ...]:
    """What stands in place of the table when it has no row."""
    if is_waiting(snapshot):
        return (line(span("No GPU is known yet: waiting for nodes to answer.", Tone.DIM)),)
    return (
        heading("No GPUs"),
        line("No node of this cluster has a GPU that its driver shows."),
        line("The cluster view says per node which driver was found, and what is wrong with it."),
        *away_note(snapshot),
    )
