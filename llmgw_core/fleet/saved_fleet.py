"""A saved inventory in the place of a fleet: to look at, and to plan by."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from llmgw_core.domain.engine import EngineStatus
from llmgw_core.domain.inventory import Contact, FleetSnapshot, Inventory, Node, NodeView
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest
from llmgw_core.errors import UsageError
from llmgw_core.fleet.client import AgentClient
from llmgw_core.planning.launch import plan as make_plan
from llmgw_core.planning.ranks import Between


class SavedFleet:
    """Shows the document for ever; nothing in it can be reached."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    async def snapshots(self) -> AsyncIterator[FleetSnapshot]:
        """Yield the one picture that there is, and wait."""
        yield self.snapshot()
        await asyncio.Event().wait()

    def snapshot(self) -> FleetSnapshot:
        """Return the document as a picture of when it was written."""
        saved = self._inventory
        taken_at = parse_time(saved.generated_at)
        views = tuple(_view(node, taken_at) for node in saved.nodes)
        return FleetSnapshot(taken_at or 0.0, views, saved.fabrics, saved.islands)

    def client(self, node: str) -> AgentClient:
        """Raise: there is nobody to speak to.

        Raises:
            UsageError: always.
        """
        raise _out_of_reach(node)

    async def plan(self, request: LaunchRequest, launch_id: str) -> LaunchPlan:
        """Plan by the document; what only the node could say is not asked."""
        between = Between(self._inventory.fabrics)
        return make_plan(request, self._inventory.nodes, launch_id, {}, between=between)

    async def launch(self, plan: LaunchPlan) -> tuple[EngineStatus, ...]:
        """Raise: nothing can be started.

        Raises:
            UsageError: always.
        """
        raise _out_of_reach(", ".join(rank.node for rank in plan.ranks) or "the plan")

    async def stop(self, node: str, engine_id: str, grace_seconds: float | None) -> None:
        """Raise: nothing can be stopped.

        Raises:
            UsageError: always.
        """
        del engine_id, grace_seconds
        raise _out_of_reach(node)

    async def forget(self, node: str, engine_id: str) -> None:
        """Raise: nothing can be forgotten.

        Raises:
            UsageError: always.
        """
        del engine_id
        raise _out_of_reach(node)

    async def restart(self, ranks: Sequence[tuple[str, str]], launch_id: str) -> None:
        """Raise: nothing can be started.

        Raises:
            UsageError: always.
        """
        del launch_id
        raise _out_of_reach(", ".join(node for node, _ in ranks))

    async def refresh(self) -> None:
        """Do nothing: the document stays as it is."""


def parse_time(text: str) -> float | None:
    """`2026-01-01T00:00:00Z` as UTC epoch seconds; None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def _out_of_reach(what: str) -> UsageError:
    return UsageError(
        f"{what} is shown from a saved inventory", "", "start without --inventory to reach it"
    )


def _view(node: Node, taken_at: float | None) -> NodeView:
    contact = Contact.CONNECTED if node.reachable else Contact.UNREACHABLE
    is_known = node.reachable or bool(node.gpus or node.ports)
    return NodeView(node, contact, updated_at=taken_at if is_known else None)
