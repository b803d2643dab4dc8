"""The NVIDIA GPUs that PCI lists, whatever their driver says of them."""

from pathlib import Path
from typing import List, NamedTuple, Optional

from llmgw_core.agent.probes.files import list_names, read_link_name, read_text

_NVIDIA = "0x10de"
# Display and 3D controllers; a card's audio function has another class.
_GPU_CLASSES = ("0x0300", "0x0302")


class PciGpu(NamedTuple):
    """One function on the bus."""

    bus_id: str  # "0000:18:00.0"
    has_driver: bool  # bound to `nvidia`, not to vfio or nouveau


def read_pci_gpus(sysfs_root: str) -> Optional[List[PciGpu]]:
    """The node's NVIDIA GPUs in order of address; None where PCI cannot be listed.

    In a container these are the host's. Source: Documentation/ABI/testing/sysfs-bus-pci.
    """
    folder = Path(sysfs_root) / "bus/pci/devices"
    names = list_names(folder)
    if names is None:
        return None
    return [
        PciGpu(name.lower(), read_link_name(folder / name / "driver") == "nvidia")
        for name in sorted(names)
        if _is_gpu(folder / name)
    ]


def _is_gpu(device: Path) -> bool:
    vendor, kind = read_text(device / "vendor"), read_text(device / "class")
    return vendor == _NVIDIA and (kind or "")[: len(_GPU_CLASSES[0])] in _GPU_CLASSES
