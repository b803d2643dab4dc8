"""`llmgw plan`, `llmgw preflight` and `llmgw launch`."""

import argparse
import asyncio
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmgw_core.cli.inventory_document import utc_now
from llmgw_core.cli.output import print_note, print_result, render_finding
from llmgw_core.cli.session import POLL_S, confirm, open_fleet
from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest, RankPlan
from llmgw_core.domain.wire import dump_json, to_jsonable
from llmgw_core.errors import AgentTimeout, LaunchError, NodeError, PlanRefused, UsageError
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.inventory_file import load_inventory
from llmgw_core.fleet.operations import launch_plan, plan_launch, refuse, take_secrets
from llmgw_core.fleet.spec_file import load_request
from llmgw_core.planning.launch import is_launchable
from llmgw_core.planning.launch import plan as make_plan
from llmgw_core.planning.plan_hash import hash_plan, is_hash_of
from llmgw_core.planning.shell_script import render_script

LAUNCH_SCHEMA = "llmgw.launch/1"
PREFLIGHT_SCHEMA = "llmgw.preflight/1"
AWAY_S = (
    120.0  # the node itself calls an engine failed at the deadline; this is for one we cannot hear
)
_LOADING = (EngineState.PENDING, EngineState.STARTING, EngineState.LOADING)
_ENDED = (
    EngineState.FAILED,
    EngineState.STOPPED,
    EngineState.ORPHANS,
    EngineState.STUCK,
    EngineState.UNKNOWN,
)


async def run_plan(args: argparse.Namespace) -> int:
    """Print the plan; 5 when a finding would stop it."""
    request = read_request(args)
    if args.inventory is not None:
        made = _plan_on_file(request, args.inventory)
    else:
        async with open_fleet(args) as (fleet, _):
            made = await plan_launch(fleet, request, uuid.uuid4().hex)
    renderers: dict[str, Callable[[LaunchPlan], str]] = {
        "text": render_plan,
        "json": lambda plan: dump_json({**to_jsonable(plan), "hash": hash_plan(plan)}, indent=2),
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


def _plan_on_file(request: LaunchRequest, path: Path) -> LaunchPlan:
    """The plan by a saved inventory: whether model, port and venv are there, only the node could say."""
    inventory = load_inventory(path)
    print_note(f"llmgw: planned by {path} of {inventory.generated_at or '?'}; no node was asked")
    return make_plan(request, inventory.nodes, uuid.uuid4().hex, {})


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
        started = await launch_plan(fleet, made, os.environ)
        for rank, status in zip(made.ranks, started, strict=True):
            print_note(f"started {status.id} on {rank.node}, pid {status.pid}")
        final = started[0]
        if args.wait:
            final = await _follow(fleet, made.ranks[0], final)
        _print_outcome(made, final, as_json=args.json)
        if args.wait and not final.ready:
            raise _failed(made.ranks[0], final)
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


def _print_outcome(plan: LaunchPlan, status: EngineStatus, *, as_json: bool) -> None:
    rank = plan.ranks[0]
    if as_json:
        document = {
            "schema": LAUNCH_SCHEMA,
            "launch_id": plan.launch_id,
            "engines": [{"node": rank.node, **to_jsonable(status)}],
        }
        print_result(dump_json(document, indent=2))
    elif not status.state.is_over:
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
        )
    }
    # Empty lists are "not given": a spec's own stay.
    for name in ("args", "env_from", "overrides"):
        flags[name] = getattr(args, name) or None
    flags["env"] = dict(args.env) if args.env else None
    return load_request(args.spec, flags)


def render_plan(plan: LaunchPlan) -> str:
    """The plan for a person: findings, then the exact argv and env of each rank."""
    lines = [render_finding(finding) for finding in plan.findings]
    for rank in plan.ranks:
        gpus = ", ".join(str(index) for index in rank.gpus) or "none (CPU)"
        lines += [
            "",
            f"{rank.engine_id} on {rank.node}, GPUs: {gpus}, http://{rank.host}:{rank.port}",
            "argv:",
            *(f"  {word}" for word in rank.argv),
            "env:",
            *(f"  {name}={value}" for name, value in sorted(rank.env.items())),
            *(f"  {name}=(from your environment, not shown)" for name in rank.env_from),
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


async def _follow(fleet: Fleet, rank: RankPlan, status: EngineStatus) -> EngineStatus:
    """Tell each change until the engine is ready, or will not be. Returns its last status.

    Raises:
        AgentTimeout: the node has been away for so long that nobody knows.
    """
    shown = ""
    end = time.monotonic() + rank.load_deadline_seconds + AWAY_S
    try:
        while True:
            text = describe_progress(status)
            if text != shown:
                print_note(f"{rank.node} {status.id}: {text}")
                shown = text
            if status.ready or status.state in _ENDED:
                return status
            if time.monotonic() > end:
                raise AgentTimeout(
                    f"{status.id} was not seen ready",
                    f"it was {text} when last heard of",
                    f"it goes on without this command: llmgw status, llmgw logs {rank.name}",
                    rank.node,
                )
            await asyncio.sleep(POLL_S)
            status = await _read_status(fleet, rank, status)
    except asyncio.CancelledError:
        print_note(
            f"{status.id} goes on without this command: watch it with `llmgw status`, "
            f"`llmgw logs {rank.name} -f`; stop it with `llmgw stop {rank.name}`"
        )
        raise


async def _read_status(fleet: Fleet, rank: RankPlan, last: EngineStatus) -> EngineStatus:
    """The engine now; the last known while the node is away, for the engine goes on without us."""
    try:
        engines = await fleet.client(rank.node).engines()
    except NodeError:
        return last
    found = next((engine for engine in engines if engine.id == rank.engine_id), None)
    # Somebody stopped and forgot it meanwhile.
    return found or replace(last, state=EngineState.STOPPED, ready=False)


def describe_progress(status: EngineStatus) -> str:
    """State, phase and progress in words: `loading weights 42 %`."""
    words = [status.state.value]
    if status.state in _LOADING and status.phase:
        words.append(status.phase)
        if status.progress is not None:
            words.append(f"{status.progress * 100:.0f} %")
    return " ".join(words)


def _failed(rank: RankPlan, status: EngineStatus) -> LaunchError:
    found = status.diagnosis
    ended = describe_exit(status)
    look = f"read its log: llmgw logs {rank.name}"
    if found is None:
        return LaunchError(f"{status.id} is {status.state.value}", ended, look, rank.node)
    hint = f"{found.hint}; {look}" if found.hint else look
    return LaunchError(f"{status.id} {found.code}: {found.message}", ended, hint, rank.node)


def describe_exit(status: EngineStatus) -> str:
    """How it ended, in words; "" while it lives."""
    if status.exit is None:
        return ""
    if status.exit.signal is not None:
        return f"{status.exit.reason}, signal {status.exit.signal}"
    if status.exit.code is not None:
        return f"{status.exit.reason}, exit code {status.exit.code}"
    return status.exit.reason
