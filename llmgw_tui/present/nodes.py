"""The cluster view: one row a node, and everything known of the selected one. Pure."""

from collections import Counter
from collections.abc import Sequence

from llmgw_core.domain.engine import EngineStatus
from llmgw_core.domain.hardware import Host, Port
from llmgw_core.domain.inventory import Contact, FleetSnapshot, Node, NodeView
from llmgw_tui.present.detail import (
    BLANK,
    age_text,
    fact,
    fault_lines,
    gpu_line,
    heading,
    health_lines,
    kind_text,
    port_is_up,
    port_line,
    process_lines,
    rate_text,
    retry_text,
)
from llmgw_tui.present.states import (
    engine_cell,
    engine_order,
    engine_state_of_name,
    gpu_strip,
    node_state,
)
from llmgw_tui.present.table import Column, Key, Row, Rows
from llmgw_tui.present.text import Line, Tone, join, line, span
from llmgw_tui.present.trend import trend_lines
from llmgw_tui.present.units import format_age, format_bytes, format_number

COLUMNS = (
    Column("NODE", least=6, most=24, keep=9),
    Column("STATE", least=14, most=16, keep=9),
    Column("GPUS", least=4, most=20, keep=8),
    Column("FREE", least=3, most=7, keep=7, right=True),
    Column("CLASS", least=10, most=26, keep=5),
    Column("ENGINES", least=14, most=28, keep=6),
    Column("FABRIC", least=12, most=22, keep=4),
    Column("ISLAND", least=10, most=24, keep=2),
    Column("ADDRESS", least=12, most=24, keep=1),
    Column("AGE", least=3, most=7, keep=7, right=True),
)


def rows(snapshot: FleetSnapshot, now: float) -> Rows:
    """One row a node, in the snapshot's order; those that do not answer are grey."""
    views = snapshot.nodes
    return Rows([(view.node.name,) for view in views], lambda place: _row(views[place], now))


def _row(view: NodeView, now: float) -> Row:
    node = view.node
    known = view.updated_at is not None
    row = Row(
        (node.name,),
        (
            line(span(node.name, Tone.STRONG)),
            node_state(view).cell,
            gpu_strip(node.gpus) if node.gpus else _absent(known=known),
            line(span(_free_text(node)) if node.gpus else span(None)),
            line(span(class_text(node)) if node.gpus else span(None)),
            engine_counts(node.engines) or line(span(None)),
            fabric_cell(node.ports) if node.ports else _absent(known=known),
            line(span(node.island)),
            line(span(node.address or "this machine", Tone.DIM)),
            line(span(age_text(view, now), Tone.DIM)),
        ),
    )
    return row if view.contact is Contact.CONNECTED else row.as_dim()


def _absent(*, known: bool) -> Line:
    """Nothing there is "none"; nothing heard yet is an em dash."""
    return line(span("none", Tone.DIM) if known else span(None))


def _free_text(node: Node) -> str:
    return f"{sum(gpu.available for gpu in node.gpus)}/{len(node.gpus)}"


def class_text(node: Node) -> str:
    """`8×h100-80g`, classes in order of their first GPU; an unreadable class is a `?`."""
    counts = Counter(gpu.gpu_class or "?" for gpu in node.gpus)
    return " ".join(f"{count}×{name}" for name, count in counts.items())


def engine_counts(engines: Sequence[EngineStatus], *, short: bool = False) -> Line:
    """`● 2 ready  ◐ 1 loading`, in the order of an engine's life; stopped ones are not counted."""
    counts = Counter(engine.state for engine in engines)
    lines = []
    for state in sorted(counts, key=engine_order):
        look = engine_state_of_name(state)
        if look.word != "stopped":
            word = "" if short else f" {look.word}"
            lines.append(line(span(f"{look.glyph} {counts[state]}{word}", look.tone)))
    return join(lines, " " if short else "  ")


def fabric_cell(ports: Sequence[Port]) -> Line:
    """`ib 4×400G`, with `3/4` and a mark where not all ports are up."""
    groups: dict[tuple[str, str], list[bool]] = {}
    for port in ports:
        groups.setdefault((kind_text(port.kind), rate_text(port)), []).append(port_is_up(port))
    lines = []
    for (kind, rate), ups in groups.items():
        if all(ups):
            lines.append(line(span(f"{kind} {len(ups)}×{rate}")))
        elif any(ups):
            lines.append(line(span(f"{kind} ▲{sum(ups)}/{len(ups)}×{rate}", Tone.WARN)))
        else:
            lines.append(line(span(f"{kind} ▲{len(ups)} down", Tone.WARN)))
    return join(lines, " ")


def detail(snapshot: FleetSnapshot, key: Key, now: float) -> tuple[Line, ...]:
    """Everything known of one node: errors first, then host, GPUs, processes, ports, engines."""
    view = next((item for item in snapshot.nodes if item.node.name == key[0]), None)
    if view is None:
        return (line(span(f"{key[0]} is no longer part of the cluster.", Tone.DIM)),)
    node = view.node
    lines: list[Line] = [
        line(span(node.name, Tone.TITLE), "  ", *node_state(view).cell),
        *_contact_lines(view, now),
        *fault_lines(node.error),
    ]
    if view.updated_at is not None:
        lines += [*_host_lines(node), BLANK, *_gpu_block(node), *_port_block(node)]
        lines += _trend_block(view)
        lines += _engine_block(view)
    return tuple(lines)


def _contact_lines(view: NodeView, now: float) -> list[Line]:
    if view.contact is Contact.CONNECTED:
        return []
    age = age_text(view, now)
    seen = "no answer yet" if age is None else f"what is shown is {age} old"
    retry = retry_text(view, now)
    return [line(span(f"◌ {seen}" + (f", {retry}" if retry else ""), Tone.WARN))]


def _host_lines(node: Node) -> list[Line]:
    host = node.host
    driver = f"{node.driver_version or '—'}, CUDA {node.cuda_version or '—'}"
    lines = [
        fact("address", node.address or "this machine"),
        fact("system", span(host.os), f", Linux {host.kernel}" if host.kernel else None),
        fact("host", _load_text(host)),
        fact("models", _room_text(host)) if host.model_cache else None,
        fact("driver", driver if node.driver_version else span("none found", Tone.DIM)),
        fact("island", span(node.island)),
    ]
    return [item for item in lines if item is not None]


def _load_text(host: Host) -> str:
    parts = [f"{format_number(host.cpu_count)} CPUs"]
    if host.cpu_percent is not None:
        parts.append(f"{host.cpu_percent:.0f} % used")
    if host.load_1m is not None:
        parts.append(f"load {host.load_1m:.1f}")
    if host.memory_total_bytes and host.memory_available_bytes is not None:
        free, total = host.memory_available_bytes, host.memory_total_bytes
        parts.append(f"{format_bytes(free)} of {format_bytes(total)} free")
    if host.uptime_seconds is not None:
        parts.append(f"up {format_age(host.uptime_seconds)}")
    return ", ".join(parts)


def _room_text(host: Host) -> str:
    """The disk that models are downloaded to."""
    free, total = host.model_cache_free_bytes, host.model_cache_total_bytes
    if free is None or total is None:
        return f"{host.model_cache}: the disk does not answer"
    return f"{format_bytes(free)} of {format_bytes(total)} free, {host.model_cache}"


def _trend_block(view: NodeView) -> list[Line]:
    wanted = (("CPU", "cpu_percent", 100.0, " %"), ("memory", "memory_used_percent", 100.0, " %"))
    lines = trend_lines(view, "host", "", wanted)
    return [*lines, BLANK] if lines else []


def _gpu_block(node: Node) -> list[Line]:
    if not node.gpus:
        return [heading("GPUs"), line(span("  none on this node", Tone.DIM)), BLANK]
    lines = [heading(f"GPUs  {class_text(node)}, {_free_text(node)} free")]
    lines += [gpu_line(gpu) for gpu in node.gpus]
    for gpu in node.gpus:
        lines += health_lines(gpu)
    processes = [item for gpu in node.gpus for item in process_lines(gpu)]
    if processes:
        lines += [BLANK, heading("Processes on GPUs"), *processes]
    return [*lines, BLANK]


def _port_block(node: Node) -> list[Line]:
    if not node.ports:
        text = "  no adapter: a single-node island"
        return [heading("Ports"), line(span(text, Tone.DIM)), BLANK]
    return [heading("Ports"), *(port_line(port) for port in node.ports), BLANK]


def _engine_block(view: NodeView) -> list[Line]:
    engines = view.node.engines
    if not engines:
        text = "  none: press L to launch one"
        return [heading("Engines"), line(span(text, Tone.DIM))]
    return [
        heading("Engines"),
        *(
            join(
                [engine_cell(item, view.contact), line(item.name), line(span(item.model, Tone.DIM))]
            )
            for item in engines
        ),
    ]


def empty(snapshot: FleetSnapshot | None) -> tuple[Line, ...]:
    """What stands in place of the table when it has no row."""
    if snapshot is None:
        return (line(span("Connecting to the cluster…", Tone.DIM)),)
    return (
        heading("No nodes"),
        line("Name them with --nodes 'gpu[01-16]', or write them into"),
        line("~/.config/llmgw/cluster.toml; --cluster FILE reads another file."),
    )
