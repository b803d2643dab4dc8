"""A request and what is known of the nodes → the plan of everything that will run. Pure."""

from dataclasses import replace
from types import MappingProxyType
from typing import AbstractSet, Dict, Mapping, Optional, Sequence, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import has_errors
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import PLAN_SCHEMA, LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.domain.model import LaunchFacts, MemorySplit
from llmgw_core.domain.secret_names import hide_secret_args, hide_secret_env
from llmgw_core.planning.engines import sglang, vllm
from llmgw_core.planning.engines.base import served_name
from llmgw_core.planning.engines.flag_rules import check_commands
from llmgw_core.planning.model_check import check_model, find_version
from llmgw_core.planning.overrides import apply_overrides
from llmgw_core.planning.placement import Placement, place
from llmgw_core.planning.placement_rules import check_name_elsewhere, check_placement
from llmgw_core.planning.request_rules import check_request

ADAPTERS = MappingProxyType({EngineKind.VLLM: vllm, EngineKind.SGLANG: sglang})
_ID_DIGITS = 8


def plan(
    request: LaunchRequest,
    nodes: Sequence[Node],
    launch_id: str,
    venvs: Mapping[str, str],
    avoid_ports: AbstractSet[int] = frozenset(),
    *,
    facts: Mapping[str, LaunchFacts] = MappingProxyType({}),
) -> LaunchPlan:
    """The plan, with all findings at once. It has no ranks where a place could not be found.

    Args:
        launch_id: 32 hex digits; names the engines, so that the same plan launched twice starts one.
        venvs: the engine's virtual environment by node name, for requests that name none.
        avoid_ports: ports that are known to be taken, when the port is the planner's choice.
        facts: what nodes read of the model and the engine; of a node that is not there, nothing is known.
    """
    findings = list(check_request(request))
    findings += ADAPTERS[request.engine].check_arguments(request)
    placement: Optional[Placement] = None
    # A place sought with degrees that make no sense would only add noise to the finding about them.
    if not any(finding.code in {"parallelism", "arithmetic"} for finding in findings):
        placement, found = place(request, nodes, avoid_ports)
        findings += found
    ranks: Tuple[RankPlan, ...] = ()
    memory: Tuple[MemorySplit, ...] = ()
    # A secret stops the launch; until then it must not be seen in what is printed of the plan.
    shown = replace(request, env=hide_secret_env(request.env), args=hide_secret_args(request.args))
    if placement is not None:
        findings += check_placement(request, placement)
        findings += check_name_elsewhere(request, placement, nodes)
        told, memory = check_model(request, [placement], facts)
        findings += told
        ranks = (_build_rank(shown, placement, launch_id, venvs),)
    versions = _list_versions(request, ranks, facts)
    owned = ADAPTERS[request.engine].OWNED_FLAGS
    findings += check_commands(request.engine, ranks, versions, owned)
    judged = apply_overrides(request, findings)
    return LaunchPlan(PLAN_SCHEMA, launch_id, shown, ranks, judged, memory, versions)


def is_launchable(plan: LaunchPlan) -> bool:
    """Whether nothing stops the plan."""
    return bool(plan.ranks) and not has_errors(plan.findings)


def _list_versions(
    request: LaunchRequest, ranks: Sequence[RankPlan], facts: Mapping[str, LaunchFacts]
) -> Dict[str, str]:
    found = {rank.node: find_version(request.engine, facts.get(rank.node)) for rank in ranks}
    return {node: version for node, version in found.items() if version is not None}


def _build_rank(
    request: LaunchRequest, placement: Placement, launch_id: str, venvs: Mapping[str, str]
) -> RankPlan:
    venv = request.venv or venvs.get(placement.node.name, "")
    command = ADAPTERS[request.engine].build_command(request, placement, venv)
    return RankPlan(
        engine_id=f"{request.name}-{launch_id[:_ID_DIGITS]}",
        name=request.name,
        engine=request.engine,
        model=request.model,
        served_model_name=served_name(request),
        node=placement.node.name,
        argv=command.argv,
        env=command.env,
        env_from=request.env_from,
        cwd=request.workdir,
        gpus=tuple(gpu.index for gpu in placement.gpus),
        gpu_uuids=tuple(gpu.uuid for gpu in placement.gpus if gpu.uuid is not None),
        host=request.host,
        port=placement.port,
        verify=request.verify,
        grace_seconds=request.grace_seconds,
        load_deadline_seconds=request.load_deadline_seconds,
    )
