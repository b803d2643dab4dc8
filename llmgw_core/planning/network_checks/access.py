"""Whether an engine here may use the adapters: device files, locked memory, libraries, plugins. Pure."""

import re
from collections.abc import Iterator

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.network import UNLIMITED
from llmgw_core.planning.fabric_verdicts import label
from llmgw_core.planning.network_checks.situation import Situation, join, tell

_MIB = 1 << 20
_LITTLE_MEMLOCK = 1 << 30
_PROVIDERS = ("mlx5", "mlx4", "bnxt_re", "irdma", "erdma", "efa", "hns", "qedr", "mana", "ionic")
_OLD_MODELS = ("MT4099", "MT4100", "MT4103")  # ConnectX-3, which mlx4 drives


def check_uverbs(case: Situation) -> Iterator[Finding]:
    """Each adapter has to be opened; a container or a cgroup may withhold it."""
    if not case.wants_rdma:
        return
    counts = {side.able_count for side in case.sides}
    for side in case.sides:
        shut = {
            f"{port.uverbs or port.hca} ({port.uverbs_access})"
            for port in side.ports
            if port.uverbs_access not in (None, "ok")
        }
        if not shut:
            continue
        # With as many left as on every other node the launch works, if slower.
        is_enough = bool(side.chosen) and len(counts) == 1
        what = f"cannot be opened: {join(sorted(shut))}"
        fix = "give this user /dev/infiniband, a container also --device and CAP_IPC_LOCK"
        severity = Severity.WARNING if is_enough else Severity.ERROR
        yield tell("uverbs-access", severity, side, "adapters", what, fix)


def check_memlock(case: Situation) -> Iterator[Finding]:
    """Verbs lock all memory that adapters reach."""
    if not case.wants_rdma or case.kind is None:
        return
    for side in case.sides:
        limit = side.network.memlock if side.network else None
        may_lock = side.network.may_lock_memory if side.network else None
        if limit is None or limit.soft == UNLIMITED or may_lock:
            continue
        what = f"a process there may lock {_mib(limit.soft)}: verbs need it unlimited"
        if limit.hard == UNLIMITED:
            what += "; its hard limit is"
        is_box = side.network is not None and side.network.container is not None
        fix = (
            "start the container with --ulimit memlock=-1"
            if is_box
            else "set memlock unlimited in /etc/security/limits.d (or LimitMEMLOCK), then let llmgw's agent start anew: llmgw agent"
        )
        severity = Severity.ERROR if limit.soft < _LITTLE_MEMLOCK else Severity.WARNING
        yield tell("memlock", severity, side, "memlock", what, fix)


def check_userland(case: Situation) -> Iterator[Finding]:
    """NCCL loads libibverbs by name, and that the driver of each adapter."""
    if not case.wants_rdma or case.kind is None:
        return
    for side in case.sides:
        if side.network is None or side.network.verbs_library is None:
            continue
        if not side.network.verbs_library:
            what = "libibverbs.so.1 is not installed: NCCL would see no adapter"
            fix = "install rdma-core (libibverbs1, ibverbs-providers)"
            yield tell("verbs-userland", Severity.ERROR, side, "verbs", what, fix)
            continue
        wanted = {name for port in side.chosen or side.ports if (name := find_provider(port))}
        missing = sorted(wanted - set(side.network.verbs_providers or ()))
        if missing:
            what = f"the verbs library has no driver for {join(missing)}"
            fix = "install ibverbs-providers (rdma-core) where the engine runs"
            yield tell("verbs-userland", Severity.ERROR, side, "verbs", what, fix)


def find_provider(port: Port) -> str | None:
    """Which driver of libibverbs the adapter needs, by its model or its name; None: not known."""
    if port.model in _OLD_MODELS:
        return "mlx4"
    if re.fullmatch(r"MT4\d+", port.model or ""):
        return "mlx5"
    return next((name for name in _PROVIDERS if port.hca.startswith(name)), None)


def check_efa(case: Situation) -> Iterator[Finding]:
    """EFA speaks to NCCL by a plugin alone; without it all goes by TCP, in silence."""
    for side in case.sides:
        plugins = side.network.net_plugins if side.network else None
        if plugins is None:
            continue
        is_there = any("ofi" in name for name in plugins)
        has_efa = any(port.kind is PortKind.EFA for port in side.ports)
        if has_efa and not is_there and not case.is_single:
            what = "it has EFA, and no OFI plugin for NCCL: it would run over TCP"
            fix = "install aws-ofi-nccl, or ask for plain TCP by name"
            severity = Severity.ERROR if case.wants_rdma else Severity.INFO
            yield tell("efa-plugin", severity, side, "EFA", what, fix)
        elif is_there and not has_efa:
            what = "the OFI plugin is installed and there is no EFA: it warns, and does nothing"
            yield tell("efa-plugin", Severity.INFO, side, "EFA", what, "NCCL_NET_PLUGIN=none")


def check_single_node(case: Situation) -> Iterator[Finding]:
    """One node needs no network, but NCCL looks at every adapter it finds."""
    if not case.is_single:
        return
    for side in case.sides:
        broken = [label(port) for port in side.ports if port.excluded and port.state == "ACTIVE"]
        if broken:
            what = f"one node needs no network and no such variable is set; {join(broken)} could not be used"
            fix = "if NCCL stumbles over them: NCCL_IB_DISABLE=1"
            yield tell("single-node", Severity.INFO, side, "adapters", what, fix)


def _mib(count: int) -> str:
    return f"{count // _MIB} MiB" if count >= _MIB else f"{count} bytes"
