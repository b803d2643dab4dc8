"""The fabric view: every port of every node, and who can reach whom. Pure."""

from llmgw_core.domain.hardware import Port
from llmgw_core.domain.inventory import Contact, FleetSnapshot, Island, Node, NodeView
from llmgw_tui.present.detail import BLANK, fact, heading, kind_text, port_is_up, rate_text
from llmgw_tui.present.reasons import port_verdict
from llmgw_tui.present.table import Column, Key, Row, Rows
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.present.trend import trend_lines
from llmgw_tui.present.units import count_of, format_gbps

COLUMNS = (
    Column("NODE", least=6, most=24, keep=9),
    Column("PORT", least=8, most=16, keep=9),
    Column("STATE", least=10, most=14, keep=9),
    Column("KIND", least=4, most=10, keep=8),
    Column("RATE", least=4, most=6, keep=7, right=True),
    Column("IN", least=5, most=6, keep=6, right=True),
    Column("OUT", least=5, most=6, keep=6, right=True),
    Column("FABRIC", least=20, most=40, keep=8),
    Column("ISLAND", least=10, most=28, keep=4),
    Column("NETDEV", least=6, most=14, keep=5),
    Column("NUMA", least=4, most=4, keep=3, right=True),
    Column("PCI", least=12, most=14, keep=2),
    Column("GID", least=12, most=40, keep=1),
)


def rows(snapshot: FleetSnapshot, now: float) -> Rows:
    """One row a port, by node; a node without adapters has one row that says so."""
    del now
    items = [(view, port) for view in snapshot.nodes for port in view.node.ports or (None,)]
    return Rows([_key_of(*item) for item in items], lambda place: _row(*items[place]))


def _key_of(view: NodeView, port: Port | None) -> Key:
    name = view.node.name
    return (name,) if port is None else (name, port.hca, str(port.port))


def _row(view: NodeView, port: Port | None) -> Row:
    made = _bare_row(view) if port is None else _port_row(view.node, port)
    return made if view.contact is Contact.CONNECTED else made.as_dim()


def _port_row(node: Node, port: Port) -> Row:
    return Row(
        (node.name, port.hca, str(port.port)),
        (
            line(span(node.name, Tone.STRONG)),
            line(f"{port.hca}:{port.port}"),
            state_cell(port),
            line(kind_text(port.kind)),
            line(rate_text(port)),
            line(span(format_gbps(port.rx_gbps))),
            line(span(format_gbps(port.tx_gbps))),
            line(span(port.fabric or "none", Tone.ACCENT if port.fabric else Tone.DIM)),
            line(span(node.island, Tone.DIM)),
            line(span(port.netdev)),
            line(span(port.numa_node)),
            line(span(port.pci_bus_id, Tone.DIM)),
            line(span(port.gid, Tone.DIM)),
        ),
    )


def state_cell(port: Port) -> Line:
    """`● up`, or the state the kernel says; a down link says what the physical layer does."""
    if port_is_up(port):
        return line(span("● up", Tone.OK))
    if port.state is None:
        return line(span("? unknown", Tone.WARN))
    return line(span(f"▲ {port.state.lower()}", Tone.WARN))


def _bare_row(view: NodeView) -> Row:
    known = view.updated_at is not None
    said = "no adapter" if known else "not known yet"
    island = "single-node island" if known else None
    cells = [line(span(view.node.name, Tone.STRONG)), line(span(said, Tone.DIM))]
    cells += [
        (),
        (),
        (),
        (),
        (),
        line(span(island, Tone.DIM)),
        line(span(view.node.island, Tone.DIM)),
    ]
    return Row((view.node.name,), (*cells, *([()] * (len(COLUMNS) - len(cells)))))


def detail(snapshot: FleetSnapshot, key: Key, now: float) -> tuple[Line, ...]:
    """The selected port, the fabrics and the islands of the cluster."""
    del now
    view = next((view for view in snapshot.nodes if view.node.name == key[0]), None)
    node = view.node if view else None
    port = _find_port(node, key) if node else None
    lines: list[Line] = []
    if view is not None and node is not None and port is not None:
        lines += [*_port_lines(node, port), BLANK, *_trend_block(view, port)]
    elif node is not None:
        lines += _bare_lines(node)
    return (*lines, *_fabric_lines(snapshot, port), BLANK, *_island_lines(snapshot, node))


def _find_port(node: Node, key: Key) -> Port | None:
    return next((port for port in node.ports if (node.name, port.hca, str(port.port)) == key), None)


def _bare_lines(node: Node) -> list[Line]:
    text = "no InfiniBand or RoCE adapter: its GPUs can work together inside the node only."
    return [line(span(node.name, Tone.TITLE)), line(text), BLANK]


def _port_lines(node: Node, port: Port) -> list[Line]:
    return [
        line(span(f"{node.name} {port.hca}:{port.port}", Tone.TITLE), "  ", *state_cell(port)),
        *port_verdict(port),
        fact("kind", f"{kind_text(port.kind)} over ", span(port.link_layer)),
        fact("link", span(port.physical_state), f", {rate_text(port)}b/s"),
        *_traffic_lines(port),
        fact("fabric", span(port.fabric or "none usable", Tone.ACCENT)),
        fact("GID", span(port.gid)),
        fact("LID", span(port.lid)),
        fact("netdev", span(port.netdev)),
        fact("PCI", span(port.pci_bus_id), ", NUMA node ", span(port.numa_node)),
    ]


def _traffic_lines(port: Port) -> list[Line]:
    """What it carries and which errors it counts, where that is known."""
    lines = []
    if port.rx_gbps is not None or port.tx_gbps is not None:
        text = f"{format_gbps(port.rx_gbps)} in, {format_gbps(port.tx_gbps)} out, Gb/s"
        lines.append(fact("traffic", text))
    if port.error_rates is not None:
        rates = [f"{name} {rate:g}/s" for name, rate in sorted(port.error_rates.items())]
        moved = span(", ".join(rates), Tone.WARN)
        lines.append(fact("errors", moved if rates else span("none counted now", Tone.DIM)))
    return lines


def _trend_block(view: NodeView, port: Port) -> list[Line]:
    wanted = (("in", "rx_gbps", None, " Gb/s"), ("out", "tx_gbps", None, " Gb/s"))
    lines = trend_lines(view, "port", f"{port.hca}:{port.port}", wanted)
    return [*lines, BLANK] if lines else []


def _fabric_lines(snapshot: FleetSnapshot, port: Port | None) -> list[Line]:
    if not snapshot.fabrics:
        return [heading("Fabrics"), line(span("  none: no two nodes share one", Tone.DIM))]
    lines = [heading("Fabrics")]
    for fabric in snapshot.fabrics:
        mark = "▸" if port is not None and port.fabric == fabric.id else " "
        nodes = ", ".join(fabric.nodes)
        lines.append(line(f"{mark} ", span(fabric.id, Tone.ACCENT), f"  {fabric.kind}  {nodes}"))
    return lines


def _island_lines(snapshot: FleetSnapshot, node: Node | None) -> list[Line]:
    lines = [heading("Islands")]
    for island in snapshot.islands:
        mark = "▸" if node is not None and node.island == island.id else " "
        lines.append(line(f"{mark} ", span(island.id, Tone.STRONG), f"  {island_text(island)}"))
    return lines if len(lines) > 1 else [*lines, line(span("  none known yet", Tone.DIM))]


def island_text(island: Island) -> str:
    """`3 nodes, 16×h100-80g` or `single-node island, no GPUs`."""
    size = count_of(len(island.nodes), "node") if len(island.nodes) > 1 else "single-node island"
    classes = ", ".join(f"{count}×{name}" for name, count in sorted(island.gpu_classes.items()))
    return f"{size}, {classes or 'no GPUs'}"


def empty(snapshot: FleetSnapshot | None) -> tuple[Line, ...]:
    """What stands in place of the table when it has no row."""
    del snapshot
    return (line(span("No node is known yet, so no fabric is.", Tone.DIM)),)
