"""Libraries beside NCCL that choose adapters by themselves: UCX for the KV cache, NVSHMEM for experts. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.planning.network_checks.networks import find_network
from llmgw_core.planning.network_checks.situation import Side, Situation, tell

CODE = "sibling-stacks"
_KV_FLAGS = ("--kv-transfer-config", "--disaggregation-mode", "--disaggregation-transfer-backend")
_EXPERT_FLAGS = ("--all2all-backend", "--moe-a2a-backend", "--enable-deepep-moe")


def find_stacks(args: Sequence[str], env: Mapping[str, str]) -> tuple[bool, bool]:
    """(KV cache goes between engines, experts by DeepEP), by the engine's arguments and environment."""
    words = [word.replace("_", "-") for word in args]
    flags = {word.partition("=")[0] for word in words}
    text = " ".join([*words, env.get("VLLM_ALL2ALL_BACKEND", "").replace("_", "-")])
    kv = bool(flags & set(_KV_FLAGS))
    is_named = "VLLM_ALL2ALL_BACKEND" in env or bool(flags & set(_EXPERT_FLAGS[:2]))
    return kv, _EXPERT_FLAGS[2] in flags or (is_named and re.search("deepep", text) is not None)


def check_stacks(case: Situation) -> Iterator[Finding]:
    """Neither reads NCCL_*."""
    for side in case.sides:
        if case.wants_kv_transfer:
            yield from _check_kv(side)
        if case.wants_deepep:
            yield from _check_deepep(side)


def _check_kv(side: Side) -> Iterator[Finding]:
    if "UCX_NET_DEVICES" not in side.env:
        what = (
            "UCX does not read NCCL_IB_HCA: UCX_NET_DEVICES is not set, and it takes what it finds"
        )
        fix = "set it to the ports and the TCP interface: mlx5_0:1,eth0"
        yield tell(CODE, Severity.WARNING, side, "KV transfer", what, fix)
    networks = {find_network(side, port) for port in side.chosen} - {None}
    if len(networks) > 1:
        what = f"its adapters are in {len(networks)} networks: the KV engine has to address each by its own"
        fix = "check which address it binds for each adapter; one adapter avoids the question"
        yield tell(CODE, Severity.WARNING, side, "KV transfer", what, fix)


def _check_deepep(side: Side) -> Iterator[Finding]:
    if "NVSHMEM_HCA_LIST" not in side.env:
        what = "NVSHMEM reads none of NCCL_*: its adapters and GID index are not set"
        fix = (
            "set NVSHMEM_HCA_LIST with NVSHMEM_ENABLE_NIC_PE_MAPPING=1, and on RoCE "
            "NVSHMEM_IB_GID_INDEX or NVSHMEM_IB_ADDR_FAMILY and _RANGE"
        )
        yield tell(CODE, Severity.WARNING, side, "DeepEP", what, fix)
    if side.network is not None and side.network.container is not None:
        what = "in a container: DeepEP's low latency (IBGDA) needs more rights than NCCL"
        fix = "run it privileged, or use the normal mode"
        yield tell(CODE, Severity.WARNING, side, "DeepEP", what, fix)
