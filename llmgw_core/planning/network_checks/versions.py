"""NCCL's version: equal everywhere, and not one that stumbles over these adapters. Pure."""

import re
from collections.abc import Iterator

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import PortKind
from llmgw_core.planning.fabric_verdicts import label
from llmgw_core.planning.network_checks.situation import Side, Situation, join, tell

CODE = "nccl-version"
_READS_LINK_LAYER = (2, 12, 12)  # before, RoCE was told by a LID of 0
_BY_MELLANOX = re.compile(r"MT\d+")


def find_nccl(packages: dict[str, str] | None) -> tuple[int, ...] | None:
    """The version among installed packages; None: there is none, or two that differ."""
    found = {
        version
        for name, version in (packages or {}).items()
        if re.fullmatch(r"(nvidia-)?nccl(-cu\d+)?", name)
    }
    match = re.match(r"\d+(\.\d+){1,3}", found.pop()) if len(found) == 1 else None
    return tuple(int(part) for part in match.group().split(".")) if match else None


def check_nccl(case: Situation) -> Iterator[Finding]:
    """Compared by what is installed in the engine's environment on each node."""
    if case.is_single:
        return
    versions: dict[str, list[str]] = {}
    for side in case.sides:
        found = find_nccl(side.network.packages if side.network else None)
        if found is not None:
            versions.setdefault(".".join(map(str, found)), []).append(side.name)
    if len(versions) > 1:
        told = "; ".join(f"{version} on {join(names)}" for version, names in versions.items())
        what = f"NCCL differs: {told}"
        yield tell(CODE, Severity.WARNING, None, "NCCL", what, "install one version on all nodes")
    for side in case.sides:
        yield from _check_gates(case, side)


def _check_gates(case: Situation, side: Side) -> Iterator[Finding]:
    foreign = [
        label(port)
        for port in side.chosen
        if port.kind is PortKind.ROCE and not _BY_MELLANOX.fullmatch(port.model or "")
    ]
    if foreign and case.is_nccl_before(*_READS_LINK_LAYER):
        what = f"this NCCL takes a RoCE port with a LID for InfiniBand, as irdma's are: {join(foreign)}"
        yield tell(CODE, Severity.WARNING, side, "NCCL", what, "use NCCL 2.13 or newer")
