"""Blocks that several detail panes share: headings, facts in columns, health, processes. Pure."""

from llmgw_core.domain.hardware import Gpu, Port, PortKind
from llmgw_core.domain.inventory import Contact, FleetSnapshot, NodeFault, NodeView
from llmgw_tui.present.states import gpu_state, severity_state
from llmgw_tui.present.text import Line, Part, Tone, bar, fit, line, span
from llmgw_tui.present.units import format_age, format_gib, format_number

BLANK: Line = ()
FACT_CELLS = 9
GPU_BAR_CELLS = 8
NAMED = 6  # nodes named before the rest is counted


def heading(text: str) -> Line:
    """The line above a block."""
    return line(span(text, Tone.TITLE))


def fact(name: str, *value: Part) -> Line:
    """`name     value`, the names in a column."""
    return line(span(f"{name:<{FACT_CELLS}}", Tone.DIM), *value)


def fault_lines(fault: NodeFault | None) -> list[Line]:
    """What is wrong with a node, and what to do."""
    if fault is None:
        return []
    lines = [line(span(f"✖ {fault.message}", Tone.ERROR), span(f"  [{fault.code}]", Tone.DIM))]
    if fault.hint:
        lines.append(line(span(f"→ {fault.hint}", Tone.STRONG)))
    return [*lines, BLANK]


def age_text(view: NodeView, now: float) -> str | None:
    """How old the last reading is; None when there was none."""
    return None if view.updated_at is None else format_age(now - view.updated_at)


def retry_text(view: NodeView, now: float) -> str | None:
    """When the next try is; None when none is planned."""
    if view.retry_at is None:
        return None
    wait = view.retry_at - now
    return (
        "trying again now" if wait <= 0 else f"trying again in {format_age(wait + 0.999)} (r: now)"
    )


def is_waiting(snapshot: FleetSnapshot | None) -> bool:
    """Whether a node is still being asked for the first time: nothing may be said to be absent yet."""
    if snapshot is None:
        return True
    return any(view.contact is Contact.CONNECTING for view in snapshot.nodes)


def away_note(snapshot: FleetSnapshot | None) -> list[Line]:
    """Which nodes do not answer, where something is said to be absent."""
    away = [
        view.node.name
        for view in (snapshot.nodes if snapshot else ())
        if view.contact is Contact.UNREACHABLE
    ]
    if not away:
        return []
    more = f" and {len(away) - NAMED} more" if len(away) > NAMED else ""
    return [line(span(f"▲ {', '.join(away[:NAMED])}{more}: no answer, so not counted.", Tone.WARN))]


def memory_text(gpu: Gpu) -> str:
    """`61.2/80 GiB`."""
    return f"{format_gib(gpu.memory_used_mib)}/{format_gib(gpu.memory_total_mib)} GiB"


def memory_fraction(gpu: Gpu) -> float | None:
    """Used of total memory, 0 to 1."""
    if gpu.memory_used_mib is None or not gpu.memory_total_mib:
        return None
    return gpu.memory_used_mib / gpu.memory_total_mib


def gpu_line(gpu: Gpu) -> Line:
    """One GPU in one line: index, state, memory, load, temperature, power."""
    state = gpu_state(gpu)
    return line(
        span(f"{gpu.index:>2} "),
        *fit(state.cell, 10),
        span(bar(memory_fraction(gpu), GPU_BAR_CELLS), Tone.DIM),
        span(f" {memory_text(gpu):<12}"),
        span(f"{format_number(gpu.utilization_percent, ' %'):>6}"),
        span(f"{format_number(gpu.temperature_celsius, ' °C'):>7}"),
        span(f"{format_number(gpu.power_watts, ' W'):>7}"),
        span(f"  {gpu.engine}", Tone.ACCENT) if gpu.engine else None,
    )


def health_lines(gpu: Gpu, *, with_index: bool = True) -> list[Line]:
    """Each reason to look at the GPU twice, in words."""
    where = f"GPU {gpu.index}: " if with_index else ""
    return [
        line(
            span(f"{look.glyph} {where}{flag.message}", look.tone),
            span(f"  [{flag.code}]", Tone.DIM),
        )
        for flag in gpu.health
        for look in (severity_state(flag.severity),)
    ]


def process_lines(gpu: Gpu, *, with_index: bool = True) -> list[Line]:
    """Who holds memory on the GPU; an owner who is not visible is said to be so."""
    where = f"GPU {gpu.index}  " if with_index else ""
    lines: list[Line] = []
    for process in gpu.processes:
        owner = process.user or "owner not visible"
        whose = f"  {process.engine}" if process.engine else "  not of llmgw"
        lines.append(
            line(
                span(f"  {where}", Tone.DIM),
                span(f"pid {process.pid}  {process.name or 'name not visible'}  {owner}  "),
                span(f"{format_gib(process.memory_mib)} GiB"),
                span(whose, Tone.ACCENT if process.engine else Tone.WARN),
            )
        )
    return lines


def kind_text(kind: PortKind) -> str:
    """The short name of a port's protocol family."""
    return {PortKind.INFINIBAND: "ib", PortKind.UNKNOWN: "?"}.get(kind, kind.value)


def port_is_up(port: Port) -> bool:
    """Whether traffic can use the port."""
    return port.state == "ACTIVE"


def rate_text(port: Port) -> str:
    """`400G`."""
    return format_number(port.rate_gbps, "G")


def port_line(port: Port) -> Line:
    """One port in one line."""
    up = port_is_up(port)
    word = "● up" if up else f"▲ {(port.state or 'unknown').lower()}"
    return line(
        span(f"{port.hca}:{port.port:<3}"),
        *fit(line(span(word, Tone.OK if up else Tone.WARN)), 10),
        span(f"{kind_text(port.kind):<10}{rate_text(port):>5}  "),
        span(port.fabric or "no fabric", Tone.ACCENT if port.fabric else Tone.DIM),
        span(f"  {port.netdev}", Tone.DIM) if port.netdev else None,
    )
