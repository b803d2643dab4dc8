"""Variables and files that speak against the plan: NCCL takes what it finds, and says nothing. Pure."""

from collections.abc import Iterator, Sequence

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import PortKind
from llmgw_core.planning.fabric_verdicts import label
from llmgw_core.planning.hca_filter import parse_hca_filter
from llmgw_core.planning.interfaces import CODE as INTERFACE
from llmgw_core.planning.network_checks.situation import Side, Situation, join, tell

CODE = "env-conflict"
_HARMLESS = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_TOPO_DUMP_FILE")
# What every rank must have, or none: one side alone makes the others wait for ever.
_SHARED = (
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "NCCL_NET",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
)
_SHORTEST = 2  # NCCL takes a shorter interface list for none


def check_environment(case: Situation) -> Iterator[Finding]:
    """All of it, node by node, then between nodes."""
    if case.is_single:
        return
    for side in case.sides:
        for name, value, where in side.list_settings():
            text = f"{name}={value} ({where})"
            if name == "NCCL_IB_HCA":
                yield from _judge_hca(side, value, text)
            elif name == "NCCL_SOCKET_IFNAME":
                yield from _judge_interfaces(side, value, text)
            elif name == "GLOO_SOCKET_IFNAME":
                yield from _judge_gloo(side, value, text)
            elif case.kind is not None:
                yield from _judge_network(side, name, value, text)
        yield from _judge_cards(side)
        yield from _tell_login(side)
    yield from _compare_files(case.sides)
    yield from _compare_ranks(case.sides)
    yield from _tell_efa(case.sides)


def _judge_hca(side: Side, value: str, text: str) -> Iterator[Finding]:
    """Every token has to match, and all together exactly the chosen ports."""
    parsed = parse_hca_filter(value)
    fix = "leave it out: llmgw writes each node's own list"
    if not parsed.is_negated:
        for name, number in parsed.entries:
            single = parse_hca_filter(f"{'=' if parsed.is_exact else ''}{name}")
            if not any(
                single.selects(port.hca, port.port) and number in (None, port.port)
                for port in side.ports
            ):
                told = f"{name}:{number}" if number is not None else name
                what = f"{text}: {told} matches no adapter here"
                yield tell(CODE, Severity.ERROR, side, "NCCL_IB_HCA", what, fix)
    able = [
        port
        for port in side.ports
        if port.state in (None, "ACTIVE") and port.kind in (PortKind.INFINIBAND, PortKind.ROCE)
    ]
    taken = [port for port in able if parsed.selects(port.hca, port.port)]
    wrong = [label(port) for port in taken if port not in side.chosen]
    missing = [label(port) for port in side.chosen if port not in taken]
    if side.chosen and (wrong or missing):
        parts = [f"takes {join(wrong)} too"] * bool(wrong) + [f"lacks {join(missing)}"] * bool(
            missing
        )
        why = "" if parsed.is_exact or not wrong else "; without = each name is a prefix"
        what = f"{text} {' and '.join(parts)}{why}"
        yield tell(CODE, Severity.ERROR, side, "NCCL_IB_HCA", what, fix)
    elif side.chosen and not parsed.is_exact:
        what = f"{text}: names are prefixes without =, right today by chance"
        yield tell(CODE, Severity.WARNING, side, "NCCL_IB_HCA", what, fix)


def _judge_interfaces(side: Side, value: str, text: str) -> Iterator[Finding]:
    if len(value) < _SHORTEST or not side.list_interfaces():
        return
    taken = match_interfaces(side, value)
    chosen = side.interface.interface if side.interface else None
    fix = "leave it out: llmgw names each node's own interface"
    if not taken:
        what = f"{text}: no running interface here matches"
        yield tell(INTERFACE, Severity.ERROR, side, "NCCL_SOCKET_IFNAME", what, fix)
    elif chosen is not None and chosen not in taken:
        what = f"{text} takes {join(taken)}; {chosen} is what leads to the other nodes"
        yield tell(CODE, Severity.ERROR, side, "NCCL_SOCKET_IFNAME", what, fix)
    elif len(taken) > 1:
        what = f"{text} takes {join(taken)}: names are prefixes without ="
        yield tell(CODE, Severity.WARNING, side, "NCCL_SOCKET_IFNAME", what, fix)


def match_interfaces(side: Side, value: str) -> list[str]:
    """The running interfaces that NCCL would take by that list."""
    is_negated = value.startswith("^")
    rest = value[1:] if is_negated else value
    is_exact = rest.startswith("=")
    names = [word for word in (rest[1:] if is_exact else rest).split(",") if word]
    return [
        item.name
        for item in side.list_interfaces()
        if item.running
        and item.addresses
        and any(item.name == word if is_exact else item.name.startswith(word) for word in names)
        != is_negated
    ]


def _judge_gloo(side: Side, value: str, text: str) -> Iterator[Finding]:
    fix = "write interfaces as they are called, or leave it out"
    words = value.split(",")
    if any(word.startswith(("^", "=")) for word in words):
        what = f"{text}: it takes names as they are, ^ and = are not understood"
        yield tell(CODE, Severity.ERROR, side, "GLOO_SOCKET_IFNAME", what, fix)
        return
    known = {item.name for item in side.list_interfaces()}
    unknown = [word for word in words if word not in known]
    if known and unknown:
        what = f"{text}: there is no interface {join(unknown)} here"
        yield tell(INTERFACE, Severity.ERROR, side, "GLOO_SOCKET_IFNAME", what, fix)


def _judge_network(side: Side, name: str, value: str, text: str) -> Iterator[Finding]:
    is_off = name == "NCCL_IB_DISABLE" and value not in ("", "0")
    is_other = name == "NCCL_NET" and value.lower() not in ("", "ib")
    if is_off or is_other:
        what = f"{text}, while the plan uses {side.chosen[0].kind.value if side.chosen else 'RDMA'}"
        fix = "leave it out, or ask for plain TCP by name"
        yield tell(CODE, Severity.ERROR, side, name, what, fix)


def _judge_cards(side: Side) -> Iterator[Finding]:
    """Rails are told apart by port number, and two functions of one card both have number 1."""
    value = side.get_setting("NCCL_CROSS_NIC")
    if side.env.get("NCCL_CROSS_NIC", value[0] if value else "") != "0":
        return
    cards: dict[str, list[str]] = {}
    for port in side.chosen:
        if port.system_image_guid:
            cards.setdefault(port.system_image_guid, []).append(label(port))
    twins = next((ports for ports in cards.values() if len(ports) > 1), None)
    if twins:
        what = f"NCCL_CROSS_NIC=0 does not keep {' and '.join(twins)} apart: they are one card"
        fix = "use one of them, by exclude_ports in cluster.toml, or let rails reach one another"
        yield tell(CODE, Severity.WARNING, side, "NCCL_CROSS_NIC", what, fix)


def _tell_login(side: Side) -> Iterator[Finding]:
    """Engines get none of the agent's environment but a few names, so these do nothing; somebody may expect them to."""
    found = (side.network.environment if side.network else None) or {}
    names = [name for name in found if name not in side.env and name not in _HARMLESS]
    if names:
        what = f"the login there sets {join(names)}: llmgw does not pass that on to engines"
        fix = "put what you mean into the request's env"
        yield tell(CODE, Severity.INFO, side, "login", what, fix)


def _compare_files(sides: Sequence[Side]) -> Iterator[Finding]:
    found = {
        side.name: {
            name: value
            for name, value, _ in side.list_settings()
            if name not in side.asked and name not in _HARMLESS
        }
        for side in sides
    }
    is_equal = len({tuple(sorted(own.items())) for own in found.values()}) == 1
    for side in sides:
        own = found[side.name]
        if not own:
            continue
        paths = {where for name, _, where in side.list_settings() if name in own}
        what = (
            f"{join(sorted(paths))} sets {join(list(own))}, which fills what the plan leaves unset"
        )
        if is_equal:
            yield tell(CODE, Severity.INFO, side, "NCCL's file", f"{what}; all nodes alike")
            continue
        others = [other for other in sides if found[other.name] != own]
        what = f"{what}; {join([other.name for other in others])} does not have the same"
        fix = "make the file the same on all nodes, or remove it"
        yield tell(CODE, Severity.WARNING, side, "NCCL's file", what, fix)


def _compare_ranks(sides: Sequence[Side]) -> Iterator[Finding]:
    for name in _SHARED:
        lacking = [side.name for side in sides if name not in side.env]
        if lacking and len(lacking) < len(sides):
            what = f"{name} is set for some ranks and not on {join(lacking)}"
            fix = "every rank's process must have it: set it for all, or for none"
            yield tell(CODE, Severity.ERROR, None, name, what, fix)


def _tell_efa(sides: Sequence[Side]) -> Iterator[Finding]:
    for side in sides:
        if any(port.kind is PortKind.EFA for port in side.ports):
            what = "it has EFA adapters, on which NCCL_IB_* have no effect"
            yield tell(CODE, Severity.INFO, side, "EFA", what)
