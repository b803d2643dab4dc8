"""One figure, against what it is measured by; all of them as a table and as JSON."""

import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from llmgw_core import __version__

SCHEMA = "llmgw.benchmarks/1"
RATIO = "×"  # the unit of figures that mean the same on any machine


@dataclass(frozen=True)
class Measure:
    """One measurement, less is better; `limit` is None for one that is told for comparison alone."""

    name: str
    value: float
    limit: float | None
    unit: str
    detail: str = ""

    @property
    def is_within(self) -> bool:
        """Whether it keeps its budget."""
        return self.limit is None or self.value <= self.limit


def format_measure(measure: Measure) -> str:
    """One line of the table."""
    limit = "" if measure.limit is None else f"limit {measure.limit:g} {measure.unit}"
    verdict = "" if measure.limit is None else ("ok" if measure.is_within else "OVER")
    value = f"{measure.value:.2f} {measure.unit}"
    return f"{measure.name:<44}{value:>12}  {limit:<14}{verdict:<6}{measure.detail}"


def write_report(path: Path, measures: list[Measure]) -> None:
    """Write all of it as JSON."""
    report = {
        "schema": SCHEMA,
        "version": __version__,
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "load_1m": os.getloadavg()[0],
        "measures": [{**asdict(item), "is_within": item.is_within} for item in measures],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def read_report(path: Path) -> dict[str, Measure]:
    """The measures of a report by name, in its order.

    Raises:
        ValueError: it is no such report.
    """
    try:
        report = json.loads(path.read_text("utf-8"))
        if report["schema"] != SCHEMA:
            raise ValueError(f"{path} is of schema {report['schema']!r}, not {SCHEMA}")
        found = [
            Measure(**{name: item[name] for name in ("name", "value", "limit", "unit", "detail")})
            for item in report["measures"]
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no report of make bench: {error!r}") from None
    return {measure.name: measure for measure in found}
