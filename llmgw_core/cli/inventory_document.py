"""One reading of every node, as a document or as a table."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from llmgw_core.agent.probes.smi_start import StartedReading
from llmgw_core.cli.output import (
    EXIT_ALL_SILENT,
    EXIT_SOME_SILENT,
    clean,
    print_note,
    print_result,
    render_table,
)
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import INVENTORY_SCHEMA, Inventory, Node
from llmgw_core.domain.wire import dump_json
from llmgw_core.fleet.config import Target

_LISTED = 4


def print_inventory(inventory: Inventory, *, as_json: bool) -> int:
    """Print it, and on stderr why nodes are silent. Returns the exit status: 0, 3 some silent, 4 all silent."""
    if as_json:
        print_result(dump_json(inventory, indent=2))
    else:
        print_result(render_inventory(inventory))
    for node in inventory.nodes:
        if not node.reachable and node.error is not None:
            print_note(f"llmgw: {node.name}: {clean(node.error.message)}")
            print_note(f"  → {clean(node.error.hint)}")
    return judge_silence(inventory.nodes)


def judge_silence(nodes: Sequence[Node]) -> int:
    """The exit status for what answered: 0 all, 3 some did not, 4 none did."""
    silent = sum(not node.reachable for node in nodes)
    if silent == 0:
        return 0
    return EXIT_ALL_SILENT if silent == len(nodes) else EXIT_SOME_SILENT


def read_here(name: str, started: StartedReading | None) -> Inventory:
    """This machine, without a daemon. `started`: its nvidia-smi, when that is under way already."""
    from llmgw_core.agent.local import read_node_here
    from llmgw_core.planning.fabrics import build_inventory

    node = read_node_here(os.environ, started=started)
    return build_inventory([replace(node, name=name, address=None)], utc_now())


def read_fleet(targets: Sequence[Target], timeout_s: float) -> Inventory:
    """Every target once, over its link."""
    import asyncio

    return asyncio.run(_settle_fleet(targets, timeout_s))


def render_inventory(inventory: Inventory) -> str:
    """The nodes as a table, then every GPU and node that needs a look."""
    rows = [
        (
            node.name,
            "ok" if node.reachable and node.error is None else _code_of(node),
            _count_gpus(node.gpus),
            _free_gpus(node.gpus),
            _describe_ports(node),
            node.island,
            len([engine for engine in node.engines if not engine.state.is_over]),
        )
        for node in inventory.nodes
    ]
    header = ("NODE", "STATE", "GPUS", "FREE", "PORTS", "ISLAND", "ENGINES")
    notes = [
        f"{node.name} GPU {gpu.index}: {flag.severity.value} {flag.code}: {clean(flag.message)}"
        for node in inventory.nodes
        for gpu in node.gpus
        for flag in gpu.health
        if flag.severity is not Severity.INFO
    ]
    notes += [
        f"{node.name}: {node.error.code}: {clean(node.error.message)} ({clean(node.error.hint)})"
        for node in inventory.nodes
        if node.reachable and node.error is not None
    ]
    notes += [
        f"{node.name}: {flag.severity.value} {flag.code}: {clean(flag.message)}"
        for node in inventory.nodes
        for flag in node.health
        if flag.severity is not Severity.INFO
    ]
    notes += [
        f"{_shorten(nodes)}: {what}" for what, nodes in _group_excluded(inventory.nodes).items()
    ]
    return "\n".join([render_table(header, rows), *notes])


def utc_now() -> str:
    """Now as RFC 3339, UTC, in whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


async def _settle_fleet(targets: Sequence[Target], timeout_s: float) -> Inventory:
    from llmgw_core.fleet.fleet import Fleet

    async with Fleet(targets) as fleet:
        snapshot = await fleet.settle(timeout_s)
    nodes = tuple(view.node for view in snapshot.nodes)
    return Inventory(INVENTORY_SCHEMA, utc_now(), nodes, snapshot.fabrics, snapshot.islands)


def _code_of(node: Node) -> str:
    return node.error.code if node.error is not None else "unreachable"


def _count_gpus(gpus: Sequence[Gpu]) -> str:
    counts = Counter(gpu.gpu_class or "?" for gpu in gpus)
    counts.update(item.gpu_class or item.profile for gpu in gpus for item in gpu.mig_instances)
    return " + ".join(f"{count}×{name}" for name, count in sorted(counts.items()))


def _free_gpus(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return ""
    text = f"{sum(gpu.available for gpu in gpus)}/{len(gpus)}"
    slices = [item for gpu in gpus for item in gpu.mig_instances]
    if slices:
        text += f" + {sum(item.available for item in slices)}/{len(slices)} slices"
    return text


def _group_excluded(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Why an active port is not used → the nodes where it is so: a cluster's nodes are mostly alike."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for port in node.ports:
            if port.state == "ACTIVE" and port.excluded is not None:
                note = port.excluded
                what = f"port {port.hca}/{port.port} is not used: {note.code}: {clean(note.reason)}"
                found.setdefault(what, []).append(node.name)
    return found


def _shorten(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LISTED])
    return shown + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")


def _describe_ports(node: Node) -> str:
    counts = Counter(
        f"{port.kind.value} {port.rate_gbps:g}" if port.rate_gbps is not None else port.kind.value
        for port in node.ports
        if port.state == "ACTIVE"
    )
    text = " + ".join(f"{count}×{kind}" for kind, count in sorted(counts.items()))
    down = sum(port.state != "ACTIVE" for port in node.ports)
    return text + (f" ({down} not active)" if down else "")
