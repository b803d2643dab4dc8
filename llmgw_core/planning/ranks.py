"""A request in its places → the plan of each rank. Pure."""

import ipaddress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.inventory import Fabric, Node
from llmgw_core.domain.launch import Gang, GangMember, LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.domain.network import NodeNetwork
from llmgw_core.planning.engines import sglang, vllm
from llmgw_core.planning.engines.base import Command, explain_env, served_name
from llmgw_core.planning.gang_placement import TCP, GangPlacement
from llmgw_core.planning.interface_env import interface_settings
from llmgw_core.planning.interfaces import ChosenInterface
from llmgw_core.planning.network_checks.stacks import find_stacks
from llmgw_core.planning.network_env import NetworkEnv, Setting, list_fabric_ports, plan_network_env
from llmgw_core.planning.placement import Placement, shorten
from llmgw_core.planning.seats import GANG, Seat

ADAPTERS = MappingProxyType({EngineKind.VLLM: vllm, EngineKind.SGLANG: sglang})
_ID_DIGITS = 8


@dataclass(frozen=True)
class Between:
    """What is known of the network between the nodes: of no weight for a launch on one."""

    fabrics: Tuple[Fabric, ...] = ()
    facts: Optional[Mapping[str, Optional[NodeNetwork]]] = None  # by node; None: not asked
    # By node: where its peers come to it. None of them when no way was found, which is a finding.
    links: Mapping[str, ChosenInterface] = field(default_factory=dict)
    findings: Tuple[Finding, ...] = ()
    nccl: Optional[Tuple[int, ...]] = None  # the oldest on the nodes; None: unknown


def build_single(made: LaunchPlan, placement: Placement, venvs: Mapping[str, str]) -> LaunchPlan:
    """The plan with its only rank."""
    request, name = made.request, placement.node.name
    command = ADAPTERS[request.engine].build_command(
        request, placement, request.venv or venvs.get(name, "")
    )
    rank = _make_rank(request, placement, made.launch_id, command)
    return replace(made, ranks=(rank,), reasons={name: explain_env(request, rank.env, {})})


def build_gang(
    made: LaunchPlan, gang: GangPlacement, venvs: Mapping[str, str], between: Between
) -> Tuple[LaunchPlan, Tuple[Finding, ...]]:
    """The plan with all ranks, and what speaks against how their nodes would reach one another."""
    nodes = [place.node for place in gang.places]
    links, findings = _find_links(nodes, between)
    network = _plan_network(nodes, gang, between)
    members = tuple(GangMember(node.name, links[node.name]) for node in nodes)
    ranks: List[RankPlan] = []
    reasons: Dict[str, Dict[str, str]] = {}
    for number, place in enumerate(gang.places):
        name = place.node.name
        seat = Seat(number, len(nodes), links[name], members[0].address, gang.block)
        settings = (
            *network.settings.get(name, ()),
            *_tell_interface(made.request, place.node, gang, between),
        )
        rank = _build_rank(made, place, seat, settings, venvs)
        ranks.append(replace(rank, gang=Gang(members, gang.block + GANG)))
        why = {item.name: item.reason for item in settings}
        reasons[name] = explain_env(made.request, rank.env, why)
    plan = replace(made, ranks=tuple(ranks), reasons=reasons, fabric=gang.fabric)
    return plan, (*between.findings, *findings, *network.findings)


def _build_rank(
    made: LaunchPlan,
    place: Placement,
    seat: Seat,
    settings: Sequence[Setting],
    venvs: Mapping[str, str],
) -> RankPlan:
    request, adapter = made.request, ADAPTERS[made.request.engine]
    venv = request.venv or venvs.get(place.node.name, "")
    # What the operator says of a variable wins over what is planned; a finding tells of it.
    env = {item.name: item.value for item in settings}
    told = replace(request, env={**env, **request.env})
    command = adapter.build_command(told, place, venv, seat)
    rank = _make_rank(request, place, made.launch_id, command)
    return replace(
        rank,
        engine_id=f"{rank.engine_id}-r{seat.rank}",
        rank=seat.rank,
        ranks=seat.ranks,
        ports=adapter.list_ports(seat),
    )


def _make_rank(
    request: LaunchRequest, placement: Placement, launch_id: str, command: Command
) -> RankPlan:
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


def _find_links(
    nodes: Sequence[Node], between: Between
) -> Tuple[Dict[str, str], Tuple[Finding, ...]]:
    """The address by which each node's peers come to it: as the node says, else by which it is known here."""
    links: Dict[str, str] = {}
    unknown: List[str] = []
    for node in nodes:
        link = between.links.get(node.name)
        links[node.name] = link.address if link else node.address or node.name
        if link is None and not between.findings and not _is_address(links[node.name]):
            unknown.append(node.name)
    if not unknown:
        return links, ()
    what = f"by which address its peers reach {shorten(unknown)} is not known; planned by the name"
    fix = "only the nodes themselves know: plan without --inventory before a launch"
    return links, (Finding("address-unknown", Severity.WARNING, "address", what, fix),)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _tell_interface(
    request: LaunchRequest, node: Node, gang: GangPlacement, between: Between
) -> Tuple[Setting, ...]:
    """What the node's ranks are told of the interface where they meet."""
    link = between.links.get(node.name)
    if link is None:
        return ()
    ports = list_fabric_ports(node, gang.fabric) if gang.fabric not in (None, TCP) else ()
    kv_transfer, deepep = find_stacks(request.args, request.env)
    found = interface_settings(link, request.engine, ports, kv_transfer=kv_transfer, deepep=deepep)
    # A CPU engine does not use NCCL.
    return tuple(item for item in found if gang.fabric or not item.name.startswith("NCCL_"))


def _plan_network(nodes: Sequence[Node], gang: GangPlacement, between: Between) -> NetworkEnv:
    """NCCL's variables; a CPU engine does not use NCCL."""
    if gang.fabric is None:
        return NetworkEnv(None, {})
    wants_tcp = gang.fabric == TCP
    return plan_network_env(
        nodes,
        between.fabrics,
        between.nccl,
        wants_tcp=wants_tcp,
        fabric=None if wants_tcp else gang.fabric,
    )
