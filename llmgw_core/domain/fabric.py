"""Which fabric a port is of, as far as the port alone can tell. Pure.

Equal keys on two nodes are a claim, not a proof: every InfiniBand subnet comes with the same default prefix, and
private IP networks are reused on cables of their own. Different keys do tell fabrics apart, but for routed RoCE,
which an operator can say in cluster.toml.
"""

import ipaddress
from typing import Optional

from llmgw_core.domain.hardware import Port, PortKind

ACTIVE = "ACTIVE"
ROCE_V2 = "RoCE v2"
EMPTY_PKEY = "0x0000"
# Reasons to prefer another port of the node, which say nothing against this one where the other cannot be used.
OTHER_LINK_LAYER = "other-link-layer"
SLOWER = "slower"
OTHER_FABRIC = "other-fabric"
OTHER_NETWORK = "other-network"
_LESS_PREFERRED = (OTHER_LINK_LAYER, SLOWER, OTHER_FABRIC, OTHER_NETWORK)
# Taken where the netdev's own is not known. Too wide is wrong as well as too narrow; racks mostly use /24.
ASSUMED_IPV4_PREFIX = 24
_IPV6_PREFIX = 64
_MTUS = (4096, 2048, 1024, 512, 256)
# GRH, UDP, BTH, XRC, atomic header and ICRC. Source: include/rdma/ib_addr.h, iboe_get_mtu.
_ROCE_HEADER_BYTES = 40 + 8 + 12 + 4 + 28 + 4
_GID_GROUPS = 8


def is_capable(port: Port) -> bool:
    """Whether engines on several nodes could exchange tensors over it, if the node's better ports were of no use."""
    speaks = port.state == ACTIVE and port.kind in (PortKind.INFINIBAND, PortKind.ROCE)
    return speaks and (port.excluded is None or port.excluded.code in _LESS_PREFERRED)


def fabric_key(port: Port, ipv4_prefix: Optional[int] = None) -> Optional[str]:
    """The fabric of the port: `ib-fe80000000000000` by subnet prefix, `roce-10.1.2.0/24` by IP network.

    None when the port is not capable, has no GID, or has RoCE on link-local addresses alone, which do not route.

    Args:
        ipv4_prefix: length of the network's prefix at the port's netdev; None: not known.
    """
    if not is_capable(port) or port.gid is None:
        return None
    address = parse_gid(port.gid)
    if address is None or int(address) == 0:
        return None
    if port.kind is PortKind.INFINIBAND:
        return f"ib-{int(address) >> 64:016x}"
    network = _network_of(address, ipv4_prefix)
    return None if network is None else f"roce-{network}"


def parse_gid(text: str) -> Optional[ipaddress.IPv6Address]:
    """A GID as sysfs writes it, `fe80:0000:0000:0000:b859:9f03:00d4:1d48`; None when it is none."""
    if text.count(":") != _GID_GROUPS - 1:
        return None
    try:
        return ipaddress.IPv6Address(text)
    except ValueError:
        return None


def ipv4_of(gid: Optional[str]) -> Optional[int]:
    """The IPv4 address in a GID, as a number; None when it holds none."""
    address = parse_gid(gid or "")
    ipv4 = None if address is None else address.ipv4_mapped
    return None if ipv4 is None else int(ipv4)


def is_routable(address: ipaddress.IPv6Address) -> bool:
    """Whether RoCE v2 can use the GID: neither empty nor link-local."""
    ipv4 = address.ipv4_mapped
    if ipv4 is not None:
        return int(ipv4) != 0 and not ipv4.is_link_local
    return int(address) != 0 and not address.is_link_local


def roce_mtu_bytes(netdev_mtu: Optional[int]) -> Optional[int]:
    """The MTU that verbs use over a netdev of that MTU: 1500 gives 1024, 4200 and 9000 give 4096."""
    if netdev_mtu is None:
        return None
    room = netdev_mtu - _ROCE_HEADER_BYTES
    return next((mtu for mtu in _MTUS if mtu <= room), None)


def _network_of(address: ipaddress.IPv6Address, ipv4_prefix: Optional[int]) -> Optional[str]:
    if not is_routable(address):
        return None
    ipv4 = address.ipv4_mapped
    if ipv4 is None:
        return str(ipaddress.IPv6Network((int(address), _IPV6_PREFIX), strict=False))
    length = ASSUMED_IPV4_PREFIX if ipv4_prefix is None else ipv4_prefix
    return str(ipaddress.IPv4Network((int(ipv4), length), strict=False))
