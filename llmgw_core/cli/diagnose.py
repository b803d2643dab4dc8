"""`llmgw diagnose`: why an engine died or is not ready, from a node's records or from a saved log."""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from llmgw_core.agent.diagnosis import find_cause, suspect_lines
from llmgw_core.agent.diagnosis_rules import WRAPPERS
from llmgw_core.agent.protocol import MAX_LOG_CHUNK_BYTES
from llmgw_core.cli.following import describe_exit, describe_progress
from llmgw_core.cli.output import clean, print_result
from llmgw_core.cli.session import open_fleet
from llmgw_core.domain.deployment import find_failing_rank
from llmgw_core.domain.engine import Diagnosis, EngineStatus
from llmgw_core.domain.secret_names import HIDDEN, hide_secret_args
from llmgw_core.domain.wire import dump_json, to_jsonable
from llmgw_core.errors import UsageError
from llmgw_core.fleet.client import AgentClient
from llmgw_core.fleet.operations import find_ranks

DIAGNOSIS_SCHEMA = "llmgw.diagnosis/1"
HEAD_BYTES = 16 << 20  # of a longer log, its begin and its end: causes stand at one of them
TAIL_BYTES = 16 << 20
NODE_TAIL_BYTES = 1 << 20  # what is fetched of a node's log for the lines alone
MAX_FIRST_LINES = (
    4  # of the lines shown where no cause is known: the first errors are nearest to it
)
MAX_LAST_LINES = 6
MAX_LINE_CHARS = 400
# What the diagnosis calls a cause that it knows only by how the engine ended.
_BY_END_ALONE = frozenset({"error", "exited", "unknown", "killed"})
_TOKEN = re.compile(r"\b(?:hf_\w{8,}|sk-[\w-]{8,})|(?<=[Bb]earer )\S+|(?<=api[_-]key[=:])\S+")
_UNKNOWN_HINT = "read the lines above; the first error is nearest to the cause"


@dataclass(frozen=True)
class Report:
    """What is told of one engine or log."""

    source: str  # a file, or an engine's name and node
    engine: str | None  # vllm or sglang, where it is known
    state: str | None  # None: a log says nothing of it
    diagnosis: Diagnosis | None  # None: nothing is wrong
    is_known: bool  # the cause is one known by name, not only by how it ended
    lines: tuple[str, ...]  # most likely to matter; of unknown causes alone


async def run_diagnose(args: argparse.Namespace) -> int:
    """Print the cause in one sentence, and what to do; of an unknown one, the lines most likely to matter.

    Raises:
        UsageError: neither an engine nor a log is named, or both; or the log cannot be read.
        EngineNotFound: there is no such engine among the nodes that answered.
    """
    if (args.name is None) == (args.log is None):
        raise UsageError(
            "name an engine, or a log by --log FILE", "", "llmgw status lists the engines"
        )
    report = read_report(args.log, args.engine) if args.log else await _ask_node(args)
    print_result(_to_json(report) if args.json else render(report))
    return 0


def read_report(log: Path, engine: str | None) -> Report:
    """Judge a saved log; `-` is stdin.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        text = _read_stdin() if str(log) == "-" else _read_ends(log)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"{log}: {why}", "", "name a log that you may read") from error
    return judge_log(str(log), engine, text)


def judge_log(source: str, engine: str | None, text: str) -> Report:
    """The deepest cause that the log tells of, or the lines most likely to matter."""
    lines = suspect_lines(text)
    found = find_cause(lines)
    if found is not None:
        return Report(source, engine, None, _without_secrets(found), is_known=True, lines=())
    kept = choose_lines(lines)
    if not kept:
        what = "the log is empty" if not text.strip() else "no line of the log speaks of an error"
        hint = "an engine killed from outside says nothing: see the kernel's log (dmesg -T)"
        return Report(source, engine, None, Diagnosis("unknown", what, hint), False, ())
    unknown = Diagnosis("unknown", "no cause that is known by name", _UNKNOWN_HINT)
    return Report(source, engine, None, unknown, is_known=False, lines=kept)


def choose_lines(lines: list[str]) -> tuple[str, ...]:
    """Of the lines that may say what went wrong: the first and the last, without wrappers around a cause."""
    telling = [line for line in lines if not WRAPPERS.search(line)] or lines
    if len(telling) > MAX_FIRST_LINES + MAX_LAST_LINES:
        telling = telling[:MAX_FIRST_LINES] + telling[-MAX_LAST_LINES:]
    return tuple(hide_secrets(line[:MAX_LINE_CHARS]) for line in telling)


def hide_secrets(line: str) -> str:
    """The line without values of flags that take secrets, and without what looks like a token."""
    return _TOKEN.sub(HIDDEN, " ".join(hide_secret_args(line.split(" "))))


def render(report: Report) -> str:
    """For a person: state, cause, lines, what to do."""
    head = f"{report.source}: {report.state}" if report.state else report.source
    if report.diagnosis is None:
        return clean(f"{head}: nothing is wrong that llmgw knows of")
    found = report.diagnosis
    said = [f"{head}: {found.code}: {found.message}", *(f"    {line}" for line in report.lines)]
    return "\n".join(clean(line) for line in [*said, f"  → {found.hint}"])


async def _ask_node(args: argparse.Namespace) -> Report:
    async with open_fleet(args) as (fleet, snapshot):
        node, engine = find_failing_rank(find_ranks(snapshot, args.name, args.node))
        found = engine.diagnosis
        is_known = found is not None and found.code not in _BY_END_ALONE
        lines: tuple[str, ...] = ()
        if found is not None and not is_known:
            lines = choose_lines(suspect_lines(await _read_tail(fleet.client(node), engine.id)))
    source = f"{engine.name} on {node}"
    told = None if found is None else _without_secrets(found)
    return Report(source, engine.engine.value, _tell_state(engine), told, is_known, lines)


def _tell_state(engine: EngineStatus) -> str:
    ended = describe_exit(engine) if engine.state.is_over else ""
    return f"{describe_progress(engine)}{f' ({ended})' if ended else ''}"


async def _read_tail(client: AgentClient, engine_id: str) -> str:
    """The last megabyte of an engine's log."""
    chunk = await client.read_log(engine_id, -NODE_TAIL_BYTES, MAX_LOG_CHUNK_BYTES)
    text = chunk.data
    while chunk.next_offset < chunk.end_offset and chunk.data and len(text) < NODE_TAIL_BYTES:
        chunk = await client.read_log(engine_id, chunk.next_offset, MAX_LOG_CHUNK_BYTES)
        text += chunk.data
    return text


def _read_ends(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        # A pipe has no end to go to, and is read through.
        if file.seekable() and path.stat().st_size > HEAD_BYTES + TAIL_BYTES:
            file.seek(-TAIL_BYTES, 2)
        return _decode(head, file.read(TAIL_BYTES))


def _read_stdin() -> str:
    stream = sys.stdin.buffer
    head, tail = stream.read(HEAD_BYTES), b""
    while piece := stream.read(1 << 20):
        tail = (tail + piece)[-TAIL_BYTES:]
    return _decode(head, tail)


def _decode(head: bytes, tail: bytes) -> str:
    return (head + tail).decode("utf-8", "replace")


def _without_secrets(found: Diagnosis) -> Diagnosis:
    return Diagnosis(found.code, hide_secrets(found.message), found.hint)


def _to_json(report: Report) -> str:
    found = to_jsonable(report.diagnosis)
    return dump_json(
        {
            "schema": DIAGNOSIS_SCHEMA,
            "source": report.source,
            "engine": report.engine,
            "state": report.state,
            "diagnosis": found,
            "known": report.is_known,
            "lines": list(report.lines),
        }
    )
