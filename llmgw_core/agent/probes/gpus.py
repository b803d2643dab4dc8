"""The node's GPUs: nvidia-smi asked, its answers put together, and each GPU judged."""

import os
import re
import subprocess
import time
from dataclasses import dataclass, field, replace
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from llmgw_core.agent.probes import nvidia_smi, smi_faults
from llmgw_core.agent.probes.commands import CommandResult, run_together, terminate
from llmgw_core.agent.probes.files import exists
from llmgw_core.agent.probes.gpu_classes import guess_compute_capability, name_gpu_class
from llmgw_core.agent.probes.gpu_health import (
    explain_lost,
    explain_silent,
    find_health,
    find_memory_held,
    is_lost,
    needs_reset,
)
from llmgw_core.agent.probes.nvidia_smi import AppRow, GpuRow
from llmgw_core.agent.probes.pci import PciGpu, read_pci_gpus
from llmgw_core.agent.probes.processes import (
    ProcessFacts,
    is_host_pid_namespace,
    read_processes,
)
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu, GpuHealth, GpuProcess
from llmgw_core.domain.inventory import NodeFault

TIMEOUT_S = 10.0  # eight GPUs without persistence mode took 6 s
_ONE_GPU_TIMEOUT_S = 4.0
_MAX_TRIES = 6  # one for each field refused
_MAX_ONE_BY_ONE = 16
_PCI_AGE_S = 30.0
_CORRUPT_INFOROM_CODE = 14
_CSV = "--format=csv,noheader,nounits"


@dataclass(frozen=True)
class GpuReading:
    """What nvidia-smi said at one time. No rows and no fault: the node has no GPU."""

    rows: Tuple[GpuRow, ...] = ()
    apps: Tuple[AppRow, ...] = ()
    lost: Tuple[Tuple[Optional[int], str], ...] = ()  # (index, bus id) the driver has no handle for
    corrupt_inforoms: Tuple[str, ...] = ()  # bus ids
    processes: Mapping[int, ProcessFacts] = field(default_factory=dict)
    driver_version: Optional[str] = None
    cuda_version: Optional[str] = None
    fault: Optional[NodeFault] = None
    is_silent: bool = False  # nvidia-smi gave no answer at all


class SmiReader:
    """Asks nvidia-smi, and remembers which fields it knows and which of its processes could not be ended.

    One reading costs the time of one nvidia-smi: everything is asked at once. Not thread-safe: one reading at a time.
    """

    def __init__(self, env: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        self._env = {**env, "LC_ALL": "C"}
        self._sysfs_root = env.get("LLMGW_SYSFS_ROOT") or "/sys"
        self.timeout_s = timeout_s
        self.fields: Tuple[str, ...] = nvidia_smi.CORE_FIELDS + nvidia_smi.EXTRA_FIELDS
        self._versions: Optional[Tuple[Optional[str], Optional[str]]] = None  # driver, CUDA
        self._pci: Optional[Sequence[PciGpu]] = None
        self._pci_until = 0.0  # monotonic
        self.left_running: List[subprocess.Popen[bytes]] = []

    def read(self) -> GpuReading:
        """The GPUs now. Never fails; takes at most the timeout and a few seconds, nothing while a hung one lives."""
        program = find_nvidia_smi(self._env)
        if program is None:
            return GpuReading()
        if self.is_hung:
            return self._give_up(still_runs=True)
        deadline = time.monotonic() + self.timeout_s
        gpus, apps, version = self._ask(program, deadline)
        return self._put_together(program, gpus, apps, version)

    @property
    def is_hung(self) -> bool:
        """Whether an earlier nvidia-smi that did not end on SIGTERM still lives."""
        self.left_running = [process for process in self.left_running if process.poll() is None]
        return bool(self.left_running)

    def close(self) -> None:
        """Ask what was left running to end, once more."""
        for process in self.left_running:
            terminate(process)

    def _ask(
        self, program: str, deadline: float
    ) -> Tuple[CommandResult, CommandResult, Optional[CommandResult]]:
        """The answers about GPUs, processes and versions; the first again while it refuses a field."""
        apps_query = [program, f"--query-compute-apps={','.join(nvidia_smi.APP_FIELDS)}", _CSV]
        commands = [self._gpu_query(program), apps_query]
        if self._versions is None:
            commands.append([program, "--version"])
        gpus, apps, *rest = self._run(commands, deadline)
        for _ in range(_MAX_TRIES):
            rejected = nvidia_smi.parse_rejected_field(gpus.stdout + gpus.stderr)
            fields = nvidia_smi.drop_field(self.fields, rejected) if rejected else self.fields
            if fields == self.fields or not fields:
                break
            self.fields = fields
            (gpus,) = self._run([self._gpu_query(program)], deadline)
        return gpus, apps, rest[0] if rest else None

    def _gpu_query(self, program: str) -> List[str]:
        return [program, f"--query-gpu={','.join(self.fields)}", _CSV]

    def _run(self, commands: Sequence[Sequence[str]], deadline: float) -> List[CommandResult]:
        timeout_s = max(0.1, deadline - time.monotonic())
        results = run_together(commands, timeout_s, self._env)
        self.left_running += [r.left_running for r in results if r.left_running is not None]
        return results

    def _put_together(
        self,
        program: str,
        gpus: CommandResult,
        apps: CommandResult,
        version: Optional[CommandResult],
    ) -> GpuReading:
        if gpus.timed_out:
            return self._give_up(still_runs=gpus.left_running is not None)
        if gpus.cannot_start:
            return GpuReading(fault=smi_faults.explain_not_started(gpus.cannot_start))
        text = gpus.stdout + gpus.stderr
        rows = nvidia_smi.parse_gpu_rows(gpus.stdout, self.fields, is_sure=gpus.code == 0)
        lost = nvidia_smi.parse_lost_gpus(text)
        pci = self._list_pci(is_needed_now=bool(lost) or not rows)
        if lost:
            rows += self._ask_one_by_one(program, rows, [bus for _, bus in lost], pci)
        app_rows = nvidia_smi.parse_app_rows(apps.stdout) if apps.code == 0 else []
        driver, cuda = self._note_versions(rows, version)
        return GpuReading(
            rows=tuple(rows),
            apps=tuple(app_rows),
            lost=tuple(lost),
            corrupt_inforoms=tuple(nvidia_smi.parse_corrupt_inforoms(text)),
            processes=read_processes((app.pid, app.name) for app in app_rows),
            driver_version=driver,
            cuda_version=cuda,
            fault=_find_fault(gpus, rows, lost, pci),
        )

    def _give_up(self, *, still_runs: bool) -> GpuReading:
        driver, cuda = self._versions or (None, None)
        fault = smi_faults.explain_timeout(self.timeout_s, still_runs=still_runs)
        return GpuReading(driver_version=driver, cuda_version=cuda, fault=fault, is_silent=True)

    def _list_pci(self, *, is_needed_now: bool) -> Optional[Sequence[PciGpu]]:
        """What is on the bus, listed anew twice a minute or when nvidia-smi does not tell."""
        now = time.monotonic()
        if is_needed_now or now >= self._pci_until:
            self._pci = read_pci_gpus(self._sysfs_root)
            self._pci_until = now + _PCI_AGE_S
        return self._pci

    def _ask_one_by_one(
        self,
        program: str,
        rows: Sequence[GpuRow],
        lost: Sequence[str],
        pci: Optional[Sequence[PciGpu]],
    ) -> List[GpuRow]:
        """One GPU without a handle silences the plain query; the others still answer by their address."""
        seen = {nvidia_smi.normalize_bus_id(row.text("pci.bus_id")) for row in rows} | set(lost)
        rest = [gpu.bus_id for gpu in pci or () if gpu.bus_id not in seen][:_MAX_ONE_BY_ONE]
        commands = [[*self._gpu_query(program), "-i", bus_id] for bus_id in rest]
        results = self._run(commands, time.monotonic() + _ONE_GPU_TIMEOUT_S)
        return [
            row
            for result in results
            for row in nvidia_smi.parse_gpu_rows(result.stdout, self.fields, is_sure=False)
        ]

    def _note_versions(
        self, rows: Sequence[GpuRow], version: Optional[CommandResult]
    ) -> Tuple[Optional[str], Optional[str]]:
        driver = next(
            (row.text("driver_version") for row in rows if row.text("driver_version")), None
        )
        if version is not None and version.code is not None:
            text = version.stdout
            driver = driver or nvidia_smi.parse_driver_version(text)
            self._versions = (driver, nvidia_smi.parse_cuda_version(text))
        known = self._versions or (None, None)
        if driver is not None and known[0] != driver:
            self._versions = None  # the driver was replaced: ask again next time
            return driver, None
        return driver or known[0], known[1]


def find_nvidia_smi(env: Mapping[str, str]) -> Optional[str]:
    """The program to ask: LLMGW_NVIDIA_SMI, else the first on PATH; None when there is none."""
    chosen = env.get("LLMGW_NVIDIA_SMI")
    if chosen:
        return chosen if exists(chosen) else None
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = f"{folder or '.'}/nvidia-smi"
        if exists(path) and os.access(path, os.X_OK):
            return path
    return None


def assess_gpus(
    reading: GpuReading,
    owners: Mapping[int, str],
    taken: Mapping[int, str],
    known: Sequence[Gpu] = (),
) -> Tuple[Gpu, ...]:
    """Each GPU of a reading, judged, in order of index. Pure.

    Args:
        owners: engine id by pid, of all processes of engines of ours.
        taken: engine id by GPU index, of engines that are not over.
        known: the GPUs of the last reading that gave any: who is silent or lost now, keeps its identity.
    """
    if reading.is_silent:
        return tuple(_as_silent(gpu, explain_silent(), taken) for gpu in known)
    free = _free_indices(reading)
    gpus = [_assess_row(row, reading, owners, taken, free) for row in reading.rows]
    seen = {gpu.pci_bus_id for gpu in gpus}
    for index, bus_id in reading.lost:
        if bus_id not in seen:
            seen.add(bus_id)
            gpu = next((gpu for gpu in known if gpu.pci_bus_id == bus_id), None)
            number = free.pop(0) if index is None or index not in free else index
            base = (
                Gpu(index=number, pci_bus_id=bus_id) if gpu is None else replace(gpu, index=number)
            )
            gpus.append(_as_silent(base, explain_lost(bus_id), taken))
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _free_indices(reading: GpuReading) -> List[int]:
    """Numbers no row has, for GPUs of which only the address is known: a label has to be there, and be unique."""
    used: Set[Optional[int]] = {row.whole("index") for row in reading.rows}
    total = len(reading.rows) + len(reading.lost)
    return [number for number in range(2 * total) if number not in used]


def _assess_row(
    row: GpuRow,
    reading: GpuReading,
    owners: Mapping[int, str],
    taken: Mapping[int, str],
    free: List[int],
) -> Gpu:
    index = row.whole("index")
    index = free.pop(0) if index is None else index
    gpu = _describe_gpu(row, index)
    processes = tuple(
        GpuProcess(
            app.pid,
            app.name,
            reading.processes.get(app.pid, ProcessFacts()).user,
            app.memory_mib,
            owners.get(app.pid),
        )
        for app in reading.apps
        if app.gpu_uuid == gpu.uuid
    )
    own = (process.engine for process in processes if process.engine is not None)
    engine = taken.get(index) or next(own, None)
    health = find_health(row) + find_memory_held(row, processes, reading.processes, engine)
    if gpu.pci_bus_id in reading.corrupt_inforoms:
        message = "its infoROM is corrupt: it works on, and cannot record its own errors"
        health += (GpuHealth("inforom-corrupt", Severity.WARNING, message),)
    is_healthy = not any(flag.severity is Severity.ERROR for flag in health)
    return replace(
        gpu,
        health=health,
        processes=processes,
        engine=engine,
        available=is_healthy and engine is None,
    )


def _describe_gpu(row: GpuRow, index: int) -> Gpu:
    name = row.text("name")
    total = row.whole("memory.total") or None  # a card without memory is a failed read
    # A dead card reads as empty and idle, which would make it the first to be chosen.
    is_believed = not (needs_reset(row) or is_lost(row))
    return Gpu(
        index=index,
        uuid=row.text("uuid"),
        name=name,
        gpu_class=name_gpu_class(name, total),
        pci_bus_id=nvidia_smi.normalize_bus_id(row.text("pci.bus_id")),
        compute_capability=_capability(row) or guess_compute_capability(name),
        memory_total_mib=total,
        memory_used_mib=row.whole("memory.used") if is_believed else None,
        utilization_percent=row.whole("utilization.gpu") if is_believed else None,
        temperature_celsius=row.whole("temperature.gpu"),
        power_watts=row.number("power.draw"),
        power_limit_watts=row.number("power.limit"),
        ecc_uncorrected=row.whole("ecc.errors.uncorrected.volatile.total"),
        mig_mode=row.text("mig.mode.current"),
    )


def _capability(row: GpuRow) -> Optional[str]:
    text = row.text("compute_cap") or ""
    return text if re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,2}", text) else None


def _as_silent(gpu: Gpu, flag: GpuHealth, taken: Mapping[int, str]) -> Gpu:
    """The GPU's identity without its readings."""
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        gpu_class=gpu.gpu_class,
        pci_bus_id=gpu.pci_bus_id,
        compute_capability=gpu.compute_capability,
        memory_total_mib=gpu.memory_total_mib,
        health=(flag,),
        engine=taken.get(gpu.index),
    )


def find_missing_gpus(
    rows: Sequence[GpuRow], lost: Sequence[str], pci: Sequence[PciGpu]
) -> List[str]:
    """Bus ids of GPUs that are bound to the driver and in no row. Empty where a row has no address to compare."""
    shown: Dict[Optional[str], bool] = {
        nvidia_smi.normalize_bus_id(row.text("pci.bus_id")): True for row in rows
    }
    if None in shown:
        return []
    return [
        gpu.bus_id
        for gpu in pci
        if gpu.has_driver and gpu.bus_id not in shown and gpu.bus_id not in lost
    ]


def _find_fault(
    gpus: CommandResult,
    rows: Sequence[GpuRow],
    lost: Sequence[Tuple[Optional[int], str]],
    pci: Optional[Sequence[PciGpu]],
) -> Optional[NodeFault]:
    """What has to be said of the node as a whole; GPUs that are lost say so themselves."""
    text = gpus.stdout + gpus.stderr
    addresses = None if pci is None else [gpu.bus_id for gpu in pci]
    if any(row.is_cut for row in rows):
        return smi_faults.explain_cut_output()
    if not rows or (gpus.code not in (0, _CORRUPT_INFOROM_CODE) and not (lost and pci)):
        return smi_faults.explain_failure(text, gpus.code, addresses)
    # A container sees all of the host's PCI, and its own GPUs only.
    if pci is not None and is_host_pid_namespace():
        missing = find_missing_gpus(rows, [bus_id for _, bus_id in lost], pci)
        return smi_faults.explain_missing_gpus(missing) if missing else None
    return None
