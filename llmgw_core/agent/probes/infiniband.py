"""RDMA ports as /sys/class/infiniband shows them. Every file is optional; one bad file costs one field.

No such class means no adapter, which is no error. Counters are not read: on some management functions each read
writes to the kernel's log.
Source: drivers/infiniband/core/sysfs.c, Documentation/ABI/stable/sysfs-class-infiniband.
"""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from llmgw_core.agent.probes.files import (
    exists,
    list_names,
    read_link_name,
    read_text,
    resolve,
)
from llmgw_core.domain.fabric import ACTIVE, fabric_key, is_routable, parse_gid
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.units import natural_key

MAX_GIDS = 256  # the largest table seen
ROCE_V2 = "RoCE v2"
_RNIC = 4  # node_type of iWARP. Source: include/rdma/ib_verbs.h, RDMA_NODE_RNIC
_USNIC = (5, 6)
_AMAZON = "0x1d0f"
_IPOIB = "32"  # netdev type. Source: include/uapi/linux/if_arp.h, ARPHRD_INFINIBAND
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MAX_PREFIX = 32


@dataclass(frozen=True)
class Gid:
    """One filled slot of a port's GID table."""

    index: int
    text: str
    kind: Optional[str]  # "IB/RoCE v1", "RoCE v2"
    netdev: Optional[str]  # None on InfiniBand, and in another network namespace


@dataclass(frozen=True)
class Route:
    """One directly connected IPv4 network."""

    netdev: str
    network: int
    mask: int


@dataclass(frozen=True)
class _Hca:
    """What the ports of one adapter have in common."""

    folder: Path
    node_type: Optional[int]
    driver: Optional[str]
    vendor: Optional[str]
    is_soft: bool
    numa_node: Optional[int]
    pci_bus_id: Optional[str]


def read_ports(sysfs_root: str, proc_root: str = "/proc") -> Tuple[Port, ...]:
    """Every port of every adapter, in natural order, with its fabric. Empty without adapters. Never fails."""
    folder = Path(sysfs_root) / "class/infiniband"
    names = list_names(folder)
    if not names:
        return ()
    routes = parse_routes(read_text(f"{proc_root}/net/route") or "")
    return tuple(
        port
        for name in sorted(names, key=natural_key)
        for port in _read_hca_ports(_read_hca(folder / name), routes)
    )


def _read_hca(folder: Path) -> _Hca:
    device = folder / "device"
    path = resolve(device) if exists(device) or device.is_symlink() else resolve(folder)
    # A sub-function's device is an auxiliary one below its PCI function.
    addresses = [part for part in path.parts if _BUS_ID.fullmatch(part)]
    numa = parse_leading_number(read_text(device / "numa_node"))
    return _Hca(
        folder=folder,
        node_type=parse_leading_number(read_text(folder / "node_type")),
        driver=read_link_name(device / "driver"),
        vendor=read_text(device / "vendor"),
        is_soft=exists(folder / "parent") or "/devices/virtual/" in f"{resolve(folder)}/",
        numa_node=numa if numa is not None and numa >= 0 else None,
        pci_bus_id=addresses[-1] if addresses else None,
    )


def _read_hca_ports(hca: _Hca, routes: Sequence[Route]) -> List[Port]:
    numbers = [name for name in list_names(hca.folder / "ports") or [] if name.isdecimal()]
    return [_read_port(hca, int(number), routes) for number in sorted(numbers, key=int)]


def _read_port(hca: _Hca, number: int, routes: Sequence[Route]) -> Port:
    folder = hca.folder / "ports" / str(number)
    link_layer = read_text(folder / "link_layer") or None
    gids = _read_gids(folder, only_first=link_layer != "Ethernet")
    gid = choose_gid(gids, is_infiniband=link_layer == "InfiniBand")
    port = Port(
        hca=hca.folder.name,
        port=number,
        link_layer=link_layer,
        kind=_classify(hca, link_layer),
        state=parse_state(read_text(folder / "state")),
        physical_state=parse_state(read_text(folder / "phys_state")),
        # Ethernet has none, and irdma says 1 all the same.
        lid=parse_lid(read_text(folder / "lid")) if link_layer == "InfiniBand" else None,
        gid=None if gid is None else gid.text,
        netdev=(gid.netdev if gid is not None else None) or _read_netdev(hca.folder, number),
        numa_node=hca.numa_node,
        pci_bus_id=hca.pci_bus_id,
    )
    return replace(
        port,
        rate_gbps=_believe_rate(port, read_text(folder / "rate")),
        fabric=fabric_key(port, find_ipv4_prefix(port, routes))
        if _is_addressed(port, gid)
        else None,
    )


def _classify(hca: _Hca, link_layer: Optional[str]) -> PortKind:
    return classify_port(
        hca.folder.name, link_layer, hca.node_type, hca.driver, hca.vendor, is_soft=hca.is_soft
    )


def _is_addressed(port: Port, gid: Optional[Gid]) -> bool:
    """Whether a connection could use the GID. RoCE needs version 2 and a netdev in this network namespace."""
    if gid is None or port.kind is not PortKind.ROCE:
        return gid is not None
    return gid.kind == ROCE_V2 and gid.netdev is not None


def _believe_rate(port: Port, text: Optional[str]) -> Optional[float]:
    """None where the kernel prints SDR for a speed it does not know: no InfiniBand link is as slow any more."""
    rate, speed = parse_rate(text)
    is_suspect = port.kind is PortKind.INFINIBAND and port.state == ACTIVE and speed == "SDR"
    return None if is_suspect else rate


def _read_gids(folder: Path, *, only_first: bool) -> List[Gid]:
    """The filled slots in order. Empty ones read as zero; their type and netdev end in EINVAL."""
    names = [name for name in list_names(folder / "gids") or [] if name.isdecimal()]
    found = []
    for name in sorted(names, key=int)[: 1 if only_first else MAX_GIDS]:
        text = read_text(folder / "gids" / name)
        address = parse_gid(text or "")
        if text and address is not None and int(address) != 0:
            kind = read_text(folder / "gid_attrs/types" / name)
            found.append(Gid(int(name), text, kind, read_text(folder / "gid_attrs/ndevs" / name)))
    return found


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
) -> PortKind:
    """What the port speaks. The link layer alone says InfiniBand for Omni-Path, and Ethernet for iWARP and soft RoCE."""
    if node_type == _RNIC:
        return PortKind.IWARP
    if node_type in _USNIC:
        return PortKind.UNKNOWN
    if driver == "efa" or (vendor == _AMAZON and link_layer != "InfiniBand"):
        return PortKind.EFA
    if driver == "hfi1" or hca.startswith(("hfi1_", "opa")):
        return PortKind.OMNI_PATH
    if is_soft:
        return PortKind.SOFT_ROCE if link_layer == "Ethernet" else PortKind.UNKNOWN
    by_link_layer = {"InfiniBand": PortKind.INFINIBAND, "Ethernet": PortKind.ROCE}
    return by_link_layer.get(link_layer or "", PortKind.UNKNOWN)


def choose_gid(gids: Sequence[Gid], *, is_infiniband: bool) -> Optional[Gid]:
    """The GID that traffic would use: on InfiniBand the first; on RoCE a routable v2 one, IPv4 first, else the first."""
    if is_infiniband:
        return next((gid for gid in gids if gid.index == 0), None)
    routable = [gid for gid in gids if gid.kind == ROCE_V2 and _is_routable(gid)]
    ipv4 = [gid for gid in routable if _ipv4_of(gid.text) is not None]
    return next(iter([*ipv4, *routable, *gids]), None)


def _is_routable(gid: Gid) -> bool:
    address = parse_gid(gid.text)
    return address is not None and is_routable(address)


def _ipv4_of(gid: str) -> Optional[int]:
    address = parse_gid(gid)
    ipv4 = None if address is None else address.ipv4_mapped
    return None if ipv4 is None else int(ipv4)


def parse_state(text: Optional[str]) -> Optional[str]:
    """`4: ACTIVE` is "ACTIVE", `5: LinkUp` is "LinkUp"; None for anything of another form."""
    match = re.fullmatch(r"[0-9]{1,3}: ([\w<> -]{1,40})", text or "", re.ASCII)
    return match.group(1).strip() or None if match else None


def parse_rate(text: Optional[str]) -> Tuple[Optional[float], Optional[str]]:
    """(Gb/s, speed) of a port. Text: `400 Gb/sec (4X NDR)`; old kernels leave out SDR: `2.5 Gb/sec (1X)`.

    A speed that the kernel does not know prints as SDR: an NDR port on an old kernel reads `10 Gb/sec (4X)`.
    """
    match = re.fullmatch(
        r"([0-9]{1,6}(?:\.[0-9])?) Gb/sec \([0-9]{1,2}X ?(\w*)\)", text or "", re.ASCII
    )
    if match is None:
        return None, None
    return float(match.group(1)) or None, match.group(2) or "SDR"


def parse_lid(text: Optional[str]) -> Optional[int]:
    """`0x1a` is 26. 0 and 0xffff mean that no subnet manager gave one: None."""
    match = re.fullmatch(r"0x([0-9a-fA-F]{1,8})", text or "")
    lid = int(match.group(1), 16) if match else 0
    return None if lid in (0, 0xFFFF) else lid


def parse_leading_number(text: Optional[str]) -> Optional[int]:
    """`1: CA` is 1, `-1` is -1; None when no number leads."""
    match = re.match(r"-?[0-9]{1,6}", text or "")
    return int(match.group(0)) if match else None


def parse_routes(text: str) -> List[Route]:
    """The connected networks of /proc/net/route, which any user may read. Source: net/ipv4/fib_trie.c.

    Line: `ens1  0000010A  00000000  0001  0  0  100  00FFFFFF  0  0  0`: addresses in the machine's byte order.
    """
    found = []
    for line in text.splitlines()[1:]:
        match = re.match(
            r"(\S+)\s+([0-9A-F]{8})\s+0{8}\s+\S+\s+\S+\s+\S+\s+\S+\s+([0-9A-F]{8})\s", line
        )
        if match:
            netdev, network, mask = match.groups()
            found.append(Route(netdev, _address(network), _address(mask)))
    return found


def _address(digits: str) -> int:
    return int.from_bytes(bytes.fromhex(digits), "little" if sys.byteorder == "little" else "big")


def find_ipv4_prefix(port: Port, routes: Sequence[Route]) -> Optional[int]:
    """Length of the prefix of the network that the port's address is in; None when no route of its netdev tells."""
    address = _ipv4_of(port.gid or "")
    if address is None:
        return None
    lengths = [
        bin(route.mask).count("1")
        for route in routes
        if route.netdev == port.netdev and route.mask and address & route.mask == route.network
    ]
    return max((length for length in lengths if length <= _MAX_PREFIX), default=None)
