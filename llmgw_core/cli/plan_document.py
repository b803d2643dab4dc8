"""A plan as a document from which it can be made again: the request, what runs, and what it was planned by."""

import llmgw_core
from llmgw_core.cli.inventory_document import utc_now
from llmgw_core.domain.inventory import INVENTORY_SCHEMA, FleetSnapshot, Inventory
from llmgw_core.domain.launch import LaunchPlan
from llmgw_core.domain.wire import dump_json, to_jsonable
from llmgw_core.planning.plan_hash import hash_plan


def render_document(plan: LaunchPlan, seen: FleetSnapshot) -> str:
    """The plan with its hash, the version that made it, and the inventory of its nodes as they were then.

    `request` is a launch spec, and `inventory` what `--inventory` takes.
    """
    chosen = {rank.node for rank in plan.ranks}
    nodes = tuple(view.node for view in seen.nodes if view.node.name in chosen or not chosen)
    names = {node.name for node in nodes}
    inventory = Inventory(
        INVENTORY_SCHEMA,
        utc_now(),
        nodes,
        tuple(item for item in seen.fabrics if names & set(item.nodes)),
        tuple(item for item in seen.islands if names & set(item.nodes)),
    )
    document = {
        **to_jsonable(plan),
        "hash": hash_plan(plan),
        "llmgw": llmgw_core.__version__,
        "inventory": to_jsonable(inventory),
    }
    return dump_json(document, indent=2)
