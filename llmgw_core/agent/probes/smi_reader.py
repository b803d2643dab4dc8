"""nvidia-smi asked: all of one reading at once, what an old one refuses asked otherwise, a hung one never doubled."""

import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import Callable, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.probes import nvidia_smi, smi_faults, smi_fields
from llmgw_core.agent.probes.commands import (
    CommandResult,
    Pending,
    run_together,
    terminate,
)
from llmgw_core.agent.probes.driver_files import DriverGpu, read_driver_gpus, read_loaded_driver
from llmgw_core.agent.probes.files import exists
from llmgw_core.agent.probes.kernel_log import KernelLog, KernelLogReading, is_simulated
from llmgw_core.agent.probes.mig import MigSlice, parse_mig_slices
from llmgw_core.agent.probes.nvidia_smi import AppRow, GpuRow
from llmgw_core.agent.probes.nvlink import parse_inactive_links
from llmgw_core.agent.probes.pci import PciCensus, read_pci
from llmgw_core.agent.probes.processes import (
    ProcessFacts,
    has_process_named,
    is_host_pid_namespace,
    read_processes,
)
from llmgw_core.agent.probes.smi_census import find_fault
from llmgw_core.agent.probes.smi_start import (
    StartedReading,
    build_first_commands,
    build_gpu_query,
    find_nvidia_smi,
    smi_env,
    start_links,
    start_reading,
)
from llmgw_core.domain.inventory import NodeFault

TIMEOUT_S = 10.0  # eight GPUs without persistence mode took 6 s
# What has once been too slow is given more time, since nobody waits for it any more: eight GPUs took 30 s to start.
_PATIENCE = 4.5
_ONE_GPU_TIMEOUT_S = 4.0
_MAX_ONE_BY_ONE = 16
_PCI_AGE_S = 30.0
_DETAILS_AGE_S = 10.0  # repairs, throttling, MIG mode
_RARE_AGE_S = 60.0  # the kernel log, NVLinks
_NOT_FOUND_CODE = 127  # a shell's
_RARE_WAIT_S = 1.0  # for NVLinks, once the GPUs have answered
_JOURNAL_AGE_S = 300.0  # the kernel log where commands have to read it
_FABRIC_MANAGER = "nv-fabricmanager"  # 16 characters: the kernel shows 15
_WSL_LIBRARIES = "/usr/lib/wsl/lib"


@dataclass(frozen=True)
class GpuReading:
    """What nvidia-smi said at one time. No rows and no fault: the node has no GPU that it knows."""

    rows: Tuple[GpuRow, ...] = ()
    apps: Tuple[AppRow, ...] = ()
    lost: Tuple[Tuple[Optional[int], str], ...] = ()  # (index, bus id) the driver has no handle for
    corrupt_inforoms: Tuple[str, ...] = ()  # bus ids
    processes: Mapping[int, ProcessFacts] = field(default_factory=dict)
    driver_version: Optional[str] = None
    cuda_version: Optional[str] = None
    fault: Optional[NodeFault] = None
    is_silent: bool = False  # nvidia-smi gave no answer at all
    has_program: bool = True  # there is an nvidia-smi
    took_s: float = 0.0
    slices: Tuple[MigSlice, ...] = ()
    inactive_links: Mapping[int, int] = field(default_factory=dict)  # by index, how many NVLinks
    pci: Optional[PciCensus] = None
    log: Optional[KernelLog] = None  # None: nobody looked
    has_fabric_manager: Optional[bool] = None  # None: cannot be told, or no NVSwitch to manage
    is_wsl: bool = False  # the driver is Windows': it lists no processes
    at: Optional[float] = None  # UTC epoch seconds
    has_details: bool = (
        True  # the second query was answered: recovery action, remapping, fabric, MIG
    )
    driver_gpus: Tuple[DriverGpu, ...] = ()  # by the kernel module, where nvidia-smi is silent


class SmiReader:
    """Asks nvidia-smi, and remembers which fields it knows and which of its processes could not be ended.

    One reading costs the time of one nvidia-smi: everything is asked at once. Not thread-safe: one reading at a time.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        timeout_s: float = TIMEOUT_S,
        started: Optional[StartedReading] = None,
    ) -> None:
        self._env = smi_env(env)
        self._started = started
        self._sysfs_root = env.get("LLMGW_SYSFS_ROOT") or "/sys"
        self._is_simulated = is_simulated(env)
        self.timeout_s = timeout_s
        self._build: Tuple[str, int, int] = ("", 0, 0)  # of the nvidia-smi that the rest is true of
        self._forget()
        self._pci: Optional[PciCensus] = None
        self._pci_until = 0.0  # monotonic
        self._log: Optional[KernelLog] = None
        self._links: Mapping[int, int] = {}
        self._rare_until = 0.0  # monotonic
        self._was_silent = False
        self.left_running: List[subprocess.Popen[bytes]] = []
        self.is_other_hung: Callable[[], bool] = lambda: False  # one that somebody else started

    def _forget(self) -> None:
        self.core: Tuple[str, ...] = smi_fields.CORE_FIELDS
        self.extra: Tuple[str, ...] = smi_fields.EXTRA_FIELDS
        self._known: Optional[FrozenSet[str]] = None  # by its help; None: not asked yet
        self._versions: Optional[Tuple[Optional[str], Optional[str]]] = None  # driver, CUDA
        self._has_mig = False
        self._details: Optional[CommandResult] = None  # the last answer to the extra query
        self._details_until = 0.0  # monotonic

    def read(self) -> GpuReading:
        """The GPUs now. Never fails; takes at most the timeout and a few seconds, nothing while a hung one lives."""
        program = find_nvidia_smi(self._env)
        if program is None:
            pci = self._list_pci(is_needed_now=True)
            return GpuReading(has_program=False, pci=pci, at=time.time())
        if self.is_hung:
            return self._give_up(still_runs=True)
        self._notice_other_build(program)
        started = self._take_started(program)
        deadline = started.at + self.timeout_s * (_PATIENCE if self._was_silent else 1.0)
        pci = self._list_pci(is_needed_now=False)
        rare = self._start_rare(started, pci)
        answers = dict(zip(started.names, self._finish(started.pending, deadline)))
        # Who has just been waited for in vain is not waited for again.
        self._finish_rare(rare, 0.0 if answers["core"].timed_out else _RARE_WAIT_S)
        if not answers["core"].timed_out:
            self._ask_otherwise(program, answers, deadline)
            self._keep_details(answers)
        return self._put_together(program, answers, time.monotonic() - started.at)

    @property
    def is_hung(self) -> bool:
        """Whether an earlier nvidia-smi that did not end on SIGTERM still lives."""
        self.left_running = [process for process in self.left_running if process.poll() is None]
        return bool(self.left_running) or self.is_other_hung()

    @property
    def program(self) -> str:
        """The nvidia-smi of the last reading; "" before."""
        return self._build[0]

    def close(self) -> None:
        """Ask what was left running to end, once more."""
        for process in self.left_running:
            terminate(process)

    def _notice_other_build(self, program: str) -> None:
        """What one nvidia-smi knows, the next, after an upgrade, may not."""
        try:
            stat = os.stat(program)  # noqa: PTH116 - pathlib costs at each reading
        except OSError:
            return
        build = (program, stat.st_mtime_ns, stat.st_size)
        if build != self._build:
            self._build = build
            self._forget()

    def _take_started(self, program: str) -> StartedReading:
        """The reading that was begun for this reader, once; else one begun now."""
        started, self._started = self._started, None
        if started is not None and started.program == program:
            return started
        return start_reading(program, self._list_commands(program), self._env)

    def _list_commands(self, program: str) -> "dict[str, List[str]]":
        commands = build_first_commands(program)
        commands["core"] = build_gpu_query(program, self.core)
        commands["extra"] = build_gpu_query(program, self._keys + self.extra)
        if not self.extra or time.monotonic() < self._details_until:
            del commands["extra"]
        if self._versions is not None:
            del commands["version"]
        if self._known is not None:
            del commands["help"]
        if self._has_mig:
            commands["list"] = [program, "-L"]
        return commands

    @property
    def _keys(self) -> Tuple[str, ...]:
        """What a row of the second query is told by: as far as this nvidia-smi knows it."""
        return tuple(name for name in smi_fields.KEY_FIELDS if name in self.core)

    def _ask_otherwise(
        self, program: str, answers: "dict[str, CommandResult]", deadline: float
    ) -> None:
        """Ask again, without the field, while a query is refused for one; and for MIG instances where there are any."""
        if "help" in answers:
            self._known = smi_fields.parse_help_fields(answers["help"].stdout)
        known = self._known or frozenset()
        for _ in range(len(self.core) + len(self.extra)):
            asked = (self.core, self._keys + self.extra)
            self.core = _narrow(self.core, answers["core"], known) or self.core
            self.extra = _narrow(self.extra, answers.get("extra"), known)
            again = {}
            if self.core != asked[0]:
                again["core"] = build_gpu_query(program, self.core)
            if not self.extra:
                answers.pop("extra", None)
            elif self._keys + self.extra != asked[1]:
                again["extra"] = build_gpu_query(program, self._keys + self.extra)
            if not again or time.monotonic() >= deadline:
                break
            answers.update(zip(again, self._run(list(again.values()), deadline)))
        if not self._has_mig and self._sees_mig(answers):
            self._has_mig = True
            (answers["list"],) = self._run([[program, "-L"]], deadline)

    def _keep_details(self, answers: "dict[str, CommandResult]") -> None:
        """What wears out slowly is asked seldom, and its last answer taken meanwhile: rows find theirs by uuid."""
        extra = answers.get("extra")
        if extra is None and self.extra and self._details is not None:
            answers["extra"] = self._details
        elif extra is not None and extra.code == 0:
            self._details, self._details_until = extra, time.monotonic() + _DETAILS_AGE_S

    def _sees_mig(self, answers: "dict[str, CommandResult]") -> bool:
        extra = answers.get("extra")
        if extra is None or "mig.mode.current" not in self.extra:
            return False
        rows = nvidia_smi.parse_gpu_rows(extra.stdout, self._keys + self.extra)
        return any(row.text("mig.mode.current") == "Enabled" for row in rows)

    def _run(self, commands: Sequence[Sequence[str]], deadline: float) -> List[CommandResult]:
        return self._note_left(
            run_together(commands, max(0.1, deadline - time.monotonic()), self._env)
        )

    def _finish(self, pending: Pending, deadline: float) -> List[CommandResult]:
        return self._note_left(pending.finish(max(0.1, deadline - time.monotonic())))

    def _note_left(self, results: List[CommandResult]) -> List[CommandResult]:
        self.left_running += [r.left_running for r in results if r.left_running is not None]
        return results

    def _start_rare(
        self, started: StartedReading, pci: Optional[PciCensus]
    ) -> Optional[Tuple[KernelLogReading, Optional[Pending]]]:
        """What changes seldom, under way: the kernel log, and the NVLinks of machines with several GPUs."""
        if time.monotonic() < self._rare_until:
            return None
        self._rare_until = time.monotonic() + _RARE_AGE_S
        has_several = pci is not None and len(pci.nvidia) > 1
        links = started.links
        if links is None and has_several:
            links = start_links(started.program, self._env)
        log = KernelLogReading(self._env)
        if not log.is_cheap:
            self._rare_until = time.monotonic() + _JOURNAL_AGE_S
        return log, links

    def _finish_rare(
        self, rare: Optional[Tuple[KernelLogReading, Optional[Pending]]], wait_s: float
    ) -> None:
        if rare is None:
            return
        reading, links = rare
        self._log = reading.finish()
        if links is not None:
            (answer,) = self._note_left(links.finish(wait_s))
            self._links = parse_inactive_links(answer.stdout) if answer.code == 0 else {}

    def _put_together(
        self, program: str, answers: "dict[str, CommandResult]", took_s: float
    ) -> GpuReading:
        core, apps = answers["core"], answers["apps"]
        if core.timed_out:
            return self._give_up(still_runs=core.left_running is not None)
        if core.cannot_start:
            return GpuReading(fault=smi_faults.explain_not_started(core.cannot_start))
        rows = _parse_rows(core, self.core)
        self._was_silent = False
        if core.code == _NOT_FOUND_CODE and not core.stdout.strip():
            # A wrapper script without the program behind it: as good as no nvidia-smi.
            return GpuReading(has_program=False, pci=self._pci, at=time.time())
        text, more = core.stdout + core.stderr, answers.get("extra")
        details: List[GpuRow] = []
        if more is not None and not more.timed_out:
            text += "\n" + more.stdout + more.stderr
            details = _parse_rows(more, self._keys + self.extra)
            rows = nvidia_smi.merge_rows(rows, details)
        has_details = bool(details) or not rows
        lost = nvidia_smi.parse_lost_gpus(text)
        pci = self._list_pci(is_needed_now=bool(lost) or not rows)
        if lost:
            rows += self._ask_one_by_one(program, rows, [bus for _, bus in lost], pci)
        app_rows = nvidia_smi.parse_app_rows(apps.stdout) if apps.code == 0 else []
        driver, cuda = self._note_versions(rows, answers.get("version"))
        listed = answers.get("list")
        return GpuReading(
            rows=tuple(rows),
            apps=tuple(app_rows),
            lost=tuple(lost),
            corrupt_inforoms=tuple(nvidia_smi.parse_corrupt_inforoms(text)),
            processes=read_processes((app.pid, app.name) for app in app_rows),
            driver_version=driver,
            cuda_version=cuda,
            fault=find_fault(core, rows, lost, pci),
            took_s=took_s,
            slices=tuple(parse_mig_slices(listed.stdout)) if listed is not None else (),
            inactive_links=self._links,
            pci=pci,
            log=self._log,
            has_fabric_manager=_find_fabric_manager(pci),
            is_wsl=exists(_WSL_LIBRARIES),
            at=time.time(),
            has_details=has_details,
        )

    def _give_up(self, *, still_runs: bool) -> GpuReading:
        self._was_silent = True
        driver, cuda = self._versions or (None, None)
        fault = smi_faults.explain_timeout(self.timeout_s, still_runs=still_runs)
        return GpuReading(
            driver_version=driver or (None if self._is_simulated else read_loaded_driver()),
            cuda_version=cuda,
            fault=fault,
            is_silent=True,
            driver_gpus=() if self._is_simulated else tuple(read_driver_gpus()),
            pci=self._pci,
            log=self._log,
            at=time.time(),
        )

    def _list_pci(self, *, is_needed_now: bool) -> Optional[PciCensus]:
        """What is on the bus, listed anew twice a minute or when nvidia-smi does not tell."""
        now = time.monotonic()
        if is_needed_now or now >= self._pci_until:
            self._pci = read_pci(self._sysfs_root)
            self._pci_until = now + _PCI_AGE_S
        return self._pci

    def _ask_one_by_one(
        self,
        program: str,
        rows: Sequence[GpuRow],
        lost: Sequence[str],
        pci: Optional[PciCensus],
    ) -> List[GpuRow]:
        """One GPU without a handle silences the plain query; the others still answer by their address."""
        seen = {nvidia_smi.normalize_bus_id(row.text("pci.bus_id")) for row in rows} | set(lost)
        on_bus = () if pci is None else pci.nvidia
        rest = [gpu.bus_id for gpu in on_bus if gpu.bus_id not in seen][:_MAX_ONE_BY_ONE]
        if not rest:
            return []
        deadline = time.monotonic() + _ONE_GPU_TIMEOUT_S
        known = self._known or frozenset()
        results: List[CommandResult] = []
        fields = self.core + tuple(smi_fields.keep_known(self.extra, known) or self.extra)
        for _ in range(len(fields)):
            queries = [[*build_gpu_query(program, fields), "-i", bus_id] for bus_id in rest]
            results = self._run(queries, deadline)
            left = next(
                (f for f in (_narrow(fields, r, known) for r in results) if f != fields), ()
            )
            if not left or time.monotonic() >= deadline:
                break
            fields = left
        return [row for result in results for row in _parse_rows(result, fields, is_sure=False)]

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


def _parse_rows(
    answer: CommandResult, fields: Sequence[str], *, is_sure: Optional[bool] = None
) -> List[GpuRow]:
    """The rows of an answer, each cell under the name it goes by here."""
    names = tuple(map(smi_fields.canonical_name, fields))
    is_sure = answer.code == 0 if is_sure is None else is_sure
    return nvidia_smi.parse_gpu_rows(answer.stdout, names, is_sure=is_sure)


def _narrow(
    fields: Tuple[str, ...], answer: Optional[CommandResult], known: FrozenSet[str]
) -> Tuple[str, ...]:
    """The fields to ask for next: the same, unless the answer refuses one of them."""
    if answer is None:
        return fields
    rejected = smi_fields.parse_rejected_field(answer.stdout + answer.stderr)
    return smi_fields.drop_field(fields, rejected, known) if rejected else fields


def _find_fabric_manager(pci: Optional[PciCensus]) -> Optional[bool]:
    if pci is None or not pci.has_nvswitch or not is_host_pid_namespace():
        return None
    return has_process_named(_FABRIC_MANAGER)
