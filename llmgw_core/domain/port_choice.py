"""Which of a node's ports engines should use, and why not the others. Pure: the node's own files decide.

What a port cannot do excludes it. What only hints that it is for something else (storage, management) makes it
suspect; a hint excludes it too where taking it for the fabric has hung jobs.
"""

import re
from collections import defaultdict
from dataclasses import replace
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from llmgw_core.domain.fabric import (
    ACTIVE,
    OTHER_LINK_LAYER,
    ROCE_V2,
    SLOWER,
    is_routable,
    parse_gid,
)
from llmgw_core.domain.hardware import Port, PortKind, PortNote

_NEAR = ("PIX", "PXB")  # through PCIe switches alone
_CARD_FUNCTIONS = (
    2  # a card with more InfiniBand functions, none of them virtual, is none for the fabric
)
_SLOT = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.([0-7])")
_SPOKEN = (PortKind.INFINIBAND, PortKind.ROCE)
_KIND_TEXT = {
    PortKind.IWARP: "iWARP, which NCCL does not use",
    PortKind.SOFT_ROCE: "RoCE in software, no faster than TCP",
    PortKind.OMNI_PATH: "Omni-Path, a fabric of its own although the link layer reads InfiniBand",
    PortKind.EFA: "EFA, which only the OFI plugin can use",
    PortKind.UNKNOWN: "neither InfiniBand nor RoCE",
}


def judge_ports(ports: Sequence[Port], kind: Optional[PortKind] = None) -> Tuple[Port, ...]:
    """The same ports in the same order with `usable`, `excluded` and `suspect` filled in.

    Args:
        kind: choose among ports of this kind, as other nodes have no better; None: whatever serves this node best.
    """
    notes: Dict[int, PortNote] = {}
    for number, port in enumerate(ports):
        note = _find_defect(port) or _find_physical_function(port, ports)
        if note is not None:
            notes[number] = note
    suspects = _merge(notes, ports, _find_management)
    left = [port for number, port in enumerate(ports) if number not in notes]
    chosen = kind or choose_kind(left)
    _merge(notes, ports, lambda able: _find_other_kind(able, chosen))
    suspects.update(_merge(notes, ports, _find_other_subnet))
    suspects.update(_merge(notes, ports, _find_slower))
    able = [number for number in range(len(ports)) if number not in notes]
    for place, note in _find_far([ports[number] for number in able]).items():
        suspects.setdefault(able[place], note)
    for place, note in _find_way_out([ports[number] for number in able]).items():
        suspects.setdefault(able[place], note)
    return tuple(
        replace(
            port,
            usable=number not in notes,
            excluded=notes.get(number),
            suspect=suspects.get(number),
        )
        for number, port in enumerate(ports)
    )


def choose_kind(ports: Sequence[Port]) -> Optional[PortKind]:
    """InfiniBand, unless RoCE carries more in sum; None without ports."""
    rates = {
        kind: [port.rate_gbps or 0.0 for port in ports if port.kind is kind] for kind in _SPOKEN
    }
    infiniband, roce = (rates[kind] for kind in _SPOKEN)
    if infiniband and (sum(infiniband) >= sum(roce) or 0.0 in infiniband):
        return PortKind.INFINIBAND
    return PortKind.ROCE if roce else None


Finder = Callable[[Sequence[Port]], Dict[int, PortNote]]


def _merge(notes: Dict[int, PortNote], ports: Sequence[Port], find: Finder) -> Dict[int, PortNote]:
    """Add what is found among the ports without a note. Returns what was added, by number."""
    able = [number for number in range(len(ports)) if number not in notes]
    found = find([ports[number] for number in able])
    added = {able[place]: note for place, note in found.items()}
    notes.update(added)
    return added


def _find_defect(port: Port) -> Optional[PortNote]:
    """What the port cannot do, whatever its siblings are."""
    if port.state != ACTIVE:
        return PortNote("not-active", _describe_state(port))
    if port.kind not in _SPOKEN:
        return PortNote(port.kind.value, _KIND_TEXT[port.kind])
    if port.uverbs_access not in (None, "ok"):
        device = f"/dev/infiniband/{port.uverbs or 'uverbs*'}"
        return PortNote("no-access", f"{device} cannot be opened: {port.uverbs_access}")
    return _find_gid_trouble(port)


def _describe_state(port: Port) -> str:
    if port.state is None:
        return "its state cannot be read"
    said = ", ".join(word for word in (port.state, port.physical_state) if word)
    said = f"virtual function, {said}" if port.vf else said
    is_waiting = port.state == "INIT" and port.kind is PortKind.INFINIBAND
    if is_waiting and port.physical_state == "LinkUp" and port.sm_lid is None:
        return f"{said}: no subnet manager has set it up"
    return said


def _find_gid_trouble(port: Port) -> Optional[PortNote]:
    address = parse_gid(port.gid or "")
    if address is None or int(address) == 0:
        return PortNote("no-gid", "its GID table is empty")
    if port.kind is PortKind.INFINIBAND:
        return None
    if not is_routable(address):
        return PortNote("no-gid", "only link-local addresses: no routable GID")
    if port.gid_type != ROCE_V2:
        return PortNote("no-gid", f"no RoCE v2 GID, only {port.gid_type or 'ones of unknown type'}")
    if port.netdev is None:
        return PortNote(
            "foreign-netns", "no GID whose netdev is visible here: use the host's network"
        )
    return None


def _find_physical_function(port: Port, ports: Sequence[Port]) -> Optional[PortNote]:
    """A virtual function beside its own physical one: NCCL takes both for one card with two ports."""
    is_beside = port.vf and any(
        other.hca != port.hca and other.pci_bus_id == port.pf_pci_bus_id and other.state == ACTIVE
        for other in ports
        if other.pci_bus_id is not None
    )
    if not is_beside:
        return None
    return PortNote("virtual-function", f"virtual function beside its own PF, {port.pf_pci_bus_id}")


def _find_management(ports: Sequence[Port]) -> Dict[int, PortNote]:
    """The functions through which a node manages its own NVSwitches. They look like ports of the fabric.

    No file names them without root. They are several functions of one slot, under a subnet manager of their own.
    """
    slots: Dict[str, List[int]] = defaultdict(list)
    for number, port in enumerate(ports):
        match = _SLOT.fullmatch(port.pci_bus_id or "")
        if match and port.kind is PortKind.INFINIBAND and not port.vf:
            slots[match.group(1)].append(number)
    found: Dict[int, PortNote] = {}
    for slot, members in slots.items():
        functions = {ports[number].pci_bus_id for number in members}
        others = [port for n, port in enumerate(ports) if n not in members]
        if len(functions) > _CARD_FUNCTIONS or (
            len(functions) == _CARD_FUNCTIONS
            and _is_own_subnet([ports[n] for n in members], others)
        ):
            why = f"{len(functions)} InfiniBand functions of one slot, {slot}: likely NVSwitch management"
            found.update((number, PortNote("nvswitch-management", why)) for number in members)
    return found


def _is_own_subnet(members: Sequence[Port], others: Sequence[Port]) -> bool:
    """Whether another subnet manager serves more ports than theirs does, and none of the others' is theirs."""
    theirs = {port.sm_lid for port in members}
    rest = [port.sm_lid for port in others if port.kind is PortKind.INFINIBAND]
    return None not in theirs and not theirs & set(rest) and len(rest) > len(members)


def _find_other_kind(ports: Sequence[Port], chosen: Optional[PortKind]) -> Dict[int, PortNote]:
    if chosen is None:
        return {}
    has_chosen = any(port.kind is chosen for port in ports)
    text = "{} beside {}: one connection cannot use both"
    return {
        number: PortNote(OTHER_LINK_LAYER, text.format(port.kind.value, chosen.value))
        for number, port in enumerate(ports)
        if has_chosen and port.kind is not chosen
    }


def _find_other_subnet(ports: Sequence[Port]) -> Dict[int, PortNote]:
    """InfiniBand ports of a subnet that at least twice as many of their siblings are not in: storage, mostly."""
    subnets: Dict[Tuple[str, Optional[int]], List[int]] = defaultdict(list)
    for number, port in enumerate(ports):
        if port.kind is PortKind.INFINIBAND and port.sm_lid is not None:
            subnets[((port.gid or "")[:19], port.sm_lid)].append(number)
    most = max(subnets, key=lambda key: len(subnets[key]), default=None)
    if most is None:
        return {}
    text = "subnet {} with subnet manager LID {}, {} of its siblings are in {} with {}"
    return {
        number: PortNote("other-subnet", text.format(*key, len(subnets[most]), *most))
        for key, members in subnets.items()
        for number in members
        if len(members) * 2 <= len(subnets[most])
    }


def _find_slower(ports: Sequence[Port]) -> Dict[int, PortNote]:
    """Ports of at most half the rate by which most is carried: management or storage, or a link that came up badly."""
    sums: Dict[float, float] = defaultdict(float)
    for port in ports:
        if port.rate_gbps is not None:
            sums[port.rate_gbps] += port.rate_gbps
    if not sums:
        return {}
    usual = max(sums, key=lambda rate: (sums[rate], rate))
    return {
        number: PortNote(SLOWER, f"{port.rate_gbps:g} Gb/s beside {usual:g} Gb/s")
        for number, port in enumerate(ports)
        if port.rate_gbps is not None and port.rate_gbps * 2 <= usual
    }


def _find_far(ports: Sequence[Port]) -> Dict[int, PortNote]:
    """Ports farther from every GPU than most of their siblings, which often are for storage."""
    near = [port for port in ports if port.gpu_distance in _NEAR]
    far = {n: port for n, port in enumerate(ports) if port.gpu_distance not in (None, *_NEAR)}
    if len(near) < len(far):
        return {}
    best = near[0].gpu_distance if near else None
    return {
        number: PortNote(
            "far-from-gpus", f"closest GPU distance {port.gpu_distance}, others have {best}"
        )
        for number, port in far.items()
    }


def _find_way_out(ports: Sequence[Port]) -> Dict[int, PortNote]:
    """RoCE ports by which the node reaches the world, where others are there for engines alone."""
    found = {
        number: PortNote("default-route", f"{port.netdev} carries the default route")
        for number, port in enumerate(ports)
        if port.default_route and port.kind is PortKind.ROCE
    }
    return found if len(found) < len(ports) else {}
