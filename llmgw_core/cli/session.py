"""One command's fleet: chosen nodes, connected, and what to do when some are silent."""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from llmgw_core.cli.output import clean, print_note
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.errors import LlmgwError, NodeError
from llmgw_core.fleet.config import select_targets
from llmgw_core.fleet.fleet import Fleet

SETTLE_S = 45.0
POLL_S = 0.5


@asynccontextmanager
async def open_fleet(args: argparse.Namespace) -> AsyncIterator[tuple[Fleet, FleetSnapshot]]:
    """The fleet of the command's nodes, each of which has answered or failed once. Failures are told on stderr.

    Raises:
        NodeError: no node answered at all.
    """
    targets = select_targets(args.cluster, args.nodes, os.environ)
    async with Fleet(targets, interval_s=1.0) as fleet:
        snapshot = await fleet.settle(SETTLE_S if args.timeout is None else args.timeout)
        silent = [view.node for view in snapshot.nodes if not view.node.reachable]
        if silent and len(silent) == len(snapshot.nodes):
            raise _first_error(snapshot)
        for node in silent:
            why = clean(node.error.message) if node.error else "it does not answer"
            print_note(f"llmgw: {node.name}: {why}")
        yield fleet, snapshot


def _first_error(snapshot: FleetSnapshot) -> LlmgwError:
    node = snapshot.nodes[0].node
    fault = node.error
    if fault is None:
        return NodeError("it does not answer", "", "llmgw inventory says more", node.name)
    error = NodeError(fault.message, "", fault.hint, node.name)
    others = len(snapshot.nodes) - 1
    if others:
        error.what += f" (and {others} more nodes are silent)"
    return error
