"""Checks of the network before a launch over several nodes: each a function of the situation to findings. Pure.

An error would hang or fail the launch; what llmgw itself has cured is told as information. The order is that in which
they decided over cases that people reported.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.planning.network_checks import (
    access,
    gids,
    memory,
    names,
    networks,
    ports,
    settings,
    stacks,
    versions,
)
from llmgw_core.planning.network_checks.situation import Situation


@dataclass(frozen=True)
class Check:
    """One check, what an operator calls it, and the codes of what it finds."""

    title: str
    codes: tuple[str, ...]
    find: Callable[[Situation], Iterator[Finding]]


CHECKS = (
    Check("common fabric", ("common-fabric", "active-probe"), ports.check_fabric),
    Check("nodes are different machines", ("common-fabric",), ports.check_twins),
    Check("adapters of each node", ("hca-per-node",), ports.check_names),
    Check("ports active", ("port-active",), ports.check_ports),
    Check("adapters of the fabric", ("nonfabric-hca", "link-layer-mixed"), ports.check_purpose),
    Check("environment and nccl.conf", ("env-conflict",), settings.check_environment),
    Check("RoCE addresses", ("gid-roce",), gids.check_gids),
    Check("KV transfer and DeepEP", ("sibling-stacks",), stacks.check_stacks),
    Check("RoCE networks", ("roce-subnet",), networks.check_subnets),
    Check("adapters can be opened", ("uverbs-access",), access.check_uverbs),
    Check("IOMMU and ACS", ("iommu-acs",), memory.check_iommu),
    Check("host names", ("hostname-loopback",), names.check_hostname),
    Check("locked memory", ("memlock",), access.check_memlock),
    Check("NCCL version", ("nccl-version",), versions.check_nccl),
    Check("shared memory", ("shm",), memory.check_shm),
    Check("MTU", ("mtu",), networks.check_mtu),
    Check("GPUDirect", ("gdr",), memory.check_gpudirect),
    Check("partitions", ("pkey",), ports.check_partitions),
    Check("verbs library", ("verbs-userland",), access.check_userland),
    Check("EFA plugin", ("efa-plugin",), access.check_efa),
    Check("one node", ("single-node",), access.check_single_node),
)
# What else is looked at: the choice of interfaces, and a try of every peer.
_MORE = (
    ("interface to the peers", ("boot-interface",)),
    ("peers reach each other", ("tcp-reach",)),
)


def run_checks(case: Situation) -> tuple[Finding, ...]:
    """What all checks find, in their order; nothing where all is as it should be."""
    return tuple(finding for check in CHECKS for finding in check.find(case))


def summarize_checks(findings: Iterable[Finding]) -> tuple[tuple[str, Severity | None], ...]:
    """(title, the worst that was found) of each check of a launch over several nodes; None: nothing but information."""
    found = list(findings)
    rows = [*_MORE, *((check.title, check.codes) for check in CHECKS[:-1])]
    return tuple((title, _find_worst(found, codes)) for title, codes in rows)


def _find_worst(findings: Iterable[Finding], codes: tuple[str, ...]) -> Severity | None:
    severities = {finding.severity for finding in findings if finding.code in codes}
    return next((one for one in (Severity.ERROR, Severity.WARNING) if one in severities), None)
