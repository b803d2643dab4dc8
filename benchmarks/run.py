"""`python -m benchmarks.run`: every measurement with its budget, as a table and as JSON.

Times are ratios against something measured in turn in the same run, so that they mean the same on any machine.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.console import measure_console
from benchmarks.fanout import measure_fanout
from benchmarks.measure import Measure, format_measure, write_report
from benchmarks.node import measure_agent, measure_first_answer_s, simulated_node
from benchmarks.planning import measure_planning
from benchmarks.slow_smi import GPU_QUERY, write_slow_smi
from benchmarks.timing import best_wall_s, median_cpu_s, time_in_turn
from llmgw_core.fleet.bundle import build_bundle

WATCHED = "of a core: 8 GPUs, 10 ports, 4 engines, 3 watchers at 1 Hz"


def main() -> int:
    """Measure, print, write. Returns 1 with --check when a budget is passed."""
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, metavar="N", help="of each command (11)")
    parser.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="to watch the agent (20)"
    )
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/latest.json"))
    parser.add_argument("--check", action="store_true", help="fail when a budget is passed")
    args = parser.parse_args()
    measures = []
    for measure in measure_all(args.rounds, args.seconds):
        measures.append(measure)
        print(format_measure(measure), flush=True)
    write_report(args.out, measures)
    return int(args.check and not all(measure.is_within for measure in measures))


def measure_all(rounds: int, seconds: float) -> Iterator[Measure]:
    """Yield each measurement as it is made."""
    yield from measure_help(rounds)
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as name:
        root = Path(name)
        yield measure_inventory(root / "here", max(3, rounds // 2))
        yield from measure_planning(root, max(3, rounds // 2))
        yield from measure_console(root / "console", seconds)
        yield from measure_fanout(root / "fanout", max(3, rounds // 4))
        yield Measure("bundle", len(build_bundle().data) / 1000, 96, "kB", "compressed")
        with simulated_node(root / "cluster") as target:
            found = asyncio.run(measure_agent(target, root / "cluster", seconds))
            yield Measure("agent memory", found["rss_mib"], 40, "MiB", "resident")
            yield Measure("agent CPU", found["watched_percent"], 0.5, "%", WATCHED)
            what = "CPU of the fake one, a Python script"
            yield Measure("its nvidia-smi", found["children_percent"], None, "%", what)
            what = "of a core, four engines, nobody watches"
            yield Measure("agent CPU alone", found["unwatched_percent"], 0.05, "%", what)
            yield Measure("shim memory", found["shim_mib"], 6, "MiB", "private")
            answers = measure_first_answer_s(target, max(3, rounds // 2))
            detail = f"best from the start of the agent; median {1000 * statistics.median(answers):.0f} ms"
            yield Measure("first answer", 1000 * min(answers), 300, "ms", detail)


def measure_help(rounds: int) -> Iterator[Measure]:
    """`llmgw --help` against `import rich`, by CPU time; `import typer` for comparison where it is installed."""
    llmgw = str(Path(sys.executable).with_name("llmgw"))
    commands = {
        "rich": [sys.executable, "-c", "import rich"],
        "help": [llmgw, "--help"],
    }
    spent = time_in_turn(commands, rounds, {})
    rich_s, help_s = median_cpu_s(spent["rich"]), median_cpu_s(spent["help"])
    detail = f"{1000 * help_s:.0f} ms against {1000 * rich_s:.0f} ms"
    yield Measure("llmgw --help / import rich", help_s / rich_s, 1.5, "×", detail)


def measure_inventory(folder: Path, rounds: int) -> Measure:
    """`llmgw inventory --json` of this machine against its one slow nvidia-smi, by wall time."""
    slow = write_slow_smi(folder)
    env = {
        "LLMGW_NVIDIA_SMI": str(slow),
        "LLMGW_STATE_DIR": str(folder / "state"),
        "LLMGW_CLUSTER": "",
        "XDG_CONFIG_HOME": str(folder),
    }
    llmgw = str(Path(sys.executable).with_name("llmgw"))
    commands = {"smi": [str(slow), *GPU_QUERY], "inventory": [llmgw, "inventory", "--json"]}
    spent = time_in_turn(commands, rounds, env)
    smi_s, inventory_s = best_wall_s(spent["smi"]), best_wall_s(spent["inventory"])
    detail = f"{1000 * inventory_s:.0f} ms against {1000 * smi_s:.0f} ms"
    return Measure("llmgw inventory --json / nvidia-smi", inventory_s / smi_s, 2.0, "×", detail)


if __name__ == "__main__":
    sys.exit(main())
