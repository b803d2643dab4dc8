"""The node's AMD GPUs: amd-smi or rocm-smi asked, and sysfs, whatever NVIDIA's tools do.

`LLMGW_AMD_SMI` names the program to ask; one whose name has "rocm" in it is asked as rocm-smi.
"""

import os
import subprocess
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.probes.amd_text import (
    AmdProcess,
    AmdRow,
    fill_gaps,
    parse_amd_processes,
    parse_amd_smi,
    parse_rocm_smi,
)
from llmgw_core.agent.probes.commands import CommandResult, run_together, terminate
from llmgw_core.agent.probes.files import exists, find_program, list_names, read_text, resolve
from llmgw_core.agent.probes.gpu_classes import name_gpu_class
from llmgw_core.agent.probes.gpu_holders import describe_process, find_memory_held
from llmgw_core.agent.probes.nvidia_smi import AppRow, Cell, GpuRow
from llmgw_core.agent.probes.processes import ProcessFacts, read_processes
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu, GpuHealth, Unit

TIMEOUT_S = 8.0
# What the driver takes on an idle card: 285 MiB were seen on an MI300X.
_IDLE_MIB = 1024
_STATIC = ("static", "--asic", "--vram", "--board", "--bus", "--limit", "--json")
_METRIC = ("metric", "--usage", "--mem-usage", "--power", "--temperature", "--ecc", "--json")
_PROCESS = ("process", "--json")
_ROCM = (
    "--showproductname",
    "--showmeminfo",
    "vram",
    "--showuse",
    "--showuniqueid",
    "--showbus",
    "--json",
)
_AMD = "0x1002"
_MOST_DIGITS = 18


@dataclass(frozen=True)
class AmdReading:
    """What was said of AMD GPUs at one time."""

    rows: Tuple[AmdRow, ...] = ()
    apps: Tuple[AmdProcess, ...] = ()
    processes: Mapping[int, ProcessFacts] = field(default_factory=dict)
    why_partial: Optional[str] = None  # why the tool said nothing of use


class AmdReader:
    """Asks for AMD GPUs. Costs nothing where there is neither such a tool nor such a card. One reading at a time."""

    def __init__(self, env: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        self._env = {**env, "LC_ALL": "C"}
        self._sysfs_root = env.get("LLMGW_SYSFS_ROOT") or "/sys"
        self._timeout_s = timeout_s
        self.left_running: List[subprocess.Popen[bytes]] = []

    def read(self) -> AmdReading:
        """The GPUs now. Never fails; a tool that hangs is not started again while it lives."""
        cards = read_amd_cards(self._sysfs_root)
        program = find_amd_smi(self._env)
        self.left_running = [process for process in self.left_running if process.poll() is None]
        if program is None or self.left_running:
            why = f"{program} hangs and cannot be ended" if self.left_running else None
            return AmdReading(rows=tuple(cards), why_partial=why)
        rows, apps, why = self._ask(program)
        rows = fill_gaps(rows, cards) if rows else cards
        pids = read_processes((app.pid, app.name) for app in apps)
        return AmdReading(tuple(rows), tuple(apps), pids, why)

    def close(self) -> None:
        """Ask what was left running to end, once more."""
        for process in self.left_running:
            terminate(process)

    def _ask(self, program: str) -> Tuple[List[AmdRow], List[AmdProcess], Optional[str]]:
        if "rocm" in os.path.basename(program):  # noqa: PTH119 - a word of it, not a path
            (result,) = self._run([[program, *_ROCM]])
            rows = parse_rocm_smi(result.stdout)
            return rows, [], None if rows else _explain(program, result)
        queries = [[program, *words] for words in (_STATIC, _METRIC, _PROCESS)]
        static, metric, process = self._run(queries)
        rows = parse_amd_smi(static.stdout, metric.stdout)
        if not rows and not static.timed_out:
            # Options come and go; without any it says everything, more slowly.
            static, metric = self._run(
                [[program, "static", "--json"], [program, "metric", "--json"]]
            )
            rows = parse_amd_smi(static.stdout, metric.stdout)
        return (
            rows,
            parse_amd_processes(process.stdout),
            None if rows else _explain(program, static),
        )

    def _run(self, commands: Sequence[Sequence[str]]) -> List[CommandResult]:
        results = run_together(commands, self._timeout_s, self._env)
        self.left_running += [r.left_running for r in results if r.left_running is not None]
        return results


def find_amd_smi(env: Mapping[str, str]) -> Optional[str]:
    """The program to ask: LLMGW_AMD_SMI, else amd-smi or rocm-smi on PATH or under /opt/rocm; None: none of them."""
    chosen = env.get("LLMGW_AMD_SMI")
    if chosen is not None:
        return chosen if chosen and exists(chosen) else None
    places = {**env, "PATH": f"{env.get('PATH', os.defpath)}{os.pathsep}/opt/rocm/bin"}
    return find_program("amd-smi", places) or find_program("rocm-smi", places)


def read_amd_cards(sysfs_root: str) -> List[AmdRow]:
    """The GPUs that the kernel's amdgpu driver tells of, in order of address.

    Source: docs.kernel.org/gpu/amdgpu/driver-misc.html.
    """
    found: Dict[str, str] = {}
    for name in list_names(f"{sysfs_root}/class/drm") or ():
        folder = f"{sysfs_root}/class/drm/{name}/device"
        if (
            name.startswith("card")
            and name[4:].isdecimal()
            and read_text(f"{folder}/vendor") == _AMD
        ):
            total = _read_whole(f"{folder}/mem_info_vram_total")
            if total:
                found[resolve(folder).name.lower()] = folder
    return [_read_card(index, bus, found[bus]) for index, bus in enumerate(sorted(found))]


def _read_card(index: int, bus_id: str, folder: str) -> AmdRow:
    used = _read_whole(f"{folder}/mem_info_vram_used")
    busy = _read_whole(f"{folder}/gpu_busy_percent")
    return AmdRow(
        index=index,
        name=read_text(f"{folder}/product_name") or None,
        uuid=read_text(f"{folder}/unique_id") or None,
        bus_id=bus_id,
        memory_total_mib=(_read_whole(f"{folder}/mem_info_vram_total") or 0) >> 20 or None,
        memory_used_mib=None if used is None else used >> 20,
        utilization_percent=busy,
    )


def assess_amd_gpus(
    reading: AmdReading, owners: Mapping[int, str], taken: Mapping[Unit, str], first_index: int = 0
) -> Tuple[Gpu, ...]:
    """Each AMD GPU, judged, in order of index. Pure.

    Args:
        first_index: of a machine that has NVIDIA GPUs too, how many: the labels of one node are unique.
    """
    return tuple(_assess(row, reading, owners, taken, first_index) for row in reading.rows)


def _assess(
    row: AmdRow,
    reading: AmdReading,
    owners: Mapping[int, str],
    taken: Mapping[Unit, str],
    first_index: int,
) -> Gpu:
    index = row.index + first_index
    processes = tuple(
        describe_process(
            AppRow("", app.pid, app.name, app.memory_mib),
            reading.processes.get(app.pid, ProcessFacts()),
            owners.get(app.pid),
        )
        for app in reading.apps
        if app.index == row.index
    )
    own = (process.engine for process in processes if process.engine is not None)
    engine = taken.get(index) or next(own, None)
    used = row.memory_used_mib
    beyond = None if used is None else str(used if used > _IDLE_MIB else 0)
    held = find_memory_held(
        GpuRow({"memory.used": Cell(beyond)}), processes, reading.processes, engine
    )
    health = _find_health(row, reading) + list(held)
    return Gpu(
        index=index,
        uuid=row.uuid,
        name=row.name,
        gpu_class=name_gpu_class(row.name, row.memory_total_mib),
        pci_bus_id=row.bus_id,
        memory_total_mib=row.memory_total_mib,
        memory_used_mib=used,
        utilization_percent=row.utilization_percent,
        temperature_celsius=row.temperature_celsius,
        power_watts=row.power_watts,
        power_limit_watts=row.power_limit_watts,
        ecc_uncorrected=row.ecc_uncorrected,
        health=tuple(health),
        processes=processes,
        engine=engine,
        available=engine is None and not any(f.severity is Severity.ERROR for f in health),
        vendor="amd",
        architecture=row.architecture,
    )


def _find_health(row: AmdRow, reading: AmdReading) -> List[GpuHealth]:
    found = []
    if row.ecc_uncorrected:
        message = f"{row.ecc_uncorrected} uncorrected memory error(s): reset the GPU when it is idle, or have it replaced"
        found.append(GpuHealth("ecc-uncorrected", Severity.ERROR, message))
    if row.memory_used_mib is None:
        message = "neither amd-smi nor the kernel tells how much memory is in use"
        found.append(GpuHealth("memory-unknown", Severity.ERROR, message))
    if reading.why_partial is not None:
        message = f"{reading.why_partial}; what is shown is the kernel's"
        found.append(GpuHealth("unreadable", Severity.WARNING, message))
    return found


def _explain(program: str, result: CommandResult) -> str:
    if result.timed_out:
        return f"{program} does not answer"
    if result.cannot_start:
        return f"{program} cannot be started"
    said = " ".join((result.stderr or result.stdout).split())[:120]
    text = "".join(char if char.isprintable() else "?" for char in said)
    return f"{program} names no GPU" + (f' and says "{text}"' if text else "")


def _read_whole(path: str) -> Optional[int]:
    text = read_text(path) or ""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None
