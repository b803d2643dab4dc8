"""RDMA ports as /sys/class/infiniband shows them. Every file is optional; one bad file costs one field.

No such class means no adapter, which is no error. Counters are not read here: on some management functions each read
writes to the kernel's log. `port_counters` reads those of usable ports while somebody watches.
Source: drivers/infiniband/core/sysfs.c, Documentation/ABI/stable/sysfs-class-infiniband.
"""

import errno
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.probes import nearness
from llmgw_core.agent.probes.files import exists, list_names, read_link_name, read_text, resolve
from llmgw_core.agent.probes.gids import choose_gid, read_gids
from llmgw_core.agent.probes.nearness import Nearness, Place
from llmgw_core.agent.probes.rdma_text import (
    LinkRate,
    first_line,
    parse_guid,
    parse_leading_number,
    parse_lid,
    parse_lmc,
    parse_pkey,
    parse_rate,
    parse_state,
    parse_word,
)
from llmgw_core.agent.probes.routes import (
    Route,
    find_default_netdevs,
    find_ipv4_prefix,
    parse_routes,
)
from llmgw_core.agent.probes.uverbs import read_uverbs_names, try_uverbs
from llmgw_core.domain.fabric import ACTIVE, EMPTY_PKEY, fabric_key, ipv4_of, roce_mtu_bytes
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.port_choice import judge_ports
from llmgw_core.domain.units import natural_key

MAX_PKEYS = 128
_RNIC = 4  # node_type of iWARP. Source: include/rdma/ib_verbs.h, RDMA_NODE_RNIC
_USNIC = (5, 6)
_UNSPECIFIED = 7  # a transport of its own. Source: include/rdma/ib_verbs.h, RDMA_NODE_UNSPECIFIED
_AMAZON = "0x1d0f"
_IPOIB = "32"  # netdev type. Source: include/uapi/linux/if_arp.h, ARPHRD_INFINIBAND
_NEEDED = ("state", "link_layer")  # whose absence is worth a word; others depend on the driver


@dataclass(frozen=True)
class _Machine:
    """What the ports of one node have in common."""

    sysfs: Path
    dev_root: Optional[str]
    routes: Sequence[Route]
    way_out: FrozenSet[str]  # netdevs of default routes
    gpus: Sequence[Place]
    uverbs: Mapping[str, str]


@dataclass(frozen=True)
class _Hca:
    """What the ports of one adapter have in common."""

    folder: Path
    node_type: Optional[int]
    driver: Optional[str]
    vendor: Optional[str]
    is_soft: bool
    identity: Port  # its fields of the adapter filled in


def read_ports(
    sysfs_root: str,
    proc_root: Optional[str] = "/proc",
    dev_root: Optional[str] = None,
    topology: Optional[Mapping[str, Nearness]] = None,
) -> Tuple[Port, ...]:
    """Every port of every adapter, in natural order, judged. Empty without adapters. Never fails.

    Args:
        proc_root: where this machine's routes are; None: not told.
        dev_root: where to try whether adapters can be opened, as /dev; None: they are not tried.
        topology: nearest GPUs by adapter, taken where sysfs does not show the PCI tree.
    """
    folder = Path(sysfs_root) / "class/infiniband"
    names = list_names(folder)
    if not names:
        return ()
    routes = read_text(f"{proc_root}/net/route") or "" if proc_root else ""
    machine = _Machine(
        sysfs=Path(sysfs_root),
        dev_root=dev_root,
        routes=parse_routes(routes),
        way_out=find_default_netdevs(routes),
        gpus=nearness.read_gpu_places(sysfs_root),
        uverbs=read_uverbs_names(sysfs_root),
    )
    ports = [
        port
        for name in sorted(names, key=natural_key)
        for port in _read_hca_ports(_read_hca(folder / name, machine), machine)
    ]
    if topology and not any(port.gpu_distance for port in ports):
        ports = _place(ports, topology)
    return tuple(
        replace(port, fabric=_find_fabric(port, machine.routes)) for port in judge_ports(ports)
    )


def _place(ports: Sequence[Port], topology: Mapping[str, Nearness]) -> List[Port]:
    found = [(port, topology.get(port.hca, Nearness())) for port in ports]
    return [replace(port, gpu_distance=near[0], nearest_gpus=near[1]) for port, near in found]


def _read_hca(folder: Path, machine: _Machine) -> _Hca:
    device = folder / "device"
    place = nearness.find_place(device if exists(device) or device.is_symlink() else folder)
    physical = device / "physfn"
    is_virtual = physical.is_symlink() or exists(physical)
    near = nearness.find_nearest(place, machine.gpus)
    uverbs = machine.uverbs.get(folder.name)
    identity = Port(
        hca=folder.name,
        port=0,
        numa_node=place.numa_node,
        pci_bus_id=place.bus_id,
        vf=is_virtual,
        pf_pci_bus_id=nearness.find_place(physical).bus_id if is_virtual else None,
        node_guid=parse_guid(read_text(folder / "node_guid")),
        system_image_guid=parse_guid(read_text(folder / "sys_image_guid")),
        firmware=parse_word(read_text(folder / "fw_ver")),
        model=parse_word(read_text(folder / "hca_type")),
        board=parse_word(read_text(folder / "board_id")),
        uverbs=uverbs,
        uverbs_access=_try_access(machine, uverbs),
        gpu_distance=near.distance,
        nearest_gpus=near.gpus,
    )
    return _Hca(
        folder=folder,
        node_type=parse_leading_number(read_text(folder / "node_type")),
        driver=read_link_name(device / "driver"),
        vendor=read_text(device / "vendor"),
        is_soft=_is_soft(folder, identity),
        identity=identity,
    )


def _is_soft(folder: Path, identity: Port) -> bool:
    """Whether no hardware is behind it: rxe and siw name a parent netdev, live under virtual, or have no device."""
    if exists(folder / "parent") or "/devices/virtual/" in f"{resolve(folder)}/":
        return True
    device = folder / "device"
    return (
        not (device.is_symlink() or exists(device))
        and identity.model is None
        and bool(list_names(folder / "ports"))
    )


def _try_access(machine: _Machine, uverbs: Optional[str]) -> Optional[str]:
    """An adapter without a uverbs of its own cannot be opened at all, where others have one."""
    if machine.dev_root is None or not machine.uverbs:
        return None
    return "ENOENT" if uverbs is None else try_uverbs(machine.dev_root, uverbs)


def _read_hca_ports(hca: _Hca, machine: _Machine) -> List[Port]:
    numbers = [name for name in list_names(hca.folder / "ports") or [] if name.isdecimal()]
    return [_read_port(hca, int(number), machine) for number in sorted(numbers, key=int)]


def _read_port(hca: _Hca, number: int, machine: _Machine) -> Port:
    folder = hca.folder / "ports" / str(number)
    texts, unread = _read_files(folder)
    link_layer = first_line(texts.get("link_layer")) or None
    is_ethernet = link_layer == "Ethernet"
    gid = choose_gid(
        read_gids(folder, only_first=not is_ethernet), is_infiniband=link_layer == "InfiniBand"
    )
    # In another network namespace the GIDs have no netdev, and the adapter's own is not this one's.
    netdev = gid.netdev if gid is not None and is_ethernet else _read_netdev(hca.folder, number)
    rate = parse_rate(texts.get("rate"))
    port = replace(
        hca.identity,
        port=number,
        link_layer=link_layer,
        kind=_classify(hca, link_layer),
        state=parse_state(texts.get("state")),
        physical_state=parse_state(texts.get("phys_state")),
        link_width=rate.width,
        link_speed=rate.speed,
        gid=None if gid is None else gid.text,
        gid_index=None if gid is None else gid.index,
        gid_type=None if gid is None else gid.kind,
        netdev=netdev,
        default_route=netdev in machine.way_out,
        pkeys=_read_pkeys(folder),
        unread=unread,
    )
    port = replace(port, rate_gbps=_believe_rate(port, rate))
    return _add_mtu(port, machine) if is_ethernet else _add_lids(port, texts)


def _read_files(folder: Path) -> Tuple[Dict[str, Optional[str]], Tuple[str, ...]]:
    """The port's own files by name, and what refused with which errno."""
    texts: Dict[str, Optional[str]] = {}
    refused = []
    for name in ("link_layer", "state", "phys_state", "rate", "lid", "sm_lid", "lid_mask_count"):
        texts[name] = read_text(folder / name)
        if texts[name] is None:
            code = _find_errno(folder / name)
            if code is not None and (code != "ENOENT" or name in _NEEDED):
                refused.append(f"{name}: {code}")
    return texts, tuple(refused)


def _find_errno(path: Path) -> Optional[str]:
    """Why a file cannot be read, by the errno's name; None when it can, by now."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "EIO")
    return None


def _add_lids(port: Port, texts: Mapping[str, Optional[str]]) -> Port:
    """Ethernet has none, and irdma says 1 all the same."""
    if port.link_layer != "InfiniBand":
        return port
    return replace(
        port,
        lid=parse_lid(texts.get("lid")),
        sm_lid=parse_lid(texts.get("sm_lid")),
        lmc=parse_lmc(texts.get("lid_mask_count")),
    )


def _add_mtu(port: Port, machine: _Machine) -> Port:
    if port.netdev is None:
        return port
    text = read_text(machine.sysfs / "class/net" / port.netdev / "mtu")
    return replace(port, mtu_bytes=roce_mtu_bytes(parse_leading_number(text)))


def _read_pkeys(folder: Path) -> Tuple[str, ...]:
    """The table up to its last filled slot: the index of a key is what an engine is told."""
    names = sorted(
        (name for name in list_names(folder / "pkeys") or [] if name.isdecimal()), key=int
    )
    found = [parse_pkey(read_text(folder / "pkeys" / name)) for name in names[:MAX_PKEYS]]
    while found and found[-1] is None:
        found.pop()
    return tuple(EMPTY_PKEY if pkey is None else pkey for pkey in found)


def _find_fabric(port: Port, routes: Sequence[Route]) -> Optional[str]:
    return fabric_key(port, find_ipv4_prefix(ipv4_of(port.gid), port.netdev, routes))


def _classify(hca: _Hca, link_layer: Optional[str]) -> PortKind:
    return classify_port(
        hca.folder.name,
        link_layer,
        hca.node_type,
        hca.driver,
        hca.vendor,
        is_soft=hca.is_soft,
        board=hca.identity.board,
    )


def _believe_rate(port: Port, rate: LinkRate) -> Optional[float]:
    """None where the kernel prints SDR for a speed it does not know: no InfiniBand link is as slow any more."""
    is_active = port.kind is PortKind.INFINIBAND and port.state == ACTIVE
    return None if is_active and rate.speed == "SDR" else rate.gbps


def _read_netdev(hca: Path, number: int) -> Optional[str]:
    """The port's netdev by its device: of several, the IPoIB one of that port, else the first."""
    folder = hca / "device/net"
    names = sorted(list_names(folder) or [], key=natural_key)
    for name in names:
        is_ipoib = read_text(folder / name / "type") == _IPOIB
        if is_ipoib and read_text(folder / name / "dev_port") == str(number - 1):
            return name
    return names[0] if names else None


def classify_port(
    hca: str,
    link_layer: Optional[str],
    node_type: Optional[int],
    driver: Optional[str],
    vendor: Optional[str],
    *,
    is_soft: bool,
    board: Optional[str] = None,
) -> PortKind:
    """What the port speaks. The link layer alone says InfiniBand for Omni-Path, and Ethernet for iWARP and soft RoCE."""
    if node_type == _RNIC:
        return PortKind.IWARP
    if node_type in _USNIC:
        return PortKind.UNKNOWN
    is_own = node_type == _UNSPECIFIED and link_layer != "InfiniBand"
    if driver == "efa" or is_own or (vendor == _AMAZON and link_layer != "InfiniBand"):
        return PortKind.EFA
    if driver == "hfi1" or hca.startswith(("hfi1_", "opa")) or "Omni-Path" in (board or ""):
        return PortKind.OMNI_PATH
    if is_soft:
        return PortKind.SOFT_ROCE if link_layer == "Ethernet" else PortKind.UNKNOWN
    by_link_layer = {"InfiniBand": PortKind.INFINIBAND, "Ethernet": PortKind.ROCE}
    return by_link_layer.get(link_layer or "", PortKind.UNKNOWN)
