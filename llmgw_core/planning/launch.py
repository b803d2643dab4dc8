"""A request and what is known of the nodes → the plan of everything that will run. Pure."""

from dataclasses import replace
from types import MappingProxyType
from typing import AbstractSet, Dict, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.domain.findings import Finding, has_errors
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import PLAN_SCHEMA, LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.domain.model import LaunchFacts
from llmgw_core.domain.secret_names import hide_secret_args, hide_secret_env
from llmgw_core.planning.api_keys import give_api_keys
from llmgw_core.planning.engines.flag_rules import check_commands
from llmgw_core.planning.gang_placement import GangPlacement, choose_count, place_gang
from llmgw_core.planning.gang_rules import check_fenced, check_gang
from llmgw_core.planning.mig import check_engine
from llmgw_core.planning.model_check import check_model, find_version
from llmgw_core.planning.overrides import apply_overrides
from llmgw_core.planning.placement import Placement, count_nodes, place
from llmgw_core.planning.placement_rules import check_name_elsewhere, check_placement
from llmgw_core.planning.ranks import ADAPTERS, Between, build_gang, build_single
from llmgw_core.planning.request_rules import check_request

# With these a place would be sought in vain, and what is said of it would only be noise.
_SENSELESS = frozenset({"parallelism", "arithmetic", "node-count", "node-twice"})


def plan(
    request: LaunchRequest,
    nodes: Sequence[Node],
    launch_id: str,
    venvs: Mapping[str, str],
    avoid_ports: AbstractSet[int] = frozenset(),
    *,
    facts: Mapping[str, LaunchFacts] = MappingProxyType({}),
    between: Between = Between(),  # noqa: B008 - frozen
) -> LaunchPlan:
    """The plan, with all findings at once. It has no ranks where a place could not be found.

    Args:
        launch_id: 32 hex digits; names the engines, so that the same plan launched twice starts one.
        venvs: the engine's virtual environment by node name, for requests that name none.
        avoid_ports: ports that are known to be taken, when the port is the planner's choice.
        facts: what nodes read of the model and the engine; of a node that is not there, nothing is known.
        between: what is known of the network, for launches over several nodes.
    """
    findings = list(check_request(request))
    findings += ADAPTERS[request.engine].check_arguments(request)
    places: Tuple[Placement, ...] = ()
    gang: Optional[GangPlacement] = None
    if not _SENSELESS.intersection(finding.code for finding in findings):
        places, gang, found = _find_places(request, nodes, avoid_ports, between)
        findings += found
    # A secret stops the launch; until then it must not be seen in what is printed of the plan.
    shown = replace(request, env=hide_secret_env(request.env), args=hide_secret_args(request.args))
    made = LaunchPlan(PLAN_SCHEMA, launch_id, shown, ())
    if places:
        for one in places:
            findings += check_placement(request, one)
        findings += check_name_elsewhere(request, places, nodes)
        findings += check_fenced(request, nodes)
        told, memory = check_model(request, places, facts)
        findings += told
        made = replace(made, memory=memory)
    if gang is not None:
        findings += check_gang(request, gang, between.fabrics)
        made, unmet = build_gang(made, gang, venvs, between)
        findings += unmet
    elif places:
        made = build_single(made, places[0], venvs)
    versions = _list_versions(request, made.ranks, facts)
    made, unkeyed = give_api_keys(request, made, versions)
    findings += unkeyed
    owned = ADAPTERS[request.engine].OWNED_FLAGS
    findings += check_engine(request.engine, made.ranks, versions)
    findings += check_commands(request.engine, made.ranks, versions, owned)
    return replace(made, findings=apply_overrides(request, findings), versions=versions)


def is_launchable(plan: LaunchPlan) -> bool:
    """Whether nothing stops the plan."""
    return bool(plan.ranks) and not has_errors(plan.findings)


def _find_places(
    request: LaunchRequest,
    nodes: Sequence[Node],
    avoid_ports: AbstractSet[int],
    between: Between,
) -> Tuple[Tuple[Placement, ...], Optional[GangPlacement], List[Finding]]:
    """A place for each rank, none where there is no room; and what joins them, where they are several."""
    count = count_nodes(request) or choose_count(request, nodes) or 1
    if count == 1:
        placement, found = place(request, nodes, avoid_ports)
        return ((placement,) if placement is not None else ()), None, list(found)
    gang, told = place_gang(request, nodes, count, between.fabrics, avoid_ports)
    return (gang.places if gang is not None else ()), gang, list(told)


def _list_versions(
    request: LaunchRequest, ranks: Sequence[RankPlan], facts: Mapping[str, LaunchFacts]
) -> Dict[str, str]:
    found = {rank.node: find_version(request.engine, facts.get(rank.node)) for rank in ranks}
    return {node: version for node, version in found.items() if version is not None}
