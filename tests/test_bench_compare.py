"""Two reports of `make bench`: what counts as worse."""

from pathlib import Path

import pytest

from benchmarks.compare import main
from benchmarks.measure import Measure, write_report


def write(path: Path, *measures: Measure) -> str:
    write_report(path, list(measures))
    return str(path)


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (Measure("a", 1.0, None, "×"), Measure("a", 1.19, None, "×"), 0),
        (Measure("a", 1.0, None, "×"), Measure("a", 1.21, None, "×"), 1),
        (Measure("a", 10.0, 96, "kB"), Measure("a", 13.0, 96, "kB"), 1),
        (Measure("a", 10.0, None, "ms"), Measure("a", 90.0, None, "ms"), 0),
        (Measure("a", 1.0, None, "×"), Measure("b", 9.0, None, "×"), 0),
    ],
    ids=["a little", "a fifth", "against its limit", "told alone", "another one"],
)
def test_a_ratio_may_grow_by_a_fifth(
    tmp_path: Path, before: Measure, after: Measure, status: int
) -> None:
    old, new = write(tmp_path / "old.json", before), write(tmp_path / "new.json", after)
    assert main([old, new]) == status


def test_what_became_worse_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old.json", Measure("fan-out", 0.5, 1, "×"), Measure("b", 1, 2, "s"))
    new = write(tmp_path / "new.json", Measure("fan-out", 0.75, 1, "×"), Measure("b", 1, 2, "s"))
    main([old, new])
    assert capsys.readouterr().out.splitlines()[-1] == "worse by more than 20 %: fan-out"


def test_a_file_that_is_no_report_is_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"schema": "llmgw.benchmarks/1"}')
    assert main([str(path), str(path)]) == 2
    assert "no report of make bench" in capsys.readouterr().err
