"""What decides over RDMA on this node beside the ports: whole GID tables, a second look at states, memory of GPUs, the IOMMU."""

from collections import Counter
from pathlib import Path
from typing import Dict, Optional, Tuple

from llmgw_core.agent.probes.files import exists, list_names, read_text
from llmgw_core.agent.probes.gids import read_gids
from llmgw_core.agent.probes.rdma_text import parse_state
from llmgw_core.agent.probes.uverbs import try_uverbs
from llmgw_core.domain.network import PortGid

_MOST_PORTS = 64
_MOST_GROUPS = 4096
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")


def read_port_states(sysfs_root: str) -> Dict[str, str]:
    """The state of every port: {"mlx5_0:1": "ACTIVE"}."""
    found = {}
    for label, folder in _list_ports(sysfs_root).items():
        state = parse_state(read_text(folder / "state"))
        if state is not None:
            found[label] = state
    return found


def read_port_gids(sysfs_root: str) -> Dict[str, Tuple[PortGid, ...]]:
    """The filled slots of the GID table of each active port on Ethernet."""
    return {
        label: tuple(
            PortGid(gid.index, gid.text, gid.kind, gid.netdev)
            for gid in read_gids(folder, only_first=False)
        )
        for label, folder in _list_ports(sysfs_root).items()
        if read_text(folder / "link_layer") == "Ethernet"
        and parse_state(read_text(folder / "state")) == "ACTIVE"
    }


def read_peer_memory(sysfs_root: str) -> Tuple[str, ...]:
    """What lets adapters reach GPU memory: ("nvidia_peermem 570.86.15", "memory_peers/nv_mem"). DMA-BUF shows nowhere."""
    root = Path(sysfs_root)
    modules = [
        " ".join(filter(None, (name, read_text(root / "module" / name / "version"))))
        for name in _PEER_MODULES
        if exists(root / "module" / name)
    ]
    peers = sorted(list_names(root / "kernel/mm/memory_peers") or ())
    return (*modules, *(f"memory_peers/{name}" for name in peers))


def count_iommu_groups(sysfs_root: str) -> Optional[Dict[str, int]]:
    """How many groups translate and how many do not: {"DMA-FQ": 12, "identity": 80}. Empty: no IOMMU is on.

    None: the kernel does not tell.
    """
    folder = Path(sysfs_root) / "kernel/iommu_groups"
    names = list_names(folder)
    if names is None:
        return None
    kinds = [read_text(folder / name / "type") for name in names[:_MOST_GROUPS]]
    return dict(sorted(Counter(kind or "unknown" for kind in kinds).items()))


def find_iommu_arguments(cmdline: str) -> Tuple[str, ...]:
    """The kernel's arguments about it: ("intel_iommu=on", "iommu=pt")."""
    heads = ("iommu", "intel_iommu", "amd_iommu", "arm-smmu", "pci=")
    return tuple(word[:200] for word in cmdline.split() if word.startswith(heads))


def try_umad(dev_root: Optional[str]) -> Optional[str]:
    """Whether this user may send management datagrams, as ibping does: "ok" or an errno's name; None: there is no device."""
    names = sorted(list_names(f"{dev_root}/infiniband") or ()) if dev_root else []
    first = next((name for name in names if name.startswith("umad")), None)
    return try_uverbs(str(dev_root), first) if first else None


def _list_ports(sysfs_root: str) -> Dict[str, Path]:
    """The folder of each port by "mlx5_0:1"."""
    root = Path(sysfs_root) / "class/infiniband"
    found = [
        (f"{hca}:{port}", root / hca / "ports" / port)
        for hca in sorted(list_names(root) or ())
        for port in sorted(list_names(root / hca / "ports") or ())
    ]
    return dict(found[:_MOST_PORTS])
