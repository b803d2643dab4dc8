"""The node's network interfaces and routes, as its engines will see them."""

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from llmgw_core.agent.probes.files import read_text
from llmgw_core.agent.probes.netlink import (
    Link,
    RouteEntry,
    read_addresses,
    read_links,
    read_routes,
)
from llmgw_core.domain import network as net

_ETHERNET, _INFINIBAND, _LOOPBACK = 1, 32, 772  # Source: include/uapi/linux/if_arp.h
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_MOST_ROUTES = 256
_MOST_INTERFACES = 512
_KINDS = {
    "veth": net.VETH,
    "bridge": net.BRIDGE,
    "openvswitch": net.BRIDGE,
    "bond": net.BOND,
    "team": net.BOND,
    "vlan": net.VLAN,
    "macvlan": net.VLAN,
    "ipvlan": net.VLAN,
    "ipoib": net.IPOIB,
    "dummy": net.OTHER,
    "ifb": net.OTHER,
    "vrf": net.OTHER,
}
_BRIDGES = ("docker", "br-", "virbr", "cni", "podman", "lxcbr", "lxdbr")


class Network(NamedTuple):
    """Interfaces and routes of one reading."""

    interfaces: Tuple[net.Interface, ...]
    routes: Tuple[net.Route, ...]


def read_network(proc_root: str = "/proc") -> Network:
    """Everything of this network namespace. OSError: the kernel or a sandbox refuses."""
    links = read_links()[:_MOST_INTERFACES]
    addresses: Dict[int, List[net.InterfaceAddress]] = {}
    for number, text, prefix in read_addresses():
        addresses.setdefault(number, []).append(net.InterfaceAddress(text, prefix))
    entries = read_routes()
    names = {link.number: link.name for link in links}
    ways_out = {entry.link for entry in entries if entry.destination in ("0.0.0.0/0", "::/0")}
    conf = Path(proc_root) / "sys/net/ipv4/conf"
    interfaces = tuple(
        net.Interface(
            name=link.name,
            addresses=tuple(addresses.get(link.number, ())),
            kind=classify(link),
            mtu_bytes=link.mtu,
            up=bool(link.flags & _IFF_UP),
            running=bool(link.flags & _IFF_RUNNING),
            default_route=link.number in ways_out,
            master=names.get(link.master) if link.master else None,
            arp_ignore=_read_arp(conf, link.name, "arp_ignore"),
            arp_announce=_read_arp(conf, link.name, "arp_announce"),
        )
        for link in links
    )
    return Network(interfaces, _keep_routes(entries, names))


def classify(link: Link) -> str:
    """What kind of interface it is. A driver's own kind goes before the hardware type, which goes before the name."""
    if link.hardware == _LOOPBACK:
        return net.LOOPBACK
    if link.kind is not None:
        # What is left are tunnels: tun, vxlan, wireguard, ipip, sit, gre, ip6tnl, geneve …
        return _KINDS.get(link.kind, net.TUNNEL)
    if link.hardware == _INFINIBAND:
        return net.IPOIB
    if link.name.startswith(_BRIDGES):
        return net.BRIDGE
    return net.PHYSICAL if link.hardware == _ETHERNET else net.TUNNEL


def _read_arp(conf: Path, name: str, key: str) -> Optional[int]:
    values = [read_text(conf / folder / key) for folder in ("all", name)]
    numbers = [int(value) for value in values if value is not None and value.isdecimal()]
    return max(numbers, default=None)


def _keep_routes(entries: List[RouteEntry], names: Dict[int, str]) -> Tuple[net.Route, ...]:
    """Without link-local and multicast networks, which every interface has."""
    kept = [
        net.Route(entry.destination, names[entry.link], entry.gateway)
        for entry in entries
        if entry.link in names and not entry.destination.startswith(("fe80:", "ff"))
    ]
    return tuple(kept[:_MOST_ROUTES])
