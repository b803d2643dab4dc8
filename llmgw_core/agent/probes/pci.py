"""What PCI lists, whatever any driver says of it: NVIDIA's GPUs, NVSwitches, and accelerators of other makers."""

from typing import Dict, List, NamedTuple, Optional, Tuple

from llmgw_core.agent.probes.files import exists, list_names, read_link_name, read_text

_VGA, _3D, _DISPLAY, _ACCELERATOR, _BRIDGE = "0x0300", "0x0302", "0x0380", "0x1200", "0x0680"
_NVIDIA, _AMD = "0x10de", "0x1002"
# Display and 3D controllers; a card's audio function has another class.
_NVIDIA_CLASSES = (_VGA, _3D)
# A display chip of another maker is a console's, or the CPU's own, unless it says that it computes.
_COMPUTE_CLASSES = (_3D, _DISPLAY, _ACCELERATOR)
# Makers whose accelerators are seen here and not read. Source: pci.ids.
_OTHER_MAKERS: Dict[str, str] = {
    "0x8086": "Intel",
    "0x1da3": "Habana",
    "0x19e5": "Huawei",
    "0x1ee0": "Hygon",
    "0x1d94": "Hygon",
    "0x1e3e": "Iluvatar",
    "0x9999": "MetaX",
    "0x1ed5": "Moore Threads",
    "0xcabc": "Cambricon",
    "0x1e52": "Tenstorrent",
}
_WIDTH_OF_DEAD_LINK = "63"


class PciGpu(NamedTuple):
    """One function on the bus."""

    bus_id: str  # "0000:18:00.0"
    has_driver: bool  # bound to `nvidia`, not to vfio or nouveau
    device_id: Optional[str] = None  # "2335"
    is_link_dead: bool = False  # the bus reads all ones: it is not there any more


class PciCensus(NamedTuple):
    """What computes on this machine's PCI bus. In a container this is the host's."""

    nvidia: Tuple[PciGpu, ...] = ()
    amd: Tuple[str, ...] = ()  # bus ids
    others: Tuple[Tuple[str, str], ...] = ()  # (maker, bus id)
    has_nvswitch: bool = False


def read_pci(sysfs_root: str) -> Optional[PciCensus]:
    """The accelerators in order of address; None where PCI cannot be listed.

    Source: Documentation/ABI/testing/sysfs-bus-pci.
    """
    folder = f"{sysfs_root}/bus/pci/devices"
    names = list_names(folder)
    if names is None:
        return None
    nvidia: List[PciGpu] = []
    amd: List[str] = []
    others: List[Tuple[str, str]] = []
    has_nvswitch = False
    for name in sorted(names):
        kind = (read_text(f"{folder}/{name}/class") or "")[: len(_VGA)]
        if kind not in (_VGA, _3D, _DISPLAY, _ACCELERATOR, _BRIDGE):
            continue
        vendor = read_text(f"{folder}/{name}/vendor")
        if vendor == _NVIDIA and kind == _BRIDGE:
            has_nvswitch = True
        elif vendor == _NVIDIA and kind in _NVIDIA_CLASSES and not _is_virtual(folder, name):
            nvidia.append(_read_gpu(folder, name))
        elif vendor == _AMD and kind in (_VGA, *_COMPUTE_CLASSES):
            amd.append(name.lower())
        elif vendor in _OTHER_MAKERS and kind in _COMPUTE_CLASSES and not _is_on_chip(name):
            others.append((_OTHER_MAKERS[vendor], name.lower()))
    return PciCensus(tuple(nvidia), tuple(amd), tuple(others), has_nvswitch)


def _read_gpu(folder: str, name: str) -> PciGpu:
    device = read_text(f"{folder}/{name}/device") or ""
    return PciGpu(
        name.lower(),
        read_link_name(f"{folder}/{name}/driver") == "nvidia",
        device[2:].lower() if device.startswith("0x") else None,
        read_text(f"{folder}/{name}/current_link_width") == _WIDTH_OF_DEAD_LINK,
    )


def _is_virtual(folder: str, name: str) -> bool:
    """An SR-IOV function handed to virtual machines: no GPU of this node."""
    return exists(f"{folder}/{name}/physfn")


def _is_on_chip(bus_id: str) -> bool:
    """Bus 0 of domain 0 holds what is part of the CPU."""
    return bus_id.startswith("0000:00:")
