"""One command's fleet: chosen nodes, connected, and what to do when some are silent."""

import argparse
import asyncio
import os
import sys
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
async def open_fleet(
    args: argparse.Namespace, *, needs_answer: bool = True
) -> AsyncIterator[tuple[Fleet, FleetSnapshot]]:
    """The fleet of the command's nodes, each of which has answered or failed once. Failures are told on stderr.

    Args:
        needs_answer: whether the command makes no sense when all nodes are silent.

    Raises:
        NodeError: no node answered at all.
    """
    targets = select_targets(args.cluster, args.nodes, os.environ)
    async with Fleet(targets, interval_s=1.0) as fleet:
        snapshot = await fleet.settle(SETTLE_S if args.timeout is None else args.timeout)
        silent = [view.node for view in snapshot.nodes if not view.node.reachable]
        if needs_answer and silent and len(silent) == len(snapshot.nodes):
            raise _first_error(snapshot)
        for node in silent:
            why = clean(node.error.message) if node.error else "it does not answer"
            print_note(f"llmgw: {node.name}: {why}")
            if node.error and node.error.hint:
                print_note(f"  → {clean(node.error.hint)}")
        yield fleet, snapshot


async def confirm(question: str) -> bool:
    """Ask on the terminal; anything but yes is no. Where nobody can answer, the command itself was the answer.

    Waits on the event loop, so that connections go on and Ctrl-C ends it at once.
    """
    if not sys.stdin.isatty():
        return True
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    is_typed = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), is_typed.set)
    try:
        await is_typed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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
