"""What ranks exchange tensors by within a node, and whether adapters reach the GPUs' memory. Pure."""

from collections.abc import Iterator

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.planning.network_checks.situation import Side, Situation, tell

_MIB = 1 << 20
_LEAST_TOTAL = 512 * _MIB
_LEAST_FREE = 256 * _MIB
_GOOD_TOTAL = 1 << 30
_SEES_PEERMEM = (2, 23)  # NCCL looks for nvidia_peermem from this version on
_TRANSLATING = ("DMA", "DMA-FQ", "DMA-SQ")


def check_shm(case: Situation) -> Iterator[Finding]:
    """NCCL's segments among the GPUs of one node."""
    for side in case.sides:
        shm = side.network.shared_memory if side.network else None
        if shm is None or side.gpu_count <= 1:
            continue
        stale = f", {shm.own_nccl_files} nccl-* files of this user" if shm.own_nccl_files else ""
        free, total = shm.free_bytes // _MIB, shm.total_bytes // _MIB
        fix = "give the container --ipc=host or --shm-size=16g"
        if shm.own_nccl_files:
            fix = "remove /dev/shm/nccl-* while no engine of this user runs"
        what = f"{free} MiB are free of {total}{stale}"
        if shm.total_bytes < _LEAST_TOTAL or shm.free_bytes < _LEAST_FREE:
            yield tell("shm", Severity.ERROR, side, "shared memory", what, fix)
        elif shm.total_bytes < _GOOD_TOTAL:
            yield tell(
                "shm", Severity.WARNING, side, "shared memory", f"{what}; 1 GiB is usual", fix
            )
        elif shm.own_nccl_files:
            yield tell("shm", Severity.INFO, side, "shared memory", f"{what} that nobody uses", fix)


def check_gpudirect(case: Situation) -> Iterator[Finding]:
    """Adapters read GPU memory by a module, or by DMA-BUF, which shows nowhere."""
    if not case.wants_rdma:
        return
    for side in case.sides:
        level = side.get_setting("NCCL_NET_GDR_LEVEL")
        if level is not None and level[0].upper() in ("0", "LOC"):
            what = f"NCCL_NET_GDR_LEVEL={level[0]} ({level[1]}) keeps adapters from GPU memory: it costs bandwidth"
            fix = "a workaround for ACS or the IOMMU: put those right instead"
            yield tell("gdr", Severity.INFO, side, "GPUDirect", what, fix)
        peers = side.network.peer_memory if side.network else None
        if peers is None or (case.kind is None and not peers):
            continue
        is_new = any(name.startswith("nvidia_peermem") for name in peers)
        is_old = any(name.startswith("memory_peers/") for name in peers)
        if is_new and not is_old and case.is_nccl_before(*_SEES_PEERMEM):
            what = (
                "nvidia_peermem is loaded, and this NCCL does not look for it: GPUDirect stays off"
            )
            fix = "use NCCL 2.23 or newer"
            yield tell("gdr", Severity.WARNING, side, "GPUDirect", what, fix)
        elif not peers:
            what = "no nvidia_peermem is loaded: GPUDirect works by DMA-BUF or not at all"
            fix = "look for GDRDMA in NCCL's log (NCCL_DEBUG=INFO)"
            yield tell("gdr", Severity.INFO, side, "GPUDirect", what, fix)


def check_iommu(case: Situation) -> Iterator[Finding]:
    """On bare metal a translating IOMMU, and ACS with it, may let transfers between devices hang.

    ACS itself takes root to read. Virtual machines need it.
    """
    for side in case.sides:
        groups = side.network.iommu_groups if side.network else None
        if not groups or side.network is None or side.network.virtual_machine:
            continue
        count = sum(groups.get(kind, 0) for kind in _TRANSLATING)
        uses_peers = case.kind is not None or side.gpu_count > 1
        if count and uses_peers:
            what = f"the IOMMU translates ({count} groups) on bare metal: {_describe(side)} may hang or be slow"
            fix = "boot with iommu=pt and ACS off; NCCL_P2P_DISABLE=1 gets by without"
            yield tell("iommu-acs", Severity.WARNING, side, "IOMMU", what, fix)


def _describe(side: Side) -> str:
    return "GPUs over PCIe and GPUDirect" if side.chosen else "GPUs that exchange over PCIe"
