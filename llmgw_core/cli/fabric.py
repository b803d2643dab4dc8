"""`llmgw fabric`: which nodes reach one another by InfiniBand or RoCE, and why; `--probe` tries it."""

import argparse
import os
from collections.abc import Mapping, Sequence

from llmgw_core.cli.fabric_env import print_network_env
from llmgw_core.cli.inventory_document import judge_silence
from llmgw_core.cli.output import clean, print_note, print_result, render_table
from llmgw_core.cli.session import open_fleet
from llmgw_core.domain.hardware import Port
from llmgw_core.domain.inventory import Fabric, Island, Node
from llmgw_core.domain.reach import LinkProbe, PairVerdict
from llmgw_core.domain.units import natural_key
from llmgw_core.domain.wire import dump_json, to_jsonable
from llmgw_core.errors import LlmgwError, UsageError
from llmgw_core.fleet.client import AgentClient
from llmgw_core.fleet.config import select_targets
from llmgw_core.fleet.fabric_probing import probe_pairs
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.inventory_file import load_inventory
from llmgw_core.planning.fabric_verdicts import judge_pairs

FABRIC_SCHEMA = "llmgw.fabric/1"
_PAIR = 2
Judged = tuple[tuple[PairVerdict, tuple[LinkProbe, ...]], ...]


async def run_fabric(args: argparse.Namespace) -> int:
    """Print every pair of the nodes, or one pair with its ports. Returns 0, 3 some silent, 4 all silent.

    Raises:
        UsageError: no such node, or a probe of a saved inventory.
    """
    if args.env and args.probe:
        raise UsageError("--env and --probe are two questions", "", "ask them one after the other")
    if args.inventory is not None:
        if args.probe:
            raise UsageError(
                "a saved inventory cannot be probed", "", "leave out --inventory or --probe"
            )
        return _run_on_file(args)
    async with open_fleet(args) as (fleet, snapshot):
        overrides = {item.name: item.fabric for item in fleet.targets if item.fabric}
        nodes = choose_nodes([view.node for view in snapshot.nodes], args.pair)
        if args.env:
            return print_network_env(args, nodes, snapshot.fabrics)
        judged: Judged = tuple((pair, ()) for pair in judge_pairs(nodes, overrides))
        if args.probe:
            judged = await probe_pairs(_clients(fleet, nodes), nodes, [pair for pair, _ in judged])
    _print(args, nodes, snapshot.fabrics, snapshot.islands, judged)
    return judge_silence(nodes)


def choose_nodes(nodes: Sequence[Node], names: Sequence[str]) -> tuple[Node, ...]:
    """The two nodes of these names, or all.

    Raises:
        UsageError: another number of names, or no such node.
    """
    if not names:
        return tuple(nodes)
    by_name = {node.name: node for node in nodes}
    if len(set(names)) != _PAIR:
        raise UsageError(
            "fabric compares two nodes, or all", f"you named {', '.join(names)}", "name two"
        )
    for name in names:
        if name not in by_name:
            raise UsageError(
                f"there is no node {name}", f"the nodes are {', '.join(by_name)}", "name two"
            )
    return tuple(by_name[name] for name in sorted(names, key=natural_key))


def _run_on_file(args: argparse.Namespace) -> int:
    inventory = load_inventory(args.inventory)
    overrides: Mapping[str, str] = {}
    if args.cluster or args.nodes:
        targets = select_targets(args.cluster, args.nodes, os.environ)
        overrides = {item.name: item.fabric for item in targets if item.fabric}
    nodes = choose_nodes(inventory.nodes, args.pair)
    if args.env:
        return print_network_env(args, nodes, inventory.fabrics)
    judged: Judged = tuple((pair, ()) for pair in judge_pairs(nodes, overrides))
    _print(args, nodes, inventory.fabrics, inventory.islands, judged)
    return judge_silence(nodes)


def _clients(fleet: Fleet, nodes: Sequence[Node]) -> dict[str, AgentClient]:
    """Of the nodes that are connected; the others were told of already."""
    found = {}
    for node in nodes:
        try:
            found[node.name] = fleet.client(node.name)
        except LlmgwError as error:
            print_note(f"llmgw: {node.name}: not probed: {clean(error.message)}")
    return found


def _print(
    args: argparse.Namespace,
    nodes: Sequence[Node],
    fabrics: Sequence[Fabric],
    islands: Sequence[Island],
    judged: Judged,
) -> None:
    if args.json:
        pairs = [{**to_jsonable(pair), "links": to_jsonable(links)} for pair, links in judged]
        document = {"fabrics": fabrics, "islands": islands, "pairs": pairs}
        print_result(dump_json({"schema": FABRIC_SCHEMA, **document}, indent=2))
        return
    parts = [_render_fabrics(fabrics), _render_pairs(judged)]
    if len(nodes) <= _PAIR:
        parts.append(_render_ports(nodes))
    print_result("\n\n".join(part for part in parts if part))


def _render_fabrics(fabrics: Sequence[Fabric]) -> str:
    rows = [
        (item.id, item.kind, " ".join(item.nodes), item.verdict.value if item.verdict else None)
        for item in fabrics
    ]
    if not rows:
        return "No node has a port that engines could use: each is an island of its own."
    return render_table(("FABRIC", "KIND", "NODES", "SHARED"), rows)


def _render_pairs(judged: Judged) -> str:
    rows = [(*pair.nodes, pair.verdict.value, pair.reason) for pair, _ in judged]
    if not rows:
        return ""
    lines = [render_table(("NODE", "NODE", "VERDICT", "WHY"), rows)]
    lines += [
        f"{pair.nodes[0]} {link.ports[0]} → {pair.nodes[1]} {link.ports[1]}: "
        f"{_RESULTS[link.connected]}, {clean(link.detail)}"
        for pair, links in judged
        for link in links
    ]
    return "\n".join(lines)


_RESULTS = {True: "connected", False: "not connected", None: "not tried"}


def _render_ports(nodes: Sequence[Node]) -> str:
    rows = [
        (
            node.name,
            f"{port.hca}:{port.port}",
            port.kind.value,
            port.state,
            _rate(port),
            *_use(port),
        )
        for node in nodes
        for port in node.ports
    ]
    return (
        render_table(("NODE", "PORT", "KIND", "STATE", "GBIT/S", "USED", "WHY"), rows)
        if rows
        else ""
    )


def _rate(port: Port) -> str | None:
    return None if port.rate_gbps is None else f"{port.rate_gbps:g}"


def _use(port: Port) -> tuple[str, str | None]:
    if port.excluded is not None:
        return "no", f"{port.excluded.code}: {port.excluded.reason}"
    if port.suspect is not None:
        return "yes?", f"{port.suspect.code}: {port.suspect.reason}"
    return "yes" if port.usable else "no", port.fabric
