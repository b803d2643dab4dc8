"""What slows a GPU's clocks, from the driver's bit mask. Pure.

Source: nvml.h, nvmlClocksEventReasons.
"""

import re
from typing import Optional, Tuple

_REASONS: Tuple[Tuple[int, str], ...] = (
    (0x1, "idle"),
    (0x2, "application-clocks"),
    (0x4, "sw-power-cap"),
    (0x8, "hw-slowdown"),
    (0x10, "sync-boost"),
    (0x20, "sw-thermal"),
    (0x40, "hw-thermal"),
    (0x80, "hw-power-brake"),
    (0x100, "display-clocks"),
    (0x200, "board-limit"),
    (0x400, "reliability"),
)
# The others are ordinary: an idle card rests, and one under load meets its power limit.
_WORRYING = frozenset({"hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake"})
_ADVICE = (
    (
        "hw-power-brake",
        "its power supply asks for less: look at the machine's power supplies and cables",
    ),
    ("hw-thermal", "it is too hot: look at fans, air flow and room temperature"),
    ("sw-thermal", "it is too warm: look at fans, air flow and room temperature"),
    ("hw-slowdown", "it is too hot, or power is short: look at cooling and power supplies"),
)


def parse_throttle_mask(text: Optional[str]) -> Tuple[str, ...]:
    """The reasons a mask stands for, e.g. `0x0000000000000048`; empty when there is none, or it is no mask."""
    if text is None or not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text):
        return ()
    mask = int(text, 16)
    return tuple(name for bit, name in _REASONS if mask & bit)


def explain_throttling(reasons: Tuple[str, ...]) -> Optional[str]:
    """What is wrong and what to do; None when the reasons are ordinary ones."""
    worrying = [reason for reason in reasons if reason in _WORRYING]
    if not worrying:
        return None
    advice = next(text for name, text in _ADVICE if name in worrying)
    return f"its clocks are held down ({', '.join(worrying)}): {advice}"
