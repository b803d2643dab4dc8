"""What nvidia-smi shows against what PCI has, and the fault of the node that follows. Pure but for one look at /proc."""

from typing import List, Optional, Sequence, Tuple

from llmgw_core.agent.probes import smi_faults
from llmgw_core.agent.probes.commands import CommandResult
from llmgw_core.agent.probes.nvidia_smi import GpuRow, normalize_bus_id
from llmgw_core.agent.probes.pci import PciCensus, PciGpu
from llmgw_core.agent.probes.processes import is_host_pid_namespace
from llmgw_core.domain.inventory import NodeFault

_CORRUPT_INFOROM_CODE = 14


def find_missing_gpus(
    rows: Sequence[GpuRow], lost: Sequence[str], pci: Sequence[PciGpu]
) -> List[str]:
    """Bus ids of GPUs that are bound to the driver and in no row. Empty where a row has no address to compare."""
    shown = {normalize_bus_id(row.text("pci.bus_id")) for row in rows}
    if None in shown:
        return []
    return [
        gpu.bus_id
        for gpu in pci
        if gpu.has_driver and gpu.bus_id not in shown and gpu.bus_id not in lost
    ]


def find_fault(
    gpus: CommandResult,
    rows: Sequence[GpuRow],
    lost: Sequence[Tuple[Optional[int], str]],
    pci: Optional[PciCensus],
) -> Optional[NodeFault]:
    """What has to be said of the node as a whole; GPUs that are lost say so themselves."""
    text = gpus.stdout + gpus.stderr
    addresses = None if pci is None else [gpu.bus_id for gpu in pci.nvidia]
    if any(row.is_cut for row in rows):
        return smi_faults.explain_cut_output()
    if not rows or (gpus.code not in (0, _CORRUPT_INFOROM_CODE) and not (lost and addresses)):
        return smi_faults.explain_failure(text, gpus.code, addresses)
    # A container sees all of the host's PCI, and its own GPUs only.
    if pci is not None and is_host_pid_namespace():
        missing = find_missing_gpus(rows, [bus_id for _, bus_id in lost], pci.nvidia)
        return smi_faults.explain_missing_gpus(missing) if missing else None
    return None
