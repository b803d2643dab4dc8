"""A plan, and what its nodes told, as the checks look at it. Pure."""

from collections.abc import Mapping, Sequence

from llmgw_core.domain.hardware import PortKind
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import LaunchPlan, RankPlan
from llmgw_core.domain.network import NodeNetwork
from llmgw_core.planning.gang_placement import TCP
from llmgw_core.planning.interfaces import ChosenInterface
from llmgw_core.planning.network_checks.situation import Side, Situation
from llmgw_core.planning.network_checks.stacks import find_stacks
from llmgw_core.planning.network_env import list_fabric_ports


def describe_situation(
    plan: LaunchPlan,
    nodes: Sequence[Node],
    facts: Mapping[str, NodeNetwork | None],
    links: Mapping[str, ChosenInterface],
    nccl: tuple[int, ...] | None,
) -> Situation:
    """The situation of a plan with at least one rank.

    Args:
        nodes: at least those of the plan.
        facts: by node, as far as they told.
        links: by node, where its peers come to it.
        nccl: the oldest version among the nodes.
    """
    by_name = {node.name: node for node in nodes}
    sides = tuple(
        _make_side(plan, rank, by_name[rank.node], facts.get(rank.node), links.get(rank.node))
        for rank in plan.ranks
    )
    kinds: set[PortKind] = {port.kind for side in sides for port in side.chosen}
    kv_transfer, deepep = find_stacks(plan.request.args, plan.ranks[0].env)
    return Situation(
        sides,
        kinds.pop() if len(kinds) == 1 else None,
        nccl,
        is_single=len(sides) == 1,
        wants_tcp=plan.fabric in (None, TCP),
        wants_kv_transfer=kv_transfer,
        wants_deepep=deepep,
    )


def _make_side(
    plan: LaunchPlan,
    rank: RankPlan,
    node: Node,
    network: NodeNetwork | None,
    link: ChosenInterface | None,
) -> Side:
    fabric = plan.fabric if len(plan.ranks) > 1 else None
    return Side(
        node.name,
        network,
        node.ports,
        list_fabric_ports(node, fabric) if fabric not in (None, TCP) else (),
        rank.env,
        frozenset(plan.request.env) & frozenset(rank.env),
        link,
        len(rank.gpus),
        node.host.boot_id,
    )
