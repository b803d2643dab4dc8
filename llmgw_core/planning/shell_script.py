"""A plan as a script that a person could run by hand on the node. Pure."""

import shlex
from typing import List

from llmgw_core.domain.launch import KEY_BY_FILE, KEY_BY_VARIABLE, LaunchPlan, RankPlan


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
    if rank.api_key == KEY_BY_VARIABLE:
        lines.append(f': "${{{rank.api_key}:?set it to the key that callers must have}}"')
        lines.append(f"export {rank.api_key}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(rank.env.items())]
    if rank.cwd is not None:
        lines.append(f"cd {shlex.quote(rank.cwd)} || exit 1")
    words = [shlex.quote(word) for word in rank.argv]
    if rank.api_key == KEY_BY_FILE:
        lines.append(': "${API_KEY_FILE:?set it to a file of mode 0600 that says  api-key: …}"')
        words += [KEY_BY_FILE, '"$API_KEY_FILE"']
    lines.append("exec " + " ".join(words))
    if not is_only:
        lines.append(")")
    return lines
