"""What the kernel log's errors mean for one GPU now. Pure."""

from typing import Dict, List, Optional, Sequence, Tuple

from llmgw_core.agent.probes.kernel_log import KernelLog
from llmgw_core.agent.probes.xids import XidEvent, is_recent
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import GpuHealth, GpuXid

# As Azure's node health checks have it. What is older and left the GPU answering has been dealt with.
RECENT_S = 2 * 3600.0
_DO = {
    "reset": "stop what uses the GPU, then `nvidia-smi --gpu-reset`, or reboot the node",
    "reboot": "reboot the node; if it comes back, have the GPU looked at",
    "check": "look at the kernel log and NVIDIA's Xid catalogue",
}


def collect_xids(log: Optional[KernelLog], bus_id: Optional[str]) -> Optional[Tuple[GpuXid, ...]]:
    """The GPU's errors since boot, by number; None where the kernel log cannot be read or the GPU has no address."""
    if log is None or not log.is_readable or bus_id is None:
        return None
    bus = bus_id.rpartition(".")[0]
    by_code: Dict[int, List[XidEvent]] = {}
    for event in log.events.xids:
        if event.bus == bus:
            by_code.setdefault(event.code, []).append(event)
    return tuple(_join(by_code[code]) for code in sorted(by_code))


def _join(events: Sequence[XidEvent]) -> GpuXid:
    """All events of one number: the worst verdict, the last line."""
    order = ("fatal", "warning", "application", "info")
    worst = min(events, key=lambda event: order.index(event.verdict))
    last = events[-1]
    return GpuXid(
        last.code, worst.verdict, worst.action, len(events), last.at, last.message or None
    )


def find_xid_health(xids: Sequence[GpuXid], now: Optional[float]) -> List[GpuHealth]:
    """Flags for errors that are the GPU's own: recent ones count in full, older ones are told."""
    found = []
    for xid in xids:
        is_new = now is None or is_recent(xid.last_at, now, RECENT_S)
        if xid.verdict == "fatal" and is_new:
            found.append(_flag("xid-fatal", Severity.ERROR, xid))
        elif xid.verdict == "fatal":
            found.append(_flag("xid-past", Severity.WARNING, xid))
        elif xid.verdict == "warning" and is_new:
            found.append(_flag("xid", Severity.WARNING, xid))
    return found


def _flag(code: str, severity: Severity, xid: GpuXid) -> GpuHealth:
    times = "" if xid.count == 1 else f", {xid.count} times"
    said = f" ({xid.message})" if xid.message else ""
    when = " more than two hours ago" if code == "xid-past" else ""
    return GpuHealth(code, severity, f"Xid {xid.code}{times}{when}{said}: {_DO[xid.action]}")
