"""Plans and verdicts on large clusters: processor time that grows with the nodes, against that of reading their document."""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

from benchmarks.clusters import make_nodes, write_inventory
from benchmarks.measure import RATIO, Measure
from benchmarks.timing import best_wall_s, time_in_turn
from llmgw_core.planning.fabric_verdicts import judge_pair, judge_pairs
from llmgw_core.planning.fabrics import assign_fabrics

NODES = 512
_SPEC = """\
name = "bench"
engine = "vllm"
model = "meta-llama/Llama-3.1-70B-Instruct"
gpu_count = 8
tensor_parallel = 8
"""


def measure_planning(folder: Path, rounds: int) -> Iterator[Measure]:
    """`llmgw plan` by a saved inventory, and the pure parts whose cost could grow faster than the cluster."""
    yield from _measure_plan(folder, rounds)
    yield _measure_fabrics(rounds)
    yield _measure_pairs(rounds)


def _measure_plan(folder: Path, rounds: int) -> Iterator[Measure]:
    """The whole command, against Python reading the same JSON."""
    inventory, spec = folder / "inventory.json", folder / "spec.toml"
    write_inventory(inventory, NODES)
    spec.write_text(_SPEC, "utf-8")
    llmgw = str(Path(sys.executable).with_name("llmgw"))
    script = "import json, sys; json.load(open(sys.argv[1], encoding='utf-8'))"
    many = folder / "many.toml"
    many.write_text(
        _SPEC.replace("tensor_parallel", "pipeline_parallel = 8\ntensor_parallel").replace(
            "gpu_count = 8", "gpu_count = 64"
        ),
        "utf-8",
    )
    commands = {
        "json": [sys.executable, "-c", script, str(inventory)],
        "plan": [llmgw, "plan", str(spec), "--inventory", str(inventory), "--json"],
        "gang": [llmgw, "plan", str(many), "--inventory", str(inventory), "--json"],
    }
    spent = time_in_turn(commands, rounds, {})
    json_s, plan_s = best_wall_s(spent["json"]), best_wall_s(spent["plan"])
    detail = f"{NODES} nodes × 8 GPUs × 8 ports, {inventory.stat().st_size / 1e6:.0f} MB"
    yield Measure(f"llmgw plan, {NODES} nodes", 1000 * plan_s, 1000, "ms", detail)
    gang_s = best_wall_s(spent["gang"])
    over = "TP 8 × PP 8 over 8 of them"
    yield Measure(f"llmgw plan, 8 of {NODES} nodes", 1000 * gang_s, 1000, "ms", over)
    detail = f"{1000 * plan_s:.0f} ms against {1000 * json_s:.0f} ms"
    yield Measure("llmgw plan / json.load of its inventory", plan_s / json_s, 6.0, RATIO, detail)


def _measure_fabrics(rounds: int) -> Measure:
    """Fabrics and islands of four times the nodes: 4 × would be linear, 16 × every node against every other."""
    few, many = make_nodes(NODES // 2), make_nodes(NODES * 2)
    few_s = _best_s(lambda: assign_fabrics(few), rounds)
    many_s = _best_s(lambda: assign_fabrics(many), rounds)
    detail = f"{1000 * many_s:.0f} ms for {len(many)} nodes, {1000 * few_s:.0f} ms for {len(few)}"
    return Measure("fabrics of 4 × the nodes", many_s / few_s, 6.0, RATIO, detail)


def _measure_pairs(rounds: int) -> Measure:
    """The verdict of each pair in one go, against the same pairs one by one."""
    nodes, _, _ = assign_fabrics(make_nodes(NODES // 8))
    pairs = tuple(combinations(nodes, 2))
    together_s = _best_s(lambda: judge_pairs(nodes), rounds)
    alone_s = _best_s(lambda: [judge_pair(*pair) for pair in pairs], 1)
    detail = (
        f"{1e6 * together_s / len(pairs):.1f} µs a pair, {1e6 * alone_s / len(pairs):.0f} µs alone"
    )
    return Measure("verdicts together / one by one", together_s / alone_s, 0.15, RATIO, detail)


def _best_s(work: Callable[[], object], rounds: int) -> float:
    """The shortest time of several, after one that does not count."""
    work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)
