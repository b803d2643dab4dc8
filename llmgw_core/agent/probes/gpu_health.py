"""Whether an operator would launch on a GPU: its health flags and who holds it. Pure."""

from typing import List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.probes.gpu_classes import has_unified_memory
from llmgw_core.agent.probes.nvidia_smi import GpuRow
from llmgw_core.agent.probes.processes import ProcessFacts
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import GpuHealth, GpuProcess

# What an idle driver, an X server or MIG instances take without anybody computing: 0 to 59 MiB were seen.
HELD_ABOVE_MIB = 64
# With a desktop on it: 211 to 596 MiB were seen.
HELD_ABOVE_MIB_WITH_DISPLAY = 1024
_SHOWN_PROCESSES = 4
# Serves other processes' work; holds next to nothing itself.
_INFRASTRUCTURE = frozenset({"nvidia-cuda-mps-server"})
_MEMORY_FIELDS = ("memory.total", "memory.used")


def needs_reset(row: GpuRow) -> bool:
    """Whether the driver says so, in a cell or as recovery action. Its other readings are then not to be believed."""
    action = row.text("gpu_recovery_action")
    return any("requires reset" in token for token in row.failures.values()) or (
        action is not None and action != "None"
    )


def is_lost(row: GpuRow) -> bool:
    """Whether the driver says that the GPU is off the bus."""
    return any("is lost" in token for token in row.failures.values())


def find_health(row: GpuRow) -> Tuple[GpuHealth, ...]:
    """Everything the reading itself says against the GPU, errors first; memory held by others comes apart."""
    found: List[GpuHealth] = []
    if is_lost(row):
        found.append(explain_lost(row.text("pci.bus_id")))
    if needs_reset(row):
        found.append(_error("requires-reset", _reset_message(row)))
    found += _find_unreadable(row)
    found += _find_memory_repair(row)
    found += _find_fabric(row)
    found += _find_modes(row)
    return tuple(sorted(found, key=lambda flag: flag.severity is not Severity.ERROR))


def explain_lost(bus_id: Optional[str]) -> GpuHealth:
    """The flag of a GPU that the driver has no handle for."""
    where = f" at {bus_id}" if bus_id else ""
    return _error(
        "gpu-lost",
        f"the driver cannot reach the GPU{where}: look for Xid 79 in the kernel log, and reboot the node",
    )


def explain_silent() -> GpuHealth:
    """The flag of a GPU known from an earlier reading while nvidia-smi gives none."""
    return _error(
        "unreadable", "nvidia-smi does not answer: what is shown is who it was, not how it is"
    )


def find_memory_held(
    row: GpuRow,
    processes: Sequence[GpuProcess],
    facts: Mapping[int, ProcessFacts],
    engine: Optional[str],
) -> Tuple[GpuHealth, ...]:
    """The flag that something which is no engine of ours holds memory, with whom; empty when nothing does.

    Args:
        engine: the engine of ours that has this GPU; what no process accounts for is then its memory.
    """
    has_display = row.text("display_active") == "Enabled"
    foreign = [p for p in processes if p.engine is None and not _is_harmless(p, has_display)]
    if foreign and not (engine is not None and all(_may_be_ours(p, facts) for p in foreign)):
        return (_error("memory-held", _held_message(foreign, facts)),)
    used = row.whole("memory.used")
    limit = HELD_ABOVE_MIB_WITH_DISPLAY if has_display else HELD_ABOVE_MIB
    if foreign or engine is not None or used is None or used <= limit or not _is_used_exact(row):
        return ()
    return (
        _error(
            "memory-held",
            f"{used} MiB are in use and no process is listed for them: one in a container or of another user, "
            "or the remains of one that died; `nvidia-smi --gpu-reset` frees the latter",
        ),
    )


def _is_harmless(process: GpuProcess, has_display: bool) -> bool:
    """A desktop's compositor, or the server of shared GPUs."""
    name = (process.name or "").rsplit("/", 1)[-1]
    memory = process.memory_mib
    is_small = memory is not None and memory <= HELD_ABOVE_MIB
    return name in _INFRASTRUCTURE or (has_display and is_small)


def _may_be_ours(process: GpuProcess, facts: Mapping[int, ProcessFacts]) -> bool:
    """In a container the driver's pids say nothing: on a GPU that we have, such a process is taken for ours."""
    fact = facts.get(process.pid, ProcessFacts())
    return fact.user is None and not fact.is_gone


def _held_message(processes: Sequence[GpuProcess], facts: Mapping[int, ProcessFacts]) -> str:
    shown = ", ".join(_describe(p, facts) for p in processes[:_SHOWN_PROCESSES])
    more = len(processes) - _SHOWN_PROCESSES
    rest = f" and {more} more" if more > 0 else ""
    if all(facts.get(p.pid, ProcessFacts()).is_gone for p in processes):
        return f"{shown}{rest} is dead and its memory remains: `nvidia-smi --gpu-reset` or a reboot frees it"
    return f"{shown}{rest}, no engine of llmgw: stop it, or choose another GPU"


def _describe(process: GpuProcess, facts: Mapping[int, ProcessFacts]) -> str:
    memory = "memory" if process.memory_mib is None else f"{process.memory_mib} MiB"
    who = [process.name or "name unknown"]
    if process.user is not None:
        who.append(f"user {process.user}")
    elif not facts.get(process.pid, ProcessFacts()).is_gone:
        who.append("owner not visible from here")
    return f"pid {process.pid} ({', '.join(who)}) holds {memory}"


def _is_used_exact(row: GpuRow) -> bool:
    """False where the figure is known to count what nobody holds.

    With ATS the GPU's memory is a NUMA node of the kernel, which puts page cache there; in MIG mode instances take
    some each.
    """
    return row.text("addressing_mode") != "ATS" and row.text("mig.mode.current") != "Enabled"


def _reset_message(row: GpuRow) -> str:
    action = row.text("gpu_recovery_action")
    named = f" (recovery action: {action})" if action not in (None, "None") else ""
    return (
        f"the driver asks for a reset{named}: stop what uses the GPU, then `nvidia-smi --gpu-reset`"
    )


def _find_unreadable(row: GpuRow) -> List[GpuHealth]:
    tokens = {
        name: token
        for name, token in row.failures.items()
        if "requires reset" not in token and "is lost" not in token
    }
    found = []
    is_blind = any(name in tokens for name in _MEMORY_FIELDS)
    if row.is_cut:
        found.append(_error("unreadable", "the output of nvidia-smi breaks off in this GPU's line"))
    if tokens:
        listed = ", ".join(f"{name} {token}" for name, token in sorted(tokens.items()))
        severity = Severity.ERROR if is_blind else Severity.WARNING
        found.append(GpuHealth("unreadable", severity, f"the driver fails to read {listed}"))
    if not (row.is_cut or is_blind) and _is_memory_hidden(row):
        found.append(_error("memory-unknown", "the driver does not tell how much memory is in use"))
    return found


def _is_memory_hidden(row: GpuRow) -> bool:
    return (
        "memory.used" in row.cells
        and row.whole("memory.used") is None
        and "memory.used" not in row.failures
        and not has_unified_memory(row.text("name") or "")
    )


def _find_memory_repair(row: GpuRow) -> List[GpuHealth]:
    found = []
    errors = row.whole("ecc.errors.uncorrected.volatile.total")
    if errors:
        found.append(
            _error(
                "ecc-uncorrected",
                f"{errors} uncorrected memory error(s) since the driver was loaded: reset the GPU when it is idle; "
                "if they come back, have it replaced",
            )
        )
    if row.text("remapped_rows.failure") == "Yes":
        found.append(
            _error("row-remap-failed", "a bad memory row could not be remapped: replace the GPU")
        )
    if row.text("remapped_rows.pending") == "Yes":
        found.append(
            GpuHealth(
                "row-remap-pending",
                Severity.WARNING,
                "a bad memory row waits to be remapped: reset the GPU when it is idle",
            )
        )
    return found


def _find_fabric(row: GpuRow) -> List[GpuHealth]:
    """NVSwitch machines: until the fabric is up, CUDA fails with 802 `system not yet initialized`."""
    state, status = row.text("fabric.state"), row.text("fabric.status")
    if state in ("Not Started", "In Progress"):
        message = (
            f"NVLink fabric: {state}; CUDA will not start: look at nvidia-fabricmanager.service"
        )
        return [_error("nvlink-fabric", message)]
    if state == "Completed" and status not in (None, "Success"):
        message = (
            f"NVLink fabric: {status}; look at nvidia-fabricmanager.service, then reset the GPU"
        )
        return [_error("nvlink-fabric", message)]
    return []


def _find_modes(row: GpuRow) -> List[GpuHealth]:
    found = []
    if row.text("mig.mode.current") == "Enabled":
        found.append(
            _error(
                "mig-enabled",
                "the GPU is in MIG mode, and llmgw launches on whole GPUs: `nvidia-smi -mig 0` when it is idle",
            )
        )
    if row.text("compute_mode") == "Prohibited":
        found.append(
            _error(
                "compute-prohibited",
                "compute mode is Prohibited: `nvidia-smi -c DEFAULT` allows CUDA",
            )
        )
    return found


def _error(code: str, message: str) -> GpuHealth:
    return GpuHealth(code, Severity.ERROR, message)
