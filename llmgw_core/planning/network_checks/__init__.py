"""Checks of the network before a launch over several nodes: each a function of the situation to findings. Pure.

An error would hang or fail the launch; what llmgw itself has cured is told as information. The order is that in which
they decided over cases that people reported.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from llmgw_core.domain.findings import Finding
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

Check = Callable[[Situation], Iterator[Finding]]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("common fabric", ports.check_fabric),
    ("nodes are different machines", ports.check_twins),
    ("adapters of each node", ports.check_names),
    ("ports active", ports.check_ports),
    ("adapters of the fabric", ports.check_purpose),
    ("environment and nccl.conf", settings.check_environment),
    ("RoCE addresses", gids.check_gids),
    ("KV transfer and DeepEP", stacks.check_stacks),
    ("RoCE networks", networks.check_subnets),
    ("adapters can be opened", access.check_uverbs),
    ("IOMMU and ACS", memory.check_iommu),
    ("host names", names.check_hostname),
    ("locked memory", access.check_memlock),
    ("NCCL version", versions.check_nccl),
    ("shared memory", memory.check_shm),
    ("MTU", networks.check_mtu),
    ("GPUDirect", memory.check_gpudirect),
    ("partitions", ports.check_partitions),
    ("verbs library", access.check_userland),
    ("EFA plugin", access.check_efa),
    ("one node", access.check_single_node),
)


@dataclass(frozen=True)
class CheckResult:
    """What one check found; nothing is what it should be."""

    title: str
    findings: tuple[Finding, ...]


def run_checks(case: Situation) -> tuple[CheckResult, ...]:
    """Every check in order."""
    return tuple(CheckResult(title, tuple(check(case))) for title, check in CHECKS)
