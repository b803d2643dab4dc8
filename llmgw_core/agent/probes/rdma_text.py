"""What the text files of an RDMA port say. Pure; anything unexpected is None, never a zero that nobody wrote.

Source: drivers/infiniband/core/sysfs.c, Documentation/ABI/stable/sysfs-class-infiniband.
"""

import re
from typing import NamedTuple, Optional

_MAX_LMC = 7


class LinkRate(NamedTuple):
    """A port's rate as the kernel prints it."""

    gbps: Optional[float] = None
    width: Optional[int] = None  # lanes
    speed: Optional[str] = None  # "NDR"


def parse_state(text: Optional[str]) -> Optional[str]:
    """`4: ACTIVE` is "ACTIVE", `5: LinkUp` is "LinkUp"; None for anything of another form."""
    match = re.fullmatch(r"[0-9]{1,3}: ([\w<> -]{1,40})", first_line(text), re.ASCII)
    return match.group(1).strip() or None if match else None


def parse_rate(text: Optional[str]) -> LinkRate:
    """`400 Gb/sec (4X NDR)`; old kernels leave out SDR: `2.5 Gb/sec (1X)`.

    A speed that the kernel does not know prints as SDR: an NDR port on an old kernel reads `10 Gb/sec (4X)`.
    """
    match = re.fullmatch(
        r"([0-9]{1,6}(?:\.[0-9])?) Gb/sec \(([0-9]{1,2})X ?(\w*)\)", first_line(text), re.ASCII
    )
    if match is None:
        return LinkRate()
    return LinkRate(
        float(match.group(1)) or None, int(match.group(2)) or None, match.group(3) or "SDR"
    )


def parse_lid(text: Optional[str]) -> Optional[int]:
    """`0x1a` is 26. 0 and 0xffff mean that no subnet manager gave one: None."""
    match = re.fullmatch(r"0x([0-9a-fA-F]{1,8})", first_line(text))
    lid = int(match.group(1), 16) if match else 0
    return None if lid in (0, 0xFFFF) else lid


def parse_lmc(text: Optional[str]) -> Optional[int]:
    """`0` to `7`: how many low bits of the LID the port owns."""
    match = re.fullmatch(r"[0-9]{1,2}", first_line(text))
    return int(match.group(0)) if match and int(match.group(0)) <= _MAX_LMC else None


def parse_pkey(text: Optional[str]) -> Optional[str]:
    """`0xffff`, in lower case; None for an empty slot, which reads as 0."""
    match = re.fullmatch(r"0x[0-9a-fA-F]{4}", first_line(text))
    return match.group(0).lower() if match and int(match.group(0), 16) != 0 else None


def parse_guid(text: Optional[str]) -> Optional[str]:
    """`b859:9f03:00d4:1d48`; None when it is none, or zero as on a virtual function nobody has set up."""
    match = re.fullmatch(r"[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){3}", first_line(text))
    guid = match.group(0).lower() if match else ""
    return guid if guid.strip("0:") else None


def parse_word(text: Optional[str]) -> Optional[str]:
    """Free text of one line, as firmware versions and board names are; None when it is empty."""
    return first_line(text)[:128] or None


def parse_leading_number(text: Optional[str]) -> Optional[int]:
    """`1: CA` is 1, `-1` is -1; None when no number leads."""
    match = re.match(r"-?[0-9]{1,6}", text or "")
    return int(match.group(0)) if match else None


def first_line(text: Optional[str]) -> str:
    """The first line without blanks around it: some drivers write a second, empty one."""
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines else ""
