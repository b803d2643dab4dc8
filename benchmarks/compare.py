"""`python -m benchmarks.compare OLD NEW`: two reports of `make bench` side by side; fails when a figure has become worse."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import RATIO, Measure, read_report

TOLERATED = 1.2  # times the old value: what a busy machine does to a ratio


def main(argv: list[str] | None = None) -> int:
    """Print the comparison. Returns 1 when a figure is more than a fifth worse, 2 when a report cannot be read."""
    parser = argparse.ArgumentParser(prog="benchmarks.compare", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    args = parser.parse_args(argv)
    try:
        old, new = read_report(args.old), read_report(args.new)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for name in [*old, *(name for name in new if name not in old)]:
        print(_format_line(name, old.get(name), new.get(name)))
    worse = find_worse(old, new)
    if worse:
        print(f"worse by more than {100 * (TOLERATED - 1):.0f} %: {', '.join(worse)}")
    return int(bool(worse))


def find_worse(old: Mapping[str, Measure], new: Mapping[str, Measure]) -> list[str]:
    """Names of ratios that grew by more than what is tolerated: against a peer, or against the figure's own limit."""
    return [
        name
        for name, before in old.items()
        if name in new and is_ratio(before) and new[name].value > before.value * TOLERATED
    ]


def is_ratio(measure: Measure) -> bool:
    """Whether the figure is held against something. One that has neither peer nor limit is told alone."""
    return measure.unit == RATIO or measure.limit is not None


def _format_line(name: str, old: Measure | None, new: Measure | None) -> str:
    values = [f"{item.value:.2f} {item.unit}" if item else "not measured" for item in (old, new)]
    change = ""
    if old and new and old.value > 0:
        change = f"{100 * (new.value / old.value - 1):+.0f} %"
        if find_worse({name: old}, {name: new}):
            change += "  WORSE"
    return f"{name:<44}{values[0]:>14} →{values[1]:>14}  {change}"


if __name__ == "__main__":
    sys.exit(main())
