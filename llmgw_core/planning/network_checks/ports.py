"""Ports that are down, that are for something else, and what no file can tell of the others. Pure."""

from collections.abc import Iterator

from llmgw_core.domain.fabric import ACTIVE
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.planning.fabric_verdicts import label
from llmgw_core.planning.network_checks.situation import Side, Situation, join, tell
from llmgw_core.planning.partitions import find_pkey_indices

_SUSPICIOUS = ("nvswitch-management", "virtual-function")
_SPOKEN = (PortKind.INFINIBAND, PortKind.ROCE)
_MANY_NODES = 3  # from which on pairs can differ in speed


def check_ports(case: Situation) -> Iterator[Finding]:
    """States, twice: at the inventory and now."""
    if not case.wants_rdma:
        return
    for side in case.sides:
        now = (side.network.port_states if side.network else None) or {}
        for port in side.ports:
            state = now.get(label(port), port.state)
            if port.state is not None and state != port.state:
                what = f"{label(port)} was {port.state} and is {state}: the link flaps"
                fix = "look at cable and transceiver; leave it out by exclude_ports in cluster.toml"
                is_used = port in side.chosen or not side.chosen
                severity = Severity.ERROR if is_used else Severity.INFO
                yield tell("port-active", severity, side, label(port), what, fix)
            elif port.state != ACTIVE and not port.vf:
                yield _tell_down(side, port)


def _tell_down(side: Side, port: Port) -> Finding:
    why = port.excluded.reason if port.excluded else f"{port.state}"
    is_waiting = port.kind is PortKind.INFINIBAND and port.state == "INIT" and not port.sm_lid
    if is_waiting and not side.chosen:
        fix = "start the subnet manager (opensm, or the switch's)"
        return tell("port-active", Severity.ERROR, side, label(port), why, fix)
    severity = Severity.WARNING if is_waiting else Severity.INFO
    return tell("port-active", severity, side, label(port), f"not used: {why}")


def check_purpose(case: Situation) -> Iterator[Finding]:
    """Adapters of storage and management look like those of the fabric."""
    if not case.wants_rdma:
        return
    for side in case.sides:
        for port in side.chosen:
            if port.suspect is not None:
                what = f"{label(port)} may be for something else: {port.suspect.reason}"
                fix = "leave it out by exclude_ports in cluster.toml if so"
                yield tell("nonfabric-hca", Severity.WARNING, side, label(port), what, fix)
        left = [port for port in side.ports if port.excluded and port.state == ACTIVE]
        for code in _SUSPICIOUS:
            members = [port for port in left if port.excluded and port.excluded.code == code]
            if members and members[0].excluded is not None:
                told = join([label(port) for port in members])
                what = f"{told} left out: {members[0].excluded.reason}"
                fix = "nothing, if that is right; cluster.toml has the last word"
                yield tell("nonfabric-hca", Severity.WARNING, side, "adapters", what, fix)
        idle = [port for port in side.ports if port.vf and port.state != ACTIVE]
        if idle:
            what = f"{len(idle)} virtual functions that are not in use are left out"
            yield tell("nonfabric-hca", Severity.INFO, side, "adapters", what)
        yield from _tell_mixed(side, left)


def _tell_mixed(side: Side, left: list[Port]) -> Iterator[Finding]:
    kind = side.chosen[0].kind if side.chosen else None
    other = [label(port) for port in left if port.kind in _SPOKEN and port.kind is not kind]
    if kind is not None and other:
        what = f"{join(other)} left out: {kind.value} is used, and one connection cannot use both"
        yield tell("link-layer-mixed", Severity.INFO, side, "adapters", what)


def check_fabric(case: Situation) -> Iterator[Finding]:
    """Files disprove a common fabric and never prove it."""
    if not case.wants_rdma:
        return
    for side in case.sides:
        opa = [
            label(port)
            for port in side.ports
            if port.kind is PortKind.OMNI_PATH and port.state == ACTIVE
        ]
        if opa:
            what = f"{join(opa)}: Omni-Path, although the link layer reads InfiniBand; NCCL's verbs do not use it"
            yield tell("common-fabric", Severity.WARNING, side, "adapters", what)
        access = side.network.umad_access if side.network else None
        if access not in (None, "ok"):
            what = f"ibping and sminfo are not for this user (umad: {access}); engines do not need them"
            yield tell("active-probe", Severity.INFO, side, "umad", what)
    if case.kind is None and _is_routed_perhaps(case):
        what = "no network is common to all nodes, which disproves nothing where they are routed"
        fix = "llmgw fabric --probe tries it; fabric = NAME in cluster.toml says that you know"
        yield tell("active-probe", Severity.WARNING, None, "fabric", what, fix)
    if case.kind is not None and len(case.sides) >= _MANY_NODES:
        what = "collisions in the fabric's routing show in no file: if one pair is slow, measure pairwise"
        yield tell("active-probe", Severity.INFO, None, "fabric", what, "ib_write_bw between two")


def _is_routed_perhaps(case: Situation) -> bool:
    kinds = [{port.kind for port in side.candidates} for side in case.sides]
    return len(kinds) > 1 and all(PortKind.ROCE in own for own in kinds)


def check_twins(case: Situation) -> Iterator[Finding]:
    """Two nodes with one port: a machine under two names, or fabrics that were set up alike."""
    seen: dict[tuple[str | None, str | None], Side] = {}
    told: set[str] = set()
    for side in case.sides if case.wants_rdma else ():
        for port in side.chosen:
            key = (port.gid, port.node_guid)
            other = seen.setdefault(key, side)
            if other is side or port.gid is None or side.name in told:
                continue
            told.add(side.name)
            is_one = side.boot_id is not None and side.boot_id == other.boot_id
            why = "one machine under two names" if is_one else "one machine, or two fabrics"
            what = f"{label(port)} has the GUID of a port of {other.name}: {why}"
            fix = "keep one of the nodes; two containers of one machine may go on"
            yield tell("common-fabric", Severity.WARNING, side, label(port), what, fix)


def check_names(case: Situation) -> Iterator[Finding]:
    """Whether one list for all nodes would do, which somebody may be used to."""
    lists = {tuple(label(port) for port in side.chosen) for side in case.sides if side.chosen}
    counts = {side.name: side.able_count for side in case.sides}
    if case.wants_rdma and len(set(counts.values())) > 1 and case.kind is not None:
        told = join([f"{name} {count}" for name, count in counts.items()])
        what = f"the nodes have unequal numbers of usable ports ({told}): what is common is used"
        fix = "repair the missing ones, or leave the others out by exclude_ports in cluster.toml"
        yield tell("hca-per-node", Severity.WARNING, None, "adapters", what, fix)
    elif case.wants_rdma and len(lists) > 1:
        what = "adapters are called differently on the nodes: each gets a list of its own, never one for all"
        yield tell("hca-per-node", Severity.INFO, None, "adapters", what)


def check_partitions(case: Situation) -> Iterator[Finding]:
    """NCCL takes the key at index 0 unless told."""
    ports = {side.name: side.chosen for side in case.sides if side.chosen}
    if case.kind is not PortKind.INFINIBAND or len(ports) != len(case.sides):
        return
    indices = find_pkey_indices(ports) or {}  # none at all is a finding of the plan
    for side in case.sides:
        index = indices.get(side.name, 0)
        if not index:
            continue
        keys = side.chosen[0].pkeys
        what = f"its key at index 0, {keys[0]}, joins no partition with the others; {keys[index]} at index {index} does"
        is_told = side.env.get("NCCL_IB_PKEY") == str(index)
        severity = Severity.INFO if is_told else Severity.ERROR
        fix = "" if is_told else f"set NCCL_IB_PKEY={index}"
        yield tell("pkey", severity, side, "InfiniBand", what, fix)
