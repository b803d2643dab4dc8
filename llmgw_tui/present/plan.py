"""A launch plan as a person reads it: findings, then exactly what will run. Pure."""

import shlex
from collections.abc import Mapping, Sequence

from llmgw_core.domain.findings import Finding, Severity, has_errors
from llmgw_core.domain.launch import LaunchPlan, RankPlan
from llmgw_core.domain.model import MemorySplit
from llmgw_tui.present.detail import BLANK, fact, heading
from llmgw_tui.present.states import severity_state
from llmgw_tui.present.text import Line, Tone, bar, line, span
from llmgw_tui.present.units import count_of, format_gib

MEMORY_CELLS = 20
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def is_launchable(plan: LaunchPlan | None) -> bool:
    """Whether the plan may be carried out: it runs something and no finding stops it."""
    return plan is not None and bool(plan.ranks) and not has_errors(plan.findings)


def verdict(plan: LaunchPlan) -> Line:
    """One line that says whether it can be launched."""
    errors = sum(finding.severity is Severity.ERROR for finding in plan.findings)
    warnings = sum(finding.severity is Severity.WARNING for finding in plan.findings)
    if errors:
        text = f"✖ cannot be launched: {count_of(errors, 'error')}"
        return line(span(text, Tone.ERROR))
    if not plan.ranks:
        return line(span("✖ cannot be launched: no node fits", Tone.ERROR))
    if warnings:
        return line(span(f"▲ can be launched, with {count_of(warnings, 'warning')}", Tone.WARN))
    return line(span("● can be launched", Tone.OK))


def plan_lines(plan: LaunchPlan) -> tuple[Line, ...]:
    """Verdict, findings, and per rank node, GPUs, argv and env, exactly as they will be."""
    lines: list[Line] = [verdict(plan), BLANK]
    findings = sorted(plan.findings, key=lambda finding: _ORDER.index(finding.severity))
    for finding in findings:
        lines += finding_lines(finding)
    if findings:
        lines.append(BLANK)
    lines += _memory_lines(plan.memory)
    if len(plan.ranks) > 1:
        lines += [fact("over", _tell_way(plan)), BLANK]
    for rank in plan.ranks:
        lines += rank_lines(rank, plan.reasons.get(rank.node, {}))
    return tuple(lines)


def _tell_way(plan: LaunchPlan) -> str:
    way = {None: "no fabric: a CPU engine", "tcp": "plain TCP"}.get(plan.fabric, f"{plan.fabric}")
    return f"{count_of(len(plan.ranks), 'node')} by {way}"


def _memory_lines(splits: Sequence[MemorySplit]) -> list[Line]:
    """Whether the model fits: what each GPU would hold, against what the engine may fill of it."""
    lines: list[Line] = []
    for split in splits:
        rest = split.activation_bytes + split.overhead_bytes
        used = split.weights_bytes + (split.kv_bytes or 0) + rest
        share = used / split.budget_bytes if split.budget_bytes else 1.0
        tone = Tone.ERROR if used > split.budget_bytes else Tone.OK
        parts = [f"weights {_gib(split.weights_bytes)}"]
        if split.kv_bytes is not None:
            parts.append(f"KV {_gib(split.kv_bytes)}")
        parts.append(f"other about {_gib(rest)}")
        whole = f"of {_gib(split.budget_bytes)} GiB, {split.fraction:.0%} of a GPU"
        lines += [
            line(span(f"  {split.node}  "), span(bar(share, MEMORY_CELLS), tone), f" {share:.0%}"),
            line(span(f"    {' + '.join(parts)} {whole}", Tone.DIM)),
        ]
    return [heading("Memory of each GPU"), *lines, BLANK] if lines else []


def _gib(count: int) -> str:
    return format_gib(count >> 20)


def finding_lines(finding: Finding) -> list[Line]:
    """What is wrong, why, and what to do."""
    look = severity_state(finding.severity)
    said = [
        line(
            span(f"{look.glyph} {look.word}: ", look.tone),
            f"{finding.subject}: {finding.what}",
            span(f"  [{finding.code}]", Tone.DIM),
        )
    ]
    if finding.why:
        said.append(line(span(f"  because {finding.why}", Tone.DIM)))
    return [*said, line(span(f"  → {finding.fix}"))] if finding.fix else said


def rank_lines(rank: RankPlan, reasons: Mapping[str, str]) -> list[Line]:
    """One rank: where, on what, with which environment, and the command.

    Args:
        reasons: why variables are set as they are, by name.
    """
    title = rank.engine_id if rank.ranks == 1 else f"rank {rank.rank} of {rank.ranks}"
    gpus = ", ".join(map(str, rank.gpus)) if rank.gpus else "none (CPU)"
    lines = [
        heading(title),
        fact("node", rank.node),
        fact("GPUs", gpus),
        fact("address", span(f"{rank.host}:{rank.port}" if rank.port is not None else None)),
        fact("ready", _readiness(rank)),
        heading("Environment"),
    ]
    for name, value in sorted(rank.env.items()):
        lines.append(line(f"  {name}={shlex.quote(value)}"))
        if name in reasons:
            lines.append(line(span(f"      {reasons[name]}", Tone.DIM)))
    lines += [
        line(f"  {name}=", span("(yours, at launch; never shown)", Tone.DIM))
        for name in sorted(rank.env_from)
    ]
    if rank.api_key is not None:
        lines.append(
            line(f"  {_tell_key(rank.api_key)}", span(f"(new; llmgw key {rank.name})", Tone.DIM))
        )
    if not rank.env and not rank.env_from and not rank.api_key:
        lines.append(line(span("  nothing is added", Tone.DIM)))
    return [*lines, heading("Command"), *argv_lines(rank.argv), BLANK]


def _tell_key(way: str) -> str:
    return "API key, by a file " if way.startswith("-") else f"{way}="


def _readiness(rank: RankPlan) -> str:
    test = "after one token came back" if rank.verify else "by health and model list alone"
    return f"{test}, within {rank.load_deadline_seconds:.0f} s"


def argv_lines(argv: tuple[str, ...]) -> list[Line]:
    """The command, an option with its value on a line, as a shell would take it."""
    lines: list[str] = []
    for place, word in enumerate(argv):
        quoted = shlex.quote(word)
        previous = argv[place - 1] if place else ""
        is_value = previous.startswith("--") and "=" not in previous and not word.startswith("--")
        if lines and (is_value or not word.startswith("--")):
            lines[-1] += f" {quoted}"
        else:
            lines.append(quoted)
    last = len(lines) - 1
    return [
        line(("  " if place == 0 else "    ") + text + ("" if place == last else " \\"))
        for place, text in enumerate(lines)
    ]
