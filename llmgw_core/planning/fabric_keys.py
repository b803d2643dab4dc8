"""Fabric keys made finer by what several nodes show together. Pure.

A port alone knows its subnet's prefix or its IP network. Only side by side do two subnets of one prefix show (their
subnet managers or LIDs), and networks that join the same nodes rail by rail.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from llmgw_core.domain.fabric import OTHER_NETWORK
from llmgw_core.domain.hardware import Port, PortKind, PortNote
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.units import natural_key
from llmgw_core.planning.subnets import Subnets

Ports: TypeAlias = tuple[Port, ...]
Members: TypeAlias = dict[str, list[str]]
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_ROCE = "roce-"


def refine_keys(
    nodes: Sequence[Node], ports: dict[str, Ports], overrides: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Change the fabric of ports, in place, where one key stands for several fabrics or several keys for one.

    What the operator named is left as it is.

    Returns:
        the networks of each fabric that joins several.
    """
    free = [node for node in nodes if node.name not in overrides]
    _split_by_manager(free, ports)
    _split_by_lids(free, ports)
    return _join_rails(free, ports)


def _split_by_manager(nodes: Sequence[Node], ports: dict[str, Ports]) -> None:
    """Two subnet managers are two subnets. A port that does not say which is left with the plain key."""
    managers: dict[str, set[int]] = {}
    for node in nodes:
        for port in ports[node.name]:
            if port.fabric is not None and port.sm_lid is not None:
                managers.setdefault(port.fabric, set()).add(port.sm_lid)
    mixed = {key for key, lids in managers.items() if len(lids) > 1}
    _rename(
        nodes,
        ports,
        lambda _, port: (
            f"{port.fabric}-sm{port.sm_lid}"
            if port.fabric in mixed and port.sm_lid is not None
            else port.fabric
        ),
    )


def _split_by_lids(nodes: Sequence[Node], ports: dict[str, Ports]) -> None:
    """A LID is given once in a subnet: the second node that has it begins another of the same prefix."""
    subnets: dict[str, Subnets] = {}
    names: dict[tuple[str, str], str] = {}
    for node in nodes:
        for key in _infiniband_keys(ports[node.name]):
            own = [port for port in ports[node.name] if port.fabric == key]
            place = subnets.setdefault(key, Subnets()).place(own)
            names[(node.name, key)] = key if place == 0 else f"{key}-{place + 1}"
    _rename(nodes, ports, lambda node, port: names.get((node, port.fabric or ""), port.fabric))


def _infiniband_keys(ports: Ports) -> list[str]:
    keys = {port.fabric for port in ports if port.kind is PortKind.INFINIBAND}
    return sorted(key for key in keys if key is not None)


def _join_rails(nodes: Sequence[Node], ports: dict[str, Ports]) -> dict[str, tuple[str, ...]]:
    """IP networks of the same nodes are the rails of one fabric, unless the nodes are reached by one of them.

    Then that one is known to join them, and the others may be cables between who knows whom.
    """
    members: dict[str, list[str]] = {}
    for node in nodes:
        for key in sorted({port.fabric or "" for port in ports[node.name] if port.usable}):
            if key.startswith(_ROCE):
                members.setdefault(key, []).append(node.name)
    rails: dict[tuple[str, ...], list[str]] = {}
    for key, names in sorted(members.items(), key=lambda item: natural_key(item[0])):
        if len(names) > 1:
            rails.setdefault(tuple(names), []).append(key)
    addresses = {node.name: node.address for node in nodes}
    joined: dict[str, tuple[str, ...]] = {}
    for group, keys in rails.items():
        if len(keys) == 1:
            continue
        reached = _find_reached(keys, [addresses[name] for name in group])
        if reached is not None:
            _leave_out(group, ports, [key for key in keys if key != reached], reached)
            continue
        name = f"{keys[0]}+{len(keys) - 1}"
        joined[name] = tuple(key.removeprefix(_ROCE) for key in keys)
        for node_name in group:
            ports[node_name] = tuple(
                replace(port, fabric=name) if port.usable and port.fabric in keys else port
                for port in ports[node_name]
            )
    return joined


def _find_reached(keys: Sequence[str], addresses: Sequence[str | None]) -> str | None:
    """The network that holds every address by which the nodes are reached; None when none does or names are used."""
    try:
        found = [ipaddress.ip_address(address or "") for address in addresses]
    except ValueError:
        return None
    for key in keys:
        network = _network_of(key)
        if network is not None and all(address in network for address in found):
            return key
    return None


def _network_of(key: str) -> Network | None:
    try:
        return ipaddress.ip_network(key.removeprefix(_ROCE))
    except ValueError:
        return None


def _leave_out(
    names: Sequence[str], ports: dict[str, Ports], keys: Sequence[str], reached: str
) -> None:
    text = (
        "{} is another IP network than {}, by which the nodes are reached: it may be another cable"
    )
    for name in names:
        ports[name] = tuple(
            replace(
                port,
                usable=False,
                excluded=PortNote(OTHER_NETWORK, text.format(port.fabric, reached)),
            )
            if port.usable and port.fabric in keys
            else port
            for port in ports[name]
        )


def _rename(
    nodes: Sequence[Node],
    ports: dict[str, Ports],
    name_of: Callable[[str, Port], str | None],
) -> None:
    for node in nodes:
        ports[node.name] = tuple(
            port
            if name_of(node.name, port) == port.fabric
            else replace(port, fabric=name_of(node.name, port))
            for port in ports[node.name]
        )
