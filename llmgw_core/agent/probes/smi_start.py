"""nvidia-smi started: which commands make one reading, and a first reading begun before the rest of llmgw is loaded.

Imports little, for that reason.
"""

import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from llmgw_core.agent.probes.commands import Pending, start_together
from llmgw_core.agent.probes.files import exists, find_program
from llmgw_core.agent.probes.smi_fields import APP_FIELDS, CORE_FIELDS, EXTRA_FIELDS, KEY_FIELDS

_CSV = "--format=csv,noheader,nounits"


class StartedReading(NamedTuple):
    """The commands of one reading, under way."""

    program: str
    names: Sequence[str]  # what each is, in the order of start
    pending: Pending
    at: float  # monotonic
    links: Optional[Pending] = None  # the question for NVLinks, which nothing has to wait for


def find_nvidia_smi(env: Mapping[str, str]) -> Optional[str]:
    """The program to ask: LLMGW_NVIDIA_SMI, else the first on PATH; None when there is none."""
    chosen = env.get("LLMGW_NVIDIA_SMI")
    if chosen:
        return chosen if exists(chosen) else None
    return find_program("nvidia-smi", env)


def build_gpu_query(program: str, fields: Sequence[str]) -> List[str]:
    """The command that asks for these fields of every GPU."""
    return [program, f"--query-gpu={','.join(fields)}", _CSV]


def build_apps_query(program: str) -> List[str]:
    """The command that asks for the processes on all GPUs."""
    return [program, f"--query-compute-apps={','.join(APP_FIELDS)}", _CSV]


def build_first_commands(program: str) -> Dict[str, List[str]]:
    """All that is asked of an nvidia-smi of which nothing is known."""
    return {
        "core": build_gpu_query(program, CORE_FIELDS),
        "extra": build_gpu_query(program, KEY_FIELDS + EXTRA_FIELDS),
        "apps": build_apps_query(program),
        "version": [program, "--version"],
        "help": [program, "--help-query-gpu"],
    }


def start_reading(
    program: str, commands: Mapping[str, List[str]], env: Mapping[str, str]
) -> StartedReading:
    """Start all commands at once."""
    pending = start_together(list(commands.values()), env)
    return StartedReading(program, tuple(commands), pending, time.monotonic())


def begin_reading(env: Mapping[str, str]) -> Optional[StartedReading]:
    """A first reading under way; None where there is no nvidia-smi. It has to be handed to a SmiReader."""
    program = find_nvidia_smi(env)
    if program is None:
        return None
    started = start_reading(program, build_first_commands(program), smi_env(env))
    return started._replace(links=start_links(program, smi_env(env)))


def start_links(program: str, env: Mapping[str, str]) -> Pending:
    """The question for NVLinks under way."""
    return start_together([[program, "nvlink", "-s"]], env)


def smi_env(env: Mapping[str, str]) -> Dict[str, str]:
    """The environment nvidia-smi gets: its words are read, so they are to be English."""
    return {**env, "LC_ALL": "C"}
