"""`llmgw status`, `llmgw stop` and `llmgw forget`."""

import argparse
import asyncio
import calendar
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from llmgw_core.cli.following import describe_exit, describe_progress
from llmgw_core.cli.inventory_document import judge_silence, utc_now
from llmgw_core.cli.output import (
    clean,
    print_note,
    print_result,
    render_duration,
    render_table,
)
from llmgw_core.cli.session import POLL_S, confirm, open_fleet
from llmgw_core.domain.deployment import Deployment, Located, group_ranks, sum_up
from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.wire import dump_json, to_jsonable
from llmgw_core.errors import NodeError, StopIncomplete, UsageError
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.operations import find_ranks, stop_ranks

STATUS_SCHEMA = "llmgw.status/1"
KILL_S = 60.0  # after the grace: SIGKILL, the rest of the set, and the node's own patience


async def run_status(args: argparse.Namespace) -> int:
    """Print every engine of the chosen nodes, or one; 3 when some nodes are silent.

    Raises:
        EngineNotFound: there is no engine of that name among the nodes that answered.
    """
    async with open_fleet(args, needs_answer=False) as (_, snapshot):
        nodes = [view.node for view in snapshot.nodes]
    if args.name is not None:
        ranks = find_ranks(snapshot, args.name, args.node)
        nodes = [
            replace(node, engines=tuple(engine for name, engine in ranks if name == node.name))
            for node in nodes
        ]
    if args.json:
        engines = [
            {"node": node.name, **to_jsonable(engine)} for node in nodes for engine in node.engines
        ]
        silent = [
            {"node": node.name, **(to_jsonable(node.error) or {})}
            for node in nodes
            if not node.reachable
        ]
        document = {
            "schema": STATUS_SCHEMA,
            "generated_at": utc_now(),
            "engines": engines,
            "deployments": [to_jsonable(item) for item in _list_deployments(nodes)],
            "silent": silent,
        }
        print_result(dump_json(document, indent=2))
    elif any(node.engines for node in nodes):
        print_result(render_status(nodes, time.time()))
    else:
        print_note("no engines; start one with llmgw launch")
    return judge_silence(nodes)


def _list_deployments(nodes: Sequence[Node]) -> list[Deployment]:
    """The launches whose ranks these are, each as a whole."""
    located = [(node.name, engine) for node in nodes for engine in node.engines]
    return [sum_up(ranks) for ranks in group_ranks(located).values()]


def render_status(nodes: list[Node], now: float) -> str:
    """A table of engines, then why those that failed did."""
    pairs = [(node, engine) for node in nodes for engine in node.engines]
    rows = [
        (
            engine.name if engine.ranks == 1 else f"{engine.name} {engine.rank}/{engine.ranks}",
            node.name,
            describe_progress(engine),
            engine.engine.value,
            engine.model,
            ",".join(str(index) for index in engine.gpus),
            engine.url if not engine.state.is_over else describe_exit(engine),
            _age(engine, now),
            engine.id,
        )
        for node, engine in pairs
    ]
    header = ("NAME", "NODE", "STATE", "ENGINE", "MODEL", "GPUS", "URL", "AGE", "ID")
    notes = [
        f"{engine.id}: {engine.diagnosis.code}: {clean(engine.diagnosis.message)}"
        f"\n  → {clean(engine.diagnosis.hint)}"
        for _, engine in pairs
        if engine.diagnosis is not None
    ]
    gangs = [item for item in _list_deployments(nodes) if item.ranks > 1]
    wholes = [
        f"{item.name}: {item.state.value}, {len(item.nodes)} of {item.ranks} ranks heard of"
        f" on {', '.join(item.nodes)} ({item.id})"
        for item in gangs
    ]
    return "\n".join([render_table(header, rows), *wholes, *notes])


async def run_stop(args: argparse.Namespace) -> int:
    """Stop an engine, with all of its ranks, and wait until nothing of it is left.

    Raises:
        StopIncomplete: something is; says what holds what.
    """
    async with open_fleet(args) as (fleet, snapshot):
        ranks = find_ranks(snapshot, args.name, args.node)
        is_over = all(engine.state.is_over for _, engine in ranks)
        if not (args.yes or is_over or await confirm(_ask_to_stop(ranks))):
            print_note("nothing was stopped")
            return UsageError.exit_code
        taken = await stop_ranks(fleet, ranks, args.grace)
        if args.wait:
            ends = [_await_end(fleet, node, status, args.grace) for node, status in taken]
            try:
                statuses = await asyncio.gather(*ends)
            except asyncio.CancelledError:
                print_note(f"{', '.join(node for node, _ in taken)} go on stopping: llmgw status")
                raise
        else:
            statuses = [status for _, status in taken]
    _print_stopped(statuses, as_json=args.json)
    asked = {(node, status.id) for node, status in taken}
    for node, engine in ranks:
        if (node, engine.id) not in asked:
            raise StopIncomplete(
                f"{engine.id} could not be told to stop",
                f"{node} does not answer",
                "its peers tell it when it is back; then: llmgw status",
                node,
            )
    missing = ranks[0][1].ranks - len(ranks)
    if missing and args.node is None and ranks[0][1].ranks > 1:
        print_note(f"{missing} of its ranks were not heard of: their nodes do not answer")
    return 0


def _ask_to_stop(ranks: Sequence[Located]) -> str:
    told = [
        f"{engine.id} on {node} ({describe_progress(engine)}, GPUs"
        f" {','.join(str(index) for index in engine.gpus) or 'none'})"
        for node, engine in ranks
    ]
    return f"stop {' and '.join(told)}?"


def _print_stopped(statuses: Sequence[EngineStatus], *, as_json: bool) -> None:
    if as_json:
        # One engine is an object, as ever; ranks are a list.
        print_result(dump_json(statuses[0] if len(statuses) == 1 else list(statuses), indent=2))
        return
    for status in statuses:
        print_result(f"{status.id} {describe_progress(status)} {describe_exit(status)}".rstrip())


async def run_forget(args: argparse.Namespace) -> int:
    """Remove the record and the log of an engine that is over, on every node that has a rank of it."""
    async with open_fleet(args) as (fleet, snapshot):
        for node, engine in find_ranks(snapshot, args.name, args.node):
            await fleet.client(node).forget(uuid.uuid4().hex, engine.id)
            print_result(f"{engine.id} forgotten")
    return 0


async def run_key(args: argparse.Namespace) -> int:
    """Print the API key that callers of an engine need, and nothing else, for `$(llmgw key NAME)`.

    Raises:
        UsageError: it asks for none.
    """
    async with open_fleet(args) as (fleet, snapshot):
        ranks = find_ranks(snapshot, args.name, args.node)
        node, engine = next((item for item in ranks if item[1].url), ranks[0])
        key = await fleet.client(node).read_api_key(engine.id)
    if key is None:
        raise UsageError(
            f"{engine.id} asks for no API key, as far as is known",
            "it was launched without one",
            "launch it anew to give it one",
            node,
        )
    print_result(key)
    return 0


async def _await_end(
    fleet: Fleet, node: str, status: EngineStatus, grace_seconds: float | None
) -> EngineStatus:
    deadline = time.monotonic() + (300.0 if grace_seconds is None else grace_seconds) + KILL_S
    engine_id, shown = status.id, ""
    while True:
        text = describe_progress(status)
        if text != shown:
            print_note(f"{node} {engine_id}: {text}")
            shown = text
        if status.state.is_over:
            return status
        if status.state is EngineState.STUCK:
            why = status.diagnosis.message if status.diagnosis else "something of it is left"
            hint = status.diagnosis.hint if status.diagnosis else "llmgw status says what"
            raise StopIncomplete(f"{engine_id} is stuck", why, hint, node)
        if time.monotonic() > deadline:
            raise StopIncomplete(
                f"{engine_id} has not ended yet",
                f"it is {text}",
                "the node goes on with it: llmgw status",
                node,
            )
        await asyncio.sleep(POLL_S)
        try:
            engines = await fleet.client(node).engines()
        except NodeError:
            continue  # the node finishes it alone; we look again when it is back
        found = next((item for item in engines if item.id == engine_id), None)
        if found is None:
            return status  # somebody has forgotten it: it is over
        status = found


def _age(engine: EngineStatus, now: float) -> str | None:
    if engine.started_at is None or engine.state.is_over:
        return None
    try:
        started = calendar.timegm(time.strptime(engine.started_at, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return None
    return render_duration(now - started)
