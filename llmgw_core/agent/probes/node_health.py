"""What is worth a word about a node as a whole, beside its fault. Pure."""

from typing import Dict, Iterable, List, Optional, Sequence, Set

from llmgw_core.agent.probes.nvidia_smi import normalize_bus_id
from llmgw_core.agent.probes.smi_reader import GpuReading
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu, GpuHealth

_SLOW_S = 5.0
_SHOWN = 8


def find_node_health(reading: GpuReading, gpus: Sequence[Gpu]) -> List[GpuHealth]:
    """Warnings first. Empty for a node that is as it should be."""
    found = _find_unread(reading, gpus) + _find_log(reading) + _find_totals(gpus)
    if reading.took_s > _SLOW_S and not reading.is_silent:
        message = f"nvidia-smi took {reading.took_s:.0f} s: `nvidia-smi -pm 1` (persistence mode) makes it faster"
        found.append(GpuHealth("smi-slow", Severity.WARNING, message))
    if not reading.has_details:
        message = "nvidia-smi gives the GPUs' readings and no more: whether they ask for a reset is not known"
        found.append(GpuHealth("details-unread", Severity.WARNING, message))
    if reading.is_wsl:
        message = (
            "the driver is Windows': it lists no processes, so memory in use has no owner here"
        )
        found.append(GpuHealth("wsl", Severity.INFO, message))
    return sorted(found, key=lambda flag: flag.severity is Severity.INFO)


def explain_no_stream(why: str) -> GpuHealth:
    """GPUs are watched by single queries, because nvidia-smi does not stream."""
    message = f"`nvidia-smi -lms` gave no live readings ({why}): GPUs are asked one query at a time, and the stream is tried again"
    return GpuHealth("smi-stream", Severity.INFO, message)


def _find_unread(reading: GpuReading, gpus: Sequence[Gpu]) -> List[GpuHealth]:
    """What PCI has and no tool here reads."""
    pci = reading.pci
    if pci is None:
        return []
    found = []
    if not reading.has_program and pci.nvidia:
        where = _list(gpu.bus_id for gpu in pci.nvidia)
        message = f"PCI has {len(pci.nvidia)} NVIDIA GPU(s) and there is no nvidia-smi to read them: {where}; install the driver"
        found.append(GpuHealth("gpu-unread", Severity.WARNING, message))
    if pci.amd and not any(gpu.vendor == "amd" for gpu in gpus):
        message = f"PCI has {len(pci.amd)} AMD GPU(s) that neither a tool nor amdgpu tells more of: {_list(pci.amd)}"
        found.append(GpuHealth("gpu-unread", Severity.INFO, message))
    by_maker: Dict[str, List[str]] = {}
    for maker, bus_id in pci.others:
        by_maker.setdefault(maker, []).append(bus_id)
    for maker, bus_ids in sorted(by_maker.items()):
        message = f"PCI has {len(bus_ids)} accelerator(s) of {maker}, which llmgw does not read: {_list(bus_ids)}"
        found.append(GpuHealth("gpu-unread", Severity.INFO, message))
    dead = [gpu.bus_id for gpu in pci.nvidia if gpu.is_link_dead]
    if dead:
        message = f"the PCI link of {_list(dead)} is dead: the GPU is off the bus; reboot the node"
        found.append(GpuHealth("gpu-off-bus", Severity.WARNING, message))
    return found


def _find_log(reading: GpuReading) -> List[GpuHealth]:
    log = reading.log
    if log is None or not (reading.rows or reading.lost):
        return []
    if not log.is_readable:
        message = (
            "this user may not read the kernel log, so whether GPUs had Xid errors is not known: "
            "the groups adm or systemd-journal may"
        )
        return [GpuHealth("xid-unknown", Severity.INFO, message)]
    found = []
    shown = _shown_buses(reading)
    failed = [bus for bus in log.events.init_failed if bus not in shown]
    off = [bus for bus in log.events.off_bus if bus not in shown]
    if failed:
        message = f"the driver could not start the GPU at {_list(failed)} (RmInitAdapter failed): reboot, then reseat it"
        found.append(GpuHealth("gpu-init-failed", Severity.WARNING, message))
    if off:
        message = f"the GPU at {_list(off)} has fallen off the bus: reboot the node"
        found.append(GpuHealth("gpu-off-bus", Severity.WARNING, message))
    return found


def _shown_buses(reading: GpuReading) -> Set[Optional[str]]:
    """`0000:18:00` of each GPU that answers."""
    addresses = (normalize_bus_id(row.text("pci.bus_id")) for row in reading.rows)
    return {address.rpartition(".")[0] for address in addresses if address}


def _find_totals(gpus: Sequence[Gpu]) -> List[GpuHealth]:
    """One product with two totals: part of the cards has ECC off, or another driver's way to count."""
    totals: Dict[str, Set[int]] = {}
    for gpu in gpus:
        if gpu.name is not None and gpu.memory_total_mib is not None:
            totals.setdefault(gpu.name, set()).add(gpu.memory_total_mib)
    return [
        GpuHealth(
            "memory-differs",
            Severity.WARNING,
            f"GPUs named {name} have {' and '.join(map(str, sorted(sizes)))} MiB: "
            "look at ECC mode; they count as different classes if the difference is large",
        )
        for name, sizes in sorted(totals.items())
        if len(sizes) > 1
    ]


def _list(bus_ids: Iterable[str]) -> str:
    listed = list(bus_ids)
    more = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
