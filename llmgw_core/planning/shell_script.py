"""A plan as a script that a person could run by hand on the node. Pure."""

import shlex
from typing import List

from llmgw_core.domain.launch import LaunchPlan, RankPlan


def render_script(plan: LaunchPlan) -> str:
    """The plan as POSIX sh, one block per rank. Secrets are asked of the shell's environment, never written."""
    lines = ["#!/bin/sh", f"# llmgw plan {plan.launch_id}: {plan.request.name}"]
    for rank in plan.ranks:
        lines += ["", *_render_rank(rank, is_only=len(plan.ranks) == 1)]
    return "\n".join(lines) + "\n"


def _render_rank(rank: RankPlan, *, is_only: bool) -> List[str]:
    gpus = ", ".join(str(index) for index in rank.gpus) or "none"
    lines = [f"# rank {rank.rank} of {rank.ranks} on {rank.node}, GPUs: {gpus}"]
    if not is_only:
        lines.append("(")
    lines += [f': "${{{name}:?set it first}}"; export {name}' for name in rank.env_from]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(rank.env.items())]
    if rank.cwd is not None:
        lines.append(f"cd {shlex.quote(rank.cwd)} || exit 1")
    lines.append("exec " + " ".join(shlex.quote(word) for word in rank.argv))
    if not is_only:
        lines.append(")")
    return lines
