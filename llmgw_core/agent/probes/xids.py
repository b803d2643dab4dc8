"""NVIDIA's Xid errors in the kernel log, and what each calls for. Pure.

Source: NVIDIA's Xid catalogue, docs.nvidia.com/deploy/xid-errors.
"""

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

_RESET = frozenset({46, 48, 62, 64, 74, 95, 110, 119, 120, 136, 140, 143, 155, 156, 158})
_RESTART_APPLICATION = frozenset({8, 11, 13, 25, 31, 32, 39, 40, 41, 45, 60, 68, 69, 94})
_HARMLESS = frozenset({37, 38, 43, 44, 63, 66, 67, 92, 93, 121, 137, 141, 160, 161})
_NVLINK = frozenset(range(144, 151))
_OFF_THE_BUS, _POWER_CABLE, _RECOVERY_CHANGED = 79, 54, 154
_MAX_LINE_CHARS = 200

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.\d)?\): (\d{1,4})\b[, ]*(.*)",
    re.IGNORECASE,
)
_ADDRESS = r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.\d"
_OFF_BUS = re.compile(rf"NVRM:.*?GPU {_ADDRESS}:? GPU has fallen off the bus", re.IGNORECASE)
_OFF_BUS_HEAD = re.compile(rf"NVRM: The NVIDIA GPU {_ADDRESS}", re.IGNORECASE)
_OFF_BUS_TAIL = re.compile(r"NVRM: fallen off the bus", re.IGNORECASE)
_INIT_FAILED = re.compile(rf"NVRM: GPU {_ADDRESS}: RmInitAdapter failed", re.IGNORECASE)
_LINES_OF_ONE_MESSAGE = 3

_KMSG_TIME = re.compile(r"\d{1,6},\d{1,18},(\d{1,18}),")
_DMESG_TIME = re.compile(r"\[\s*(\d{1,12}\.\d{1,6})\]")
_UNIX_TIME = re.compile(r"(\d{9,11}\.\d{1,9}) ")
_ISO_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d)")


class XidEvent(NamedTuple):
    """One error line about one GPU."""

    bus: str  # "0000:04:00": domain, bus, device
    code: int
    verdict: str  # see GpuXid
    action: str
    message: str
    at: Optional[float] = None  # UTC epoch seconds


class KernelEvents(NamedTuple):
    """What a kernel log says of NVIDIA GPUs. Buses are "0000:04:00"."""

    xids: Tuple[XidEvent, ...] = ()
    off_bus: Tuple[str, ...] = ()  # fell off the bus, also where no Xid says so
    init_failed: Tuple[str, ...] = ()  # the driver could not start them


def judge_xid(code: int, message: str = "") -> Tuple[str, str]:
    """(verdict, action) of an Xid, as `GpuXid` has them.

    Of 144 to 150 the line's own word decides; 154 tells what the driver now asks for.
    """
    if code in _NVLINK:
        return (
            ("fatal", "reset")
            if re.search(r"\bfatal\b", message, re.IGNORECASE)
            else ("warning", "check")
        )
    if code == _RECOVERY_CHANGED:
        is_cleared = re.search(r"to\s+\S+\s+\(None\)", message) is not None
        return ("info", "none") if is_cleared else ("fatal", "reset")
    if code == _OFF_THE_BUS:
        return "fatal", "reboot"
    if code in _RESET:
        return "fatal", "reset"
    if code in _RESTART_APPLICATION:
        return "application", "restart-application"
    if code in _HARMLESS:
        return "info", "none"
    # 109 stands for an application's hang in one list and for a reset in another; the rest is not known here.
    return "warning", "check"


def parse_kernel_log(text: str, boot_epoch: Optional[float] = None) -> KernelEvents:
    """The events of a kernel log, oldest first, in any of the forms that kmsg, dmesg and journalctl print.

    Lines: `3,2381,5210034,-;NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', …`,
    `[ 5210.034567] NVRM: Xid (0000:03:00): 14, Channel …`, `2026-01-01T00:00:00+0000 node kernel: NVRM: …`.

    Args:
        boot_epoch: UTC epoch seconds of boot, for forms that count from it.
    """
    xids: List[XidEvent] = []
    off_bus: Dict[str, bool] = {}
    init_failed: Dict[str, bool] = {}
    lines = [line for line in text.split("\n") if "NVRM" in line]
    for number, line in enumerate(lines):
        match = _XID.search(line)
        if match is not None:
            xids.append(_build_event(match, _read_time(line, boot_epoch)))
        for found in _OFF_BUS.findall(line):
            off_bus[normalize_bus(found)] = True
        head = _OFF_BUS_HEAD.search(line)
        rest = lines[number : number + _LINES_OF_ONE_MESSAGE]
        if head is not None and any(_OFF_BUS_TAIL.search(item) for item in rest):
            off_bus[normalize_bus(head.group(1))] = True
        for found in _INIT_FAILED.findall(line):
            init_failed[normalize_bus(found)] = True
    return KernelEvents(tuple(xids), tuple(off_bus), tuple(init_failed))


def _build_event(match: "re.Match[str]", at: Optional[float]) -> XidEvent:
    bus, code, rest = match.groups()
    message = "".join(char if char.isprintable() else "?" for char in rest[:_MAX_LINE_CHARS])
    verdict, action = judge_xid(int(code), rest)
    return XidEvent(normalize_bus(bus), int(code), verdict, action, message.strip(), at)


def normalize_bus(text: str) -> str:
    """`00000009:01:00` as `0009:01:00`."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _read_time(line: str, boot_epoch: Optional[float]) -> Optional[float]:
    unix = _UNIX_TIME.match(line)
    if unix is not None:
        return float(unix.group(1))
    iso = _ISO_TIME.match(line)
    if iso is not None:
        return _parse_iso(*iso.groups())
    if boot_epoch is None:
        return None
    kmsg = _KMSG_TIME.match(line)
    if kmsg is not None:
        return boot_epoch + int(kmsg.group(1)) / 1e6
    dmesg = _DMESG_TIME.search(line)
    return None if dmesg is None else boot_epoch + float(dmesg.group(1))


def _parse_iso(text: str, zone: str) -> Optional[float]:
    from datetime import datetime  # costs, and only one form of log needs it

    zone = "+0000" if zone == "Z" else zone.replace(":", "")
    try:
        return datetime.strptime(text + zone, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except (ValueError, OverflowError):
        return None


def is_recent(event_at: Optional[float], now: float, window_s: float) -> bool:
    """Whether it happened within the window; what has no time counts as recent."""
    return event_at is None or now - event_at <= window_s
