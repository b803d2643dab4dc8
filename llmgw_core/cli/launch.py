"""`llmgw plan`, `llmgw preflight` and `llmgw launch`."""

import argparse
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmgw_core.cli.following import explain_failure, follow_ranks
from llmgw_core.cli.inventory_document import utc_now
from llmgw_core.cli.output import print_note, print_result, render_finding
from llmgw_core.cli.plan_document import render_document
from llmgw_core.cli.session import confirm, open_fleet
from llmgw_core.domain.engine import EngineStatus
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.launch import KEY_BY_FILE, LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.domain.wire import dump_json, to_jsonable
from llmgw_core.errors import PlanRefused, UsageError
from llmgw_core.fleet.inventory_file import load_inventory
from llmgw_core.fleet.operations import launch_plan, plan_launch, refuse, take_secrets
from llmgw_core.fleet.saved_fleet import SavedFleet
from llmgw_core.fleet.spec_file import load_request
from llmgw_core.planning.launch import is_launchable
from llmgw_core.planning.plan_hash import hash_plan, is_hash_of
from llmgw_core.planning.shell_script import render_script

LAUNCH_SCHEMA = "llmgw.launch/1"
PREFLIGHT_SCHEMA = "llmgw.preflight/1"


async def run_plan(args: argparse.Namespace) -> int:
    """Print the plan; 5 when a finding would stop it."""
    request = read_request(args)
    if args.inventory is not None:
        made, seen = await _plan_on_file(request, args.inventory)
    else:
        async with open_fleet(args) as (fleet, seen):
            made = await plan_launch(fleet, request, uuid.uuid4().hex)
    renderers: dict[str, Callable[[LaunchPlan], str]] = {
        "text": lambda plan: render_plan(plan, explain=args.explain),
        "json": lambda plan: render_document(plan, seen),
        "sh": render_script,
    }
    if args.format != "text":
        _tell_findings(made)
    # A script of what must not run would be run some day.
    if args.format != "sh" or is_launchable(made):
        print_result(renderers[args.format](made))
    return 0 if is_launchable(made) else refuse(made).exit_code


async def run_preflight(args: argparse.Namespace) -> int:
    """Print what stands against a launch, by the nodes' own word too; 5 when something would stop it. Starts nothing."""
    request = read_request(args)
    async with open_fleet(args) as (fleet, _):
        made = await plan_launch(fleet, request, uuid.uuid4().hex)
    if args.json:
        document = {
            "schema": PREFLIGHT_SCHEMA,
            "checked_at": utc_now(),
            "launchable": is_launchable(made),
            "nodes": [rank.node for rank in made.ranks],
            "plan": hash_plan(made),
            "findings": to_jsonable(made.findings),
        }
        print_result(dump_json(document, indent=2))
    else:
        print_result(render_preflight(made))
    return 0 if is_launchable(made) else refuse(made).exit_code


def render_preflight(plan: LaunchPlan) -> str:
    """Each finding, then the verdict."""
    lines = [render_finding(finding) for finding in plan.findings]
    errors = sum(finding.severity is Severity.ERROR for finding in plan.findings)
    warnings = sum(finding.severity is Severity.WARNING for finding in plan.findings)
    where = ", ".join(rank.node for rank in plan.ranks) or "no node"
    if is_launchable(plan):
        verdict = f"{plan.request.name} can start on {where}: plan {hash_plan(plan)}"
    else:
        verdict = f"{plan.request.name} cannot start: {errors} error{'s' * (errors != 1)}"
    tail = f", {warnings} warning{'s' * (warnings != 1)}" if warnings else ""
    return "\n".join([*lines, verdict + tail])


async def _plan_on_file(request: LaunchRequest, path: Path) -> tuple[LaunchPlan, FleetSnapshot]:
    """The plan by a saved inventory: whether model, port and venv are there, only the node could say."""
    inventory = load_inventory(path)
    print_note(f"llmgw: planned by {path} of {inventory.generated_at or '?'}; no node was asked")
    saved = SavedFleet(inventory)
    return await saved.plan(request, uuid.uuid4().hex), saved.snapshot()


async def run_launch(args: argparse.Namespace) -> int:
    """Plan, start, and wait until it is ready unless told not to."""
    request = read_request(args)
    take_secrets(request.env_from, os.environ)  # one that is missing is told before a node is asked
    async with open_fleet(args) as (fleet, _):
        made = await plan_launch(fleet, request, uuid.uuid4().hex)
        _tell_findings(made)
        if is_launchable(made):
            _hold_to_review(made, args.plan)
        if is_launchable(made) and not await _is_wanted(made, args):
            print_note("nothing was started")
            return UsageError.exit_code
        final = await launch_plan(fleet, made, os.environ)
        for rank, status in zip(made.ranks, final, strict=True):
            print_note(f"started {status.id} on {rank.node}, pid {status.pid}")
        if args.wait:
            final = await follow_ranks(fleet, made.ranks, final)
        _print_outcome(made, final, as_json=args.json)
        if args.wait and not all(status.ready for status in final):
            raise explain_failure(made.ranks, final)
    return 0


def _hold_to_review(plan: LaunchPlan, reviewed: str | None) -> None:
    """Say which plan it is.

    Raises:
        PlanRefused: it is not the one that was reviewed.
    """
    if reviewed is not None and not is_hash_of(reviewed, plan):
        raise PlanRefused(
            f"the plan is now {hash_plan(plan)}, and {reviewed} was reviewed",
            "a node, its free GPUs, a port or the request changed since",
            "look at it again with llmgw plan, and launch that one",
        )
    print_note(f"plan {hash_plan(plan)}")


async def _is_wanted(plan: LaunchPlan, args: argparse.Namespace) -> bool:
    """Ask about warnings where somebody can answer; a script has decided already."""
    warnings = sum(finding.severity is Severity.WARNING for finding in plan.findings)
    question = f"start {plan.request.name} in spite of the warnings?"
    return args.yes or not warnings or await confirm(question)


def _print_outcome(plan: LaunchPlan, statuses: Sequence[EngineStatus], *, as_json: bool) -> None:
    pairs = list(zip(plan.ranks, statuses, strict=True))
    if as_json:
        document = {
            "schema": LAUNCH_SCHEMA,
            "launch_id": plan.launch_id,
            "engines": [{"node": rank.node, **to_jsonable(status)} for rank, status in pairs],
        }
        print_result(dump_json(document, indent=2))
        return
    for rank, status in pairs:
        if not status.state.is_over:
            print_result(f"{status.id} {status.state.value} {status.url or f'on {rank.node}'}")


def read_request(args: argparse.Namespace) -> LaunchRequest:
    """The request of the command's spec file and flags.

    Raises:
        SpecError: with file, line, key and what is allowed.
    """
    flags: dict[str, Any] = {
        name: getattr(args, name)
        for name in (
            "name",
            "engine",
            "model",
            "node",
            "node_count",
            "fabric",
            "expert_parallel",
            "gpu_count",
            "gpu_class",
            "tensor_parallel",
            "pipeline_parallel",
            "data_parallel",
            "served_model_name",
            "host",
            "port",
            "quantization",
            "dtype",
            "kv_cache_dtype",
            "max_model_len",
            "gpu_memory_fraction",
            "venv",
            "workdir",
            "grace_seconds",
            "load_deadline_seconds",
            "gpus",
            "verify",
            "api_key",
        )
    }
    # Empty lists are "not given": a spec's own stay.
    for name in ("args", "env_from", "overrides"):
        flags[name] = getattr(args, name) or None
    # Several nodes, in the order of ranks: n1,n2.
    if flags["node"] is not None and "," in flags["node"]:
        flags["nodes"], flags["node"] = [name.strip() for name in flags["node"].split(",")], None
    flags["env"] = dict(args.env) if args.env else None
    return load_request(args.spec, flags)


def _serves(rank: RankPlan) -> str:
    if rank.port is not None:
        return f"http://{rank.host}:{rank.port}"
    return f"rank {rank.rank} of {rank.ranks}, serves nothing"


def _render_env(rank: RankPlan, reasons: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(rank.env.items()):
        yield f"  {name}={value}"
        if name in reasons:
            yield f"      {reasons[name]}"


def _render_key(rank: RankPlan) -> Iterator[str]:
    """How it is given its API key, which is made at the launch."""
    if rank.api_key == KEY_BY_FILE:
        yield f"API key: a new one, by {KEY_BY_FILE} and a file for its user alone; llmgw key {rank.name}"
    elif rank.api_key is not None:
        yield f"  {rank.api_key}=(a new one, not shown; llmgw key {rank.name})"


def render_plan(plan: LaunchPlan, *, explain: bool = False) -> str:
    """The plan for a person: findings, then the exact argv and env of each rank; why each variable, if asked for."""
    lines = [render_finding(finding) for finding in plan.findings]
    for rank in plan.ranks:
        gpus = ", ".join(str(index) for index in rank.gpus) or "none (CPU)"
        lines += [
            "",
            f"{rank.engine_id} on {rank.node}, GPUs: {gpus}, {_serves(rank)}",
            "argv:",
            *(f"  {word}" for word in rank.argv),
            "env:",
            *_render_env(rank, plan.reasons.get(rank.node, {}) if explain else {}),
            *(f"  {name}=(from your environment, not shown)" for name in rank.env_from),
            *_render_key(rank),
        ]
    if plan.ranks:
        lines += [
            "",
            f"plan {hash_plan(plan)}: launch --plan {hash_plan(plan)} runs this and nothing else",
        ]
    return "\n".join(lines).lstrip("\n") or "nothing to run"


def _tell_findings(plan: LaunchPlan) -> None:
    for finding in plan.findings:
        print_note(render_finding(finding))
