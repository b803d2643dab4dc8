"""Whether RoCE ports would use an address that reaches another node. Pure.

Source: NCCL src/transport/net_ib/connect.cc.
"""

from collections.abc import Iterator

from llmgw_core.domain.fabric import ROCE_V2, ipv4_of, is_routable, parse_gid
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.planning.fabric_verdicts import label
from llmgw_core.planning.network_checks.situation import Side, Situation, join, tell
from llmgw_core.planning.network_env import CHOOSES_GID_ITSELF

CODE = "gid-roce"
_INDEX = "NCCL_IB_GID_INDEX"
_LEAVE = f"leave {_INDEX} out: NCCL finds each port's own from 2.21 on"


def check_gids(case: Situation) -> Iterator[Finding]:
    """The pinned index, the family, and what an older NCCL would take."""
    if not case.wants_rdma:
        return
    for side in case.sides:
        roce = [port for port in side.chosen if port.kind is PortKind.ROCE]
        yield from _tell_foreign(side)
        if not roce:
            continue
        pinned = side.get_setting(_INDEX)
        if pinned is not None:
            yield from _judge_pinned(side, roce, *pinned)
        elif case.is_nccl_before(*CHOOSES_GID_ITSELF) and _INDEX not in side.env:
            yield from _judge_first(side, roce)
        indices = sorted({port.gid_index for port in roce if port.gid_index is not None})
        if len(indices) > 1:
            what = f"its ports' addresses are at indices {', '.join(map(str, indices))}: no single index fits"
            yield tell(CODE, Severity.WARNING, side, "RoCE", what, _LEAVE)
        if all(ipv4_of(port.gid) is None for port in roce):
            is_told = "NCCL_IB_ADDR_FAMILY" in side.env
            what = "its ports have IPv6 addresses alone: NCCL looks for IPv4 unless NCCL_IB_ADDR_FAMILY says AF_INET6"
            severity = Severity.INFO if is_told else Severity.WARNING
            yield tell(CODE, severity, side, "RoCE", what, "" if is_told else "set it")


def _judge_pinned(side: Side, ports: list[Port], value: str, where: str) -> Iterator[Finding]:
    text = f"{_INDEX}={value} ({where})"
    if value == "-1":
        return
    if not value.isdecimal():
        yield tell(CODE, Severity.ERROR, side, "RoCE", f"{text} is no index", _LEAVE)
        return
    gids = (side.network.port_gids if side.network else None) or {}
    wrong = False
    for port in ports:
        why = _find_fault(gids, port, int(value))
        if why is not None:
            wrong = True
            yield tell(CODE, Severity.ERROR, side, label(port), f"{text} {why}", _LEAVE)
    if not wrong:
        what = f"{text} fits today; an index moves when a link flaps"
        yield tell(CODE, Severity.WARNING, side, "RoCE", what, _LEAVE)


def _find_fault(gids: object, port: Port, index: int) -> str | None:
    """Why the slot is of no use; None: it is, or the table is not known."""
    table = gids.get(label(port)) if isinstance(gids, dict) else None
    if table is None:
        is_other = port.gid_index not in (None, index)
        return f"is not {port.gid_index}, where its routable address is" if is_other else None
    slot = next((gid for gid in table if gid.index == index), None)
    if slot is None:
        return "is an empty slot"
    address = parse_gid(slot.gid)
    if address is None or not is_routable(address):
        return "is a link-local address, which does not route"
    if slot.kind != ROCE_V2:
        return f"is {slot.kind or 'of unknown type'}, not RoCE v2"
    return None if slot.netdev else "is an address of another network namespace"


def _judge_first(side: Side, ports: list[Port]) -> Iterator[Finding]:
    gids = (side.network.port_gids if side.network else None) or {}
    for port in ports:
        why = _find_fault(gids, port, 0)
        if why is not None:
            what = f"this NCCL takes GID index 0, which {why}; {port.gid_index} is right"
            yield tell(CODE, Severity.WARNING, side, label(port), what, f"set {_INDEX}")


def _tell_foreign(side: Side) -> Iterator[Finding]:
    foreign = [
        label(port)
        for port in side.ports
        if port.excluded is not None and port.excluded.code == "foreign-netns"
    ]
    if foreign:
        what = f"the addresses of {join(foreign)} have no netdev in this network namespace"
        severity = Severity.WARNING if side.chosen else Severity.ERROR
        yield tell(CODE, severity, side, "RoCE", what, "run the container with the host's network")
