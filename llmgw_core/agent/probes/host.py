"""The machine under the node: /proc, uname and os-release. What cannot be read is None."""

import os
import re
from functools import lru_cache
from typing import Dict, Optional, Tuple

from llmgw_core.agent.probes.files import read_text
from llmgw_core.domain.hardware import Host


def read_host(proc_root: str = "/proc", etc_root: str = "/etc") -> Host:
    """The host now. Never fails."""
    uname = os.uname()
    total, available = parse_meminfo(_read(f"{proc_root}/meminfo"))
    return Host(
        hostname=uname.nodename or None,
        os=parse_os_release(_read_once(f"{etc_root}/os-release")),
        kernel=uname.release or None,
        machine=uname.machine or None,
        boot_id=_read_once(f"{proc_root}/sys/kernel/random/boot_id").strip() or None,
        uptime_seconds=parse_uptime(_read(f"{proc_root}/uptime")),
        cpu_count=os.cpu_count(),
        load_1m=_load_1m(),
        memory_total_bytes=total,
        memory_available_bytes=available,
    )


def parse_meminfo(text: str) -> Tuple[Optional[int], Optional[int]]:
    """(total, available) in bytes. Line: `MemTotal:       131841988 kB`. Source: proc(5)."""
    found: Dict[str, int] = {}
    for name, kib in re.findall(
        r"^(MemTotal|MemAvailable):\s+([0-9]{1,15}) kB", text, re.MULTILINE
    ):
        found[name] = int(kib) * 1024
    return found.get("MemTotal"), found.get("MemAvailable")


def parse_cpu_ticks(text: str) -> Optional[Tuple[int, int]]:
    """(busy, all) ticks of all CPUs since boot. Line: `cpu  2255 34 2290 22625563 6290 127 456 0 0 0`. Source: proc(5)."""
    match = re.match(r"cpu +((?:[0-9]{1,20} ){7}[0-9]{1,20})", text)
    if match is None:
        return None
    user, nice, system, idle, waiting, *rest = map(int, match.group(1).split())
    busy = user + nice + system + sum(rest)  # guests are counted as user
    return busy, busy + idle + waiting


def parse_uptime(text: str) -> Optional[int]:
    """Whole seconds since boot. Line: `350735.47 234388.90`. Source: proc(5)."""
    match = re.match(r"([0-9]{1,15})\.[0-9]+ ", text)
    return int(match.group(1)) if match else None


def parse_os_release(text: str) -> Optional[str]:
    """The name for people. Line: `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"`. Source: os-release(5)."""
    match = re.search(r"""^PRETTY_NAME=(["']?)(.*)\1\s*$""", text, re.MULTILINE)
    name = match.group(2).strip() if match else ""
    return re.sub(r"\\(.)", r"\1", name) or None


def _load_1m() -> Optional[float]:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


@lru_cache(maxsize=16)
def _read_once(path: str) -> str:
    # Neither changes while a process lives, and a watched host is read every second.
    return _read(path)


def _read(path: str) -> str:
    return read_text(path) or ""
