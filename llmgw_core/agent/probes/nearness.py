"""Which GPUs an adapter is nearest to, by the PCI tree in sysfs or by `nvidia-smi topo -m`.

The words are nvidia-smi's: PIX one PCIe switch, PXB several, PHB one host bridge, NODE one NUMA node, SYS between
NUMA nodes.
"""

import re
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from llmgw_core.agent.probes.files import list_names, read_text, resolve
from llmgw_core.agent.probes.rdma_text import parse_leading_number

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")  # nearest first
_GPU_VENDORS = ("0x10de", "0x1002")
_GPU_CLASSES = ("0x0300", "0x0302", "0x1200", "0x0380")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SWITCH_DEPTH = 2  # below the port where a switch begins: its downstream port, then the device
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Place(NamedTuple):
    """Where a PCI function is."""

    bus_id: Optional[str]
    chain: Tuple[str, ...]  # host bridge first, itself last; empty: not known
    numa_node: Optional[int]


class Nearness(NamedTuple):
    """An adapter's nearest GPUs."""

    distance: Optional[str] = None
    gpus: Tuple[str, ...] = ()  # PCI addresses, where known


def find_place(device: Path) -> Place:
    """The place of a device's directory; a sub-function's is that of its PCI function."""
    parts = resolve(device).parts
    start = next((n for n, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), len(parts))
    chain = tuple(
        part for n, part in enumerate(parts[start:]) if n == 0 or _ADDRESS.fullmatch(part)
    )
    addresses = [part for part in parts if _ADDRESS.fullmatch(part)]
    numa = parse_leading_number(read_text(device / "numa_node"))
    return Place(
        addresses[-1] if addresses else None,
        chain,
        numa if numa is not None and numa >= 0 else None,
    )


def read_gpu_places(sysfs_root: str) -> List[Place]:
    """Every NVIDIA and AMD GPU on the bus, in order of address."""
    folder = Path(sysfs_root) / "bus/pci/devices"
    names = sorted(list_names(folder) or [])
    return [find_place(folder / name) for name in names if _is_gpu(folder / name)]


def _is_gpu(device: Path) -> bool:
    if read_text(device / "vendor") not in _GPU_VENDORS:
        return False
    return (read_text(device / "class") or "")[: len(_GPU_CLASSES[0])] in _GPU_CLASSES


def measure_distance(one: Place, other: Place) -> Optional[str]:
    """How far two functions are from each other; None where sysfs does not show the tree or NUMA nodes."""
    if one.chain and other.chain and one.chain[0] == other.chain[0]:
        shared = _count_shared(one.chain, other.chain)
        if shared <= 1:
            return "PHB"
        depth = max(len(one.chain), len(other.chain)) - shared
        return "PIX" if depth <= _SWITCH_DEPTH else "PXB"
    if one.numa_node is not None and other.numa_node is not None:
        return "NODE" if one.numa_node == other.numa_node else "SYS"
    return None


def _count_shared(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def find_nearest(place: Place, gpus: Sequence[Place]) -> Nearness:
    """The nearest GPUs by sysfs; an empty Nearness where it cannot tell."""
    if not place.chain or not all(gpu.chain for gpu in gpus):
        return Nearness()
    found: Dict[str, List[str]] = {}
    for gpu in gpus:
        distance = measure_distance(place, gpu)
        if distance is not None and gpu.bus_id is not None:
            found.setdefault(distance, []).append(gpu.bus_id)
    best = next((distance for distance in DISTANCES if distance in found), None)
    return Nearness() if best is None else Nearness(best, tuple(found[best]))


def parse_topology(
    text: str, gpu_bus_ids: Optional[Mapping[int, str]] = None
) -> Dict[str, Nearness]:
    """Each adapter's nearest GPUs by `nvidia-smi topo -m`.

    Columns are adapters' names, or NIC0 and so on with a legend: `  NIC0: mlx5_0`. Cells are parted by tabs.
    """
    lines = [_ANSI.sub("", line) for line in text.splitlines()]
    matches = [_LEGEND.match(line) for line in lines]
    legend = {match.group(1): match.group(2) for match in matches if match}
    header = next((line.split("\t") for line in lines if re.match(r"\s*\tGPU0\b", line)), [])
    found: Dict[str, Dict[str, List[int]]] = {}
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        row = re.fullmatch(r"GPU([0-9]{1,4})", cells[0])
        if row is None:
            continue
        for column, cell in zip(header[1:], cells[1:]):
            name = column.strip()
            if cell in DISTANCES and not re.fullmatch(r"GPU[0-9]+", name):
                hca = legend.get(name, name)
                found.setdefault(hca, {}).setdefault(cell, []).append(int(row.group(1)))
    return {hca: _nearest_of(cells, gpu_bus_ids or {}) for hca, cells in found.items()}


_LEGEND = re.compile(r"\s*(NIC[0-9]{1,4}): (\S+)\s*$")


def _nearest_of(cells: Mapping[str, Sequence[int]], bus_ids: Mapping[int, str]) -> Nearness:
    best = next(distance for distance in DISTANCES if distance in cells)
    return Nearness(best, tuple(bus_ids[index] for index in cells[best] if index in bus_ids))
