"""What the network under a plan says against it: what the nodes told, judged, and every peer tried."""

from collections.abc import Sequence
from contextlib import suppress

from llmgw_core.domain.findings import Finding
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import LaunchPlan
from llmgw_core.errors import LlmgwError
from llmgw_core.fleet.between import ask_facts
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.peer_reach import Prober, judge_tries, probe_peers
from llmgw_core.planning.network_checks import run_checks
from llmgw_core.planning.network_checks.of_plan import describe_situation
from llmgw_core.planning.ranks import Between


async def check_network(
    fleet: Fleet, plan: LaunchPlan, nodes: Sequence[Node], between: Between
) -> tuple[Finding, ...]:
    """Return what is found. Of one node it is what several GPUs share; of one GPU nothing is asked.

    Args:
        nodes: at least those of the plan.
        between: of a launch over several nodes, with their facts.
    """
    names = [rank.node for rank in plan.ranks]
    facts = between.facts
    if len(names) == 1 and len(plan.ranks[0].gpus) > 1:
        facts = await ask_facts(fleet, names, plan.request.venv)
    if not names or facts is None:
        return ()
    case = describe_situation(plan, nodes, facts, between.links, between.nccl)
    reached = await _try_peers(fleet, names, between)
    return (*run_checks(case), *reached)


async def _try_peers(fleet: Fleet, names: Sequence[str], between: Between) -> tuple[Finding, ...]:
    clients: dict[str, Prober] = {}
    for name in names:
        with suppress(LlmgwError):  # its own preflight tells that it is away
            clients[name] = fleet.client(name)
    chosen = {
        name: between.links[name] for name in names if name in clients and name in between.links
    }
    if len(chosen) <= 1:
        return ()
    return judge_tries(await probe_peers(clients, chosen), chosen)
