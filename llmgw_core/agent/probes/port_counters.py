"""Traffic and errors of RDMA ports, from counters read twice. Only while somebody watches, and of usable ports alone.

Counters of NVSwitch management functions answer EINVAL and write to the kernel log at each reading; those ports are never
usable. A file that refused is left alone for five minutes.
Source: Documentation/ABI/stable/sysfs-class-infiniband, drivers/infiniband/core/sysfs.c (widths: IBA PortCounters).
"""

import os
import time
from dataclasses import dataclass, field, replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.domain.hardware import Port

MIN_INTERVAL_S = 0.9  # a rate over less is mostly noise
ERRORS_INTERVAL_S = 10.0
REFUSED_S = 300.0
_MAX_DIGITS = 20  # 2^64 has as many
_BITS_PER_BYTE = 8
# Nothing carries more. A link carries its rate; twice that allows for a clock and a counter that are a little apart.
_MOST_GBPS = 10_000.0
_SLACK = 2.0
# (received, sent, bytes in one count). RoCE of some drivers has no `counters`, and counts under a name of its own; netdev
# statistics are not among these, for they know nothing of RDMA.
_TRAFFIC: Tuple[Tuple[Tuple[str, ...], Tuple[str, ...], int], ...] = (
    (("counters_ext/port_rcv_data_64",), ("counters_ext/port_xmit_data_64",), 4),
    (("counters/port_rcv_data",), ("counters/port_xmit_data",), 4),
    (("hw_counters/rx_bytes",), ("hw_counters/tx_bytes",), 1),
    (
        ("hw_counters/ip4InOctets", "hw_counters/ip6InOctets"),
        ("hw_counters/ip4OutOctets", "hw_counters/ip6OutOctets"),
        1,
    ),
)
# Name: bits that it has where it stops at its end, which then tells nothing any more; None: 64.
_ERRORS: Mapping[str, Optional[int]] = {
    "counters/symbol_error": 16,
    "counters/link_error_recovery": 8,
    "counters/link_downed": 8,
    "counters/port_rcv_errors": 16,
    "counters/port_rcv_remote_physical_errors": 16,
    "counters/port_xmit_discards": 16,
    "counters/port_xmit_constraint_errors": 8,
    "counters/port_rcv_constraint_errors": 8,
    "counters/local_link_integrity_errors": 4,
    "counters/excessive_buffer_overrun_errors": 4,
    "hw_counters/out_of_buffer": None,
    "hw_counters/out_of_sequence": None,
    "hw_counters/packet_seq_err": None,
    "hw_counters/local_ack_timeout_err": None,
    "hw_counters/rnr_nak_retry_err": None,
    "hw_counters/rx_icrc_encapsulated": None,
}
_TRAFFIC_BITS = 32  # of the old `port_*_data`

PortKey = Tuple[str, int]  # (HCA, port)


@dataclass(frozen=True)
class PortRates:
    """What a port carries now. None: not known."""

    rx_gbps: Optional[float] = None
    tx_gbps: Optional[float] = None
    error_rates: Optional[Dict[str, float]] = None  # per second, of those that counted


@dataclass
class _Seen:
    """What is known of one port's counters."""

    source: Optional[int] = None  # which of _TRAFFIC
    traffic: Optional[Tuple[float, int, int]] = None  # monotonic, bytes received, bytes sent
    errors: Mapping[str, int] = field(default_factory=dict)
    errors_at: Optional[float] = None  # monotonic
    refused: Dict[str, float] = field(default_factory=dict)  # path: monotonic, when to ask again
    rates: PortRates = field(default_factory=PortRates)


class PortCounters:
    """Reads counters again and again and keeps the last value of each. One reading at a time; `read` may block."""

    def __init__(self, sysfs_root: str) -> None:
        self._root = f"{sysfs_root}/class/infiniband"
        self._seen: Dict[PortKey, _Seen] = {}

    def read(self, ports: Sequence[Port]) -> Dict[PortKey, PortRates]:
        """The rates of the usable ones among these since the last reading. Never fails.

        The first reading gives none; nor does one in which a counter went back, or leapt beyond what the link carries.
        """
        chosen = {(port.hca, port.port): port for port in ports if port.usable and not port.vf}
        seen = self._seen = {key: self._seen.get(key) or _Seen() for key in chosen}
        for key, port in chosen.items():
            self._read_port(seen[key], port)
        return {key: of_port.rates for key, of_port in seen.items()}

    def _read_port(self, seen: _Seen, port: Port) -> None:
        folder = f"{self._root}/{port.hca}/ports/{port.port}"
        now = time.monotonic()
        if seen.traffic is None or now - seen.traffic[0] >= MIN_INTERVAL_S:
            before, seen.traffic = seen.traffic, _read_traffic(seen, folder)
            rx, tx = compare_traffic(before, seen.traffic, port.rate_gbps)
            seen.rates = replace(seen.rates, rx_gbps=rx, tx_gbps=tx)
        if seen.errors_at is None or now - seen.errors_at >= ERRORS_INTERVAL_S:
            errors = _read_errors(seen, folder)
            seconds = None if seen.errors_at is None else now - seen.errors_at
            rates = compare_errors(seen.errors, errors, seconds)
            seen.errors, seen.errors_at = errors, now
            seen.rates = replace(seen.rates, error_rates=rates)


def lay_rates(ports: Sequence[Port], rates: Mapping[PortKey, PortRates]) -> Tuple[Port, ...]:
    """The ports with what they carry."""
    found = ((port, rates.get((port.hca, port.port))) for port in ports)
    return tuple(
        port
        if now is None
        else replace(port, rx_gbps=now.rx_gbps, tx_gbps=now.tx_gbps, error_rates=now.error_rates)
        for port, now in found
    )


def compare_traffic(
    before: Optional[Tuple[float, int, int]],
    now: Optional[Tuple[float, int, int]],
    rate_gbps: Optional[float],
) -> Tuple[Optional[float], Optional[float]]:
    """(Gb/s received, sent) between two readings of (monotonic, bytes received, bytes sent). Pure."""
    if before is None or now is None or now[0] <= before[0]:
        return None, None
    seconds = now[0] - before[0]
    most = _SLACK * rate_gbps if rate_gbps else _MOST_GBPS
    return (
        _rate(now[1] - before[1], seconds, most),
        _rate(now[2] - before[2], seconds, most),
    )


def _rate(count: int, seconds: float, most: float) -> Optional[float]:
    """A counter that went back was reset or has wrapped: the interval tells nothing."""
    gbps = count * _BITS_PER_BYTE / 1e9 / seconds
    return round(gbps, 3) if 0 <= gbps <= most else None


def compare_errors(
    before: Mapping[str, int], now: Mapping[str, int], seconds: Optional[float]
) -> Optional[Dict[str, float]]:
    """Errors per second by counter, of those that counted; None when no counter could be compared. Pure."""
    common = [name for name in now if name in before and now[name] >= before[name]]
    if not seconds or not common:
        return None
    counted = {name: now[name] - before[name] for name in common}
    return {name: round(count / seconds, 3) for name, count in counted.items() if count}


def _read_traffic(seen: _Seen, folder: str) -> Optional[Tuple[float, int, int]]:
    """(monotonic, bytes received, bytes sent) of the first source that speaks, and of that one from then on."""
    sources = range(len(_TRAFFIC)) if seen.source is None else (seen.source,)
    for source in sources:
        received, sent, unit = _TRAFFIC[source]
        at = time.monotonic()
        counts = [_sum(seen, folder, names) for names in (received, sent)]
        if counts[0] is not None and counts[1] is not None:
            seen.source = source
            return at, counts[0] * unit, counts[1] * unit
    return None


def _sum(seen: _Seen, folder: str, names: Sequence[str]) -> Optional[int]:
    total = 0
    for name in names:
        count = _read_count(seen, folder, name)
        if count is None or (name.startswith("counters/") and count == _end_of(_TRAFFIC_BITS)):
            return None  # one that stands at its end would read as no traffic
        total += count
    return total


def _read_errors(seen: _Seen, folder: str) -> Dict[str, int]:
    """Count by name, of those that can be read and do not stand at their end."""
    found = {}
    for name, bits in _ERRORS.items():
        count = _read_count(seen, folder, name)
        if count is not None and (bits is None or count != _end_of(bits)):
            found[name.partition("/")[2]] = count
    return found


def _end_of(bits: int) -> int:
    return (1 << bits) - 1


def _read_count(seen: _Seen, folder: str, name: str) -> Optional[int]:
    """The counter; None where there is none. `hw_counters` are the port's, or the device's."""
    paths: List[str] = [f"{folder}/{name}"]
    if name.startswith("hw_counters/"):
        paths.append(f"{folder}/../../{name}")
    for path in paths:
        now = time.monotonic()
        if now >= seen.refused.get(path, now):
            count = parse_count(_read(path))
            if count is not None:
                return count
            seen.refused[path] = now + REFUSED_S
    return None


def parse_count(text: Optional[str]) -> Optional[int]:
    """The number; None for `N/A (no PMA)`, which old kernels print, and for whatever else is none."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _MAX_DIGITS else None


def _read(path: str) -> Optional[str]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 64).decode("ascii", "replace")
    except OSError:
        return None
    finally:
        os.close(fd)
