"""Whether an operator would launch on a GPU: what the driver and the kernel say against it. Pure."""

from typing import List, Optional, Sequence

from llmgw_core.agent.probes.gpu_classes import has_unified_memory, is_virtual_gpu
from llmgw_core.agent.probes.gpu_holders import is_used_exact
from llmgw_core.agent.probes.nvidia_smi import GpuRow
from llmgw_core.agent.probes.smi_fields import THROTTLE_FIELD
from llmgw_core.agent.probes.throttling import explain_throttling, parse_throttle_mask
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import GpuHealth

_MEMORY_FIELDS = ("memory.total", "memory.used", "memory.free")
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.INFO)
# Of the spare pages and rows a card has; beyond this, operators have it replaced. Source: Azure's node health checks.
_MOST_RETIRED_PAGES = 61
_MOST_REMAPPED_ROWS = 512
_NO_ACTION = ("None", "N/A")


def needs_reset(row: GpuRow) -> bool:
    """Whether the driver says so, in a cell or as recovery action. Its other readings are then not to be believed."""
    action = row.text("gpu_recovery_action")
    return any("requires reset" in token for token in row.failures.values()) or (
        action is not None and action not in _NO_ACTION
    )


def is_lost(row: GpuRow) -> bool:
    """Whether the driver says that the GPU is off the bus."""
    return any("is lost" in token for token in row.failures.values())


def find_health(row: GpuRow, *, has_slices: bool = False) -> List[GpuHealth]:
    """Everything the reading itself says of the GPU; memory held by others comes apart.

    Args:
        has_slices: MIG instances of it are known.
    """
    found: List[GpuHealth] = []
    if is_lost(row):
        found.append(explain_lost(row.text("pci.bus_id")))
    if needs_reset(row):
        found.append(_error("requires-reset", _reset_message(row)))
    found += _find_unreadable(row)
    found += _find_memory_repair(row)
    found += _find_fabric(row)
    found += _find_throttling(row)
    found += _find_modes(row, has_slices=has_slices)
    found += _find_notes(row)
    return found


def sort_health(flags: Sequence[GpuHealth]) -> List[GpuHealth]:
    """Errors first, then warnings, then what is only worth a word."""
    return sorted(flags, key=lambda flag: _SEVERITIES.index(flag.severity))


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
    denied = [name for name, token in tokens.items() if "permission" in token.lower()]
    if any(name in denied for name in _MEMORY_FIELDS):
        found.append(
            _error(
                "memory-unknown",
                "this user may not read the GPU's memory: inside a container with a MIG slice only that slice is to be "
                "had, by its own uuid (`nvidia-smi -L`)",
            )
        )
        tokens = {name: token for name, token in tokens.items() if name not in denied}
        is_blind = True
    if tokens:
        listed = ", ".join(f"{name} {token}" for name, token in sorted(tokens.items()))
        is_blind = is_blind and not denied
        severity = Severity.ERROR if is_blind else Severity.WARNING
        found.append(GpuHealth("unreadable", severity, f"the driver fails to read {listed}"))
    if not (row.is_cut or is_blind or denied) and _is_memory_hidden(row):
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
    past = row.whole("ecc.errors.uncorrected.aggregate.total")
    if errors:
        found.append(
            _error(
                "ecc-uncorrected",
                f"{errors} uncorrected memory error(s) since the driver was loaded: reset the GPU when it is idle; "
                "if they come back, have it replaced",
            )
        )
    elif past:
        message = (
            f"{past} uncorrected memory error(s) in its life, none since the driver was loaded"
        )
        found.append(_info("ecc-uncorrected-past", message))
    if row.text("remapped_rows.failure") == "Yes":
        found.append(
            _error("row-remap-failed", "a bad memory row could not be remapped: replace the GPU")
        )
    if row.text("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded") == "Yes":
        message = "too many uncorrected errors in its on-chip memory: have the GPU replaced"
        found.append(_error("ecc-sram-threshold", message))
    if row.text("remapped_rows.pending") == "Yes":
        message = "a bad memory row waits to be remapped: reset the GPU when it is idle"
        found.append(_warning("row-remap-pending", message))
    worn = _describe_wear(row)
    if worn is not None:
        found.append(_warning("memory-worn", f"{worn} have been replaced: have the GPU replaced"))
    if row.text("retired_pages.pending") == "Yes":
        message = "a bad memory page waits to be retired: reset the GPU when it is idle"
        found.append(_warning("retired-pages-pending", message))
    return found


def _describe_wear(row: GpuRow) -> Optional[str]:
    """How much of the memory's reserve is used up; None when enough is left, or nothing is known."""
    pages = [row.whole("retired_pages.sbe"), row.whole("retired_pages.dbe")]
    retired = sum(count for count in pages if count is not None)
    remapped = row.whole("remapped_rows.uncorrectable") or 0
    if retired > _MOST_RETIRED_PAGES:
        return f"{retired} bad memory pages"
    return f"{remapped} bad memory rows" if remapped > _MOST_REMAPPED_ROWS else None


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


def _find_throttling(row: GpuRow) -> List[GpuHealth]:
    message = explain_throttling(parse_throttle_mask(row.text(THROTTLE_FIELD)))
    margin = row.signed("temperature.gpu.tlimit")
    if message is None and margin is not None and margin <= 0:
        message = "it is at its temperature limit: look at fans, air flow and room temperature"
    return [] if message is None else [_warning("throttled", message)]


def _find_modes(row: GpuRow, *, has_slices: bool) -> List[GpuHealth]:
    found = []
    if row.text("mig.mode.current") == "Enabled":
        what = (
            "the GPU is in MIG mode: launches take its slices, by their class (--gpu-class)"
            if has_slices
            else "the GPU is in MIG mode and no instance of it is known, so CUDA sees no device: "
            "`nvidia-smi mig -cgi` makes some, `nvidia-smi -mig 0` ends the mode"
        )
        found.append(_error("mig-enabled", what))
    mode = row.text("compute_mode")
    if mode == "Prohibited":
        message = "compute mode is Prohibited: `nvidia-smi -c DEFAULT` allows CUDA"
        found.append(_error("compute-prohibited", message))
    if mode in ("Exclusive_Process", "Exclusive_Thread"):
        message = (
            f"compute mode is {mode}: an engine that opens the GPU from two processes fails; "
            "`nvidia-smi -c DEFAULT` lets it"
        )
        found.append(_warning("compute-exclusive", message))
    return found


def _find_notes(row: GpuRow) -> List[GpuHealth]:
    """What is no flaw, and explains a reading or a launch that goes otherwise."""
    found = []
    name = row.text("name") or ""
    if has_unified_memory(name):
        message = "it has no memory of its own: what is free is the machine's free memory"
        found.append(_info("unified-memory", message))
    if is_virtual_gpu(name):
        message = "it is a vGPU, a part of a card that other machines use too"
        found.append(_info("vgpu", message))
    if not is_used_exact(row) and row.text("addressing_mode") == "ATS":
        message = "memory in use may be the kernel's page cache: it is part of the machine's memory"
        found.append(_info("memory-used-inexact", message))
    if row.text("persistence_mode") == "Disabled":
        message = (
            "persistence mode is off: each first use waits for the GPU to start; `nvidia-smi -pm 1`"
        )
        found.append(_info("persistence-off", message))
    if row.text("ecc.mode.current") == "Disabled":
        found.append(_info("ecc-off", "ECC is off: errors in its memory stay unseen"))
    if _is_absent(row, "utilization.gpu"):
        message = "the driver gives no utilization, as in MIG mode, under WSL and on Jetson"
        found.append(_info("utilization-unknown", message))
    if row.text("mig.mode.current") == "Enabled" and _is_absent(row, "remapped_rows.failure"):
        message = "whether memory rows wait to be remapped cannot be read in MIG mode"
        found.append(_info("row-remap-unknown", message))
    return found


def _is_absent(row: GpuRow, name: str) -> bool:
    """It was asked for, did not fail, and the GPU has no such reading."""
    return name in row.cells and row.text(name) is None and name not in row.failures


def _error(code: str, message: str) -> GpuHealth:
    return GpuHealth(code, Severity.ERROR, message)


def _warning(code: str, message: str) -> GpuHealth:
    return GpuHealth(code, Severity.WARNING, message)


def _info(code: str, message: str) -> GpuHealth:
    return GpuHealth(code, Severity.INFO, message)
