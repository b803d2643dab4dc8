"""How long a command takes, against another one measured in turn with it, so that a busy machine hurts both alike."""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spent:
    """What one run of a command took."""

    wall_s: float
    cpu_s: float  # of the command and of all it waited for


def time_in_turn(
    commands: Mapping[str, Sequence[str]], rounds: int, env: Mapping[str, str]
) -> dict[str, list[Spent]]:
    """Return what each of the commands took in each round, after one round that does not count."""
    spent: dict[str, list[Spent]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, argv in commands.items():
            one = time_command(argv, env)
            if number > 0:
                spent[name].append(one)
    return spent


def time_command(argv: Sequence[str], env: Mapping[str, str]) -> Spent:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed.
    """
    began = time.perf_counter()
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            argv,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        # Popen would wait for it once more.
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            told.seek(0)
            why = told.read().decode("utf-8", "replace")
            raise RuntimeError(f"{' '.join(argv)} ended with {process.returncode}: {why}")
    return Spent(wall_s, usage.ru_utime + usage.ru_stime)


def best_wall_s(spent: Sequence[Spent]) -> float:
    """The shortest of the wall times: what other load adds is not the command's."""
    return min(one.wall_s for one in spent)


def median_cpu_s(spent: Sequence[Spent]) -> float:
    """The middle one of the CPU times."""
    return statistics.median(one.cpu_s for one in spent)
