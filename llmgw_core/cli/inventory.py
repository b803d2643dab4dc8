"""`llmgw inventory` and `llmgw-tui --json`: which nodes, and how they are read.

This machine alone is read without asyncssh, pydantic or an event loop, and no daemon is started for it. Its nvidia-smi is
started first: it takes longer than all the imports.
"""

import os
from pathlib import Path

from llmgw_core.fleet.config import select_targets, this_machine

SETTLE_S = 45.0  # a first contact uploads the agent; a hung nvidia-smi takes ten seconds


def run_inventory(
    *,
    cluster: Path | None,
    nodes: str | None,
    timeout_s: float | None,
    as_json: bool,
    saved: Path | None = None,
) -> int:
    """Print the inventory of the chosen nodes. Returns the exit status: 0, 3 some silent, 4 all silent.

    Args:
        saved: a document to print instead of asking nodes.

    Raises:
        UsageError: a file or a set of nodes that cannot be read.
    """
    if saved is not None:
        return _print_saved(saved, as_json=as_json)
    targets = select_targets(cluster, nodes, os.environ)
    if targets == (this_machine(),):
        return _print_here(targets[0].name, as_json=as_json)
    from llmgw_core.cli.inventory_document import print_inventory, read_fleet

    inventory = read_fleet(targets, SETTLE_S if timeout_s is None else timeout_s)
    return print_inventory(inventory, as_json=as_json)


def _print_here(name: str, *, as_json: bool) -> int:
    from llmgw_core.agent.early import begin_node_reading

    started = begin_node_reading(os.environ)
    from llmgw_core.cli.inventory_document import print_inventory, read_here

    return print_inventory(read_here(name, started), as_json=as_json)


def _print_saved(path: Path, *, as_json: bool) -> int:
    from llmgw_core.cli.inventory_document import print_inventory
    from llmgw_core.fleet.inventory_file import load_inventory

    return print_inventory(load_inventory(path), as_json=as_json)
