"""A reading's last minutes as a line of small bars. Pure."""

from collections.abc import Sequence

from llmgw_core.domain.inventory import NodeView
from llmgw_tui.present.detail import fact
from llmgw_tui.present.text import Line, Tone, line, span
from llmgw_tui.present.units import format_age

SPARK_CELLS = 44
_BARS = "▁▂▃▄▅▆▇█"
_BLANK = "·"

Wanted = tuple[
    str, str, float | None, str
]  # label, reading, top of the scale (None: its own highest), unit


def spark(values: Sequence[float | None], top: float, cells: int = SPARK_CELLS) -> str:
    """One bar a cell, each the mean of its part of the values; `·` where none is known. Never wider than the values.

    Args:
        top: what a full bar stands for; more is drawn as full.
    """
    count = min(cells, len(values))
    bars = []
    for cell in range(count):
        part = values[cell * len(values) // count : (cell + 1) * len(values) // count]
        known = [value for value in part if value is not None]
        bars.append(_bar(sum(known) / len(known), top) if known else _BLANK)
    return "".join(bars)


def _bar(value: float, top: float) -> str:
    share = value / top if top > 0 else 0.0
    return _BARS[max(0, min(len(_BARS) - 1, int(share * len(_BARS))))]


def trend_lines(view: NodeView, kind: str, name: str, wanted: Sequence[Wanted]) -> list[Line]:
    """A block of the readings that have a past, under how long that is; empty when none has.

    Args:
        kind: "gpu", "port" or "host", and `name` which one.
    """
    history = view.history
    if history is None:
        return []
    lines: list[Line] = []
    seconds = 0.0
    for label, reading, limit, unit in wanted:
        values = history.values(kind, name, reading)
        known = [value for value in values if value is not None]
        if not known:
            continue
        seconds = max(seconds, len(values) * history.slot_s)
        highest = max(known)
        bars = span(spark(values, limit or highest), Tone.ACCENT)
        lines.append(fact(label, bars, span(f"  up to {_number(highest)}{unit}", Tone.DIM)))
    if not lines:
        return []
    title = line(
        span(f"Last {format_age(seconds)}", Tone.TITLE), span("  as this console saw it", Tone.DIM)
    )
    return [title, *lines]


def _number(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 10 else f"{value:.0f}"  # noqa: PLR2004 - a second digit is enough
