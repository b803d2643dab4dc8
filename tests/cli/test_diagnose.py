"""`llmgw diagnose`: of a saved log, and of an engine that died here."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.cli.diagnose import HEAD_BYTES, TAIL_BYTES, judge_log, read_report, render
from llmgw_core.errors import UsageError
from tests.support.engines import free_port
from tests.support.operator_here import OperatorHere

DEEP = (
    "(Worker_TP1 pid=7) ERROR 12-01 02:30:45 [x.py:1] torch.OutOfMemoryError: CUDA out of memory."
)
WRAPPED = f"""\
INFO 12-01 02:30:40 [x.py:1] Starting to load model m...
{DEEP}
(EngineCore pid=4) ERROR 12-01 02:30:46 [core.py:1] Exception: WorkerProc initialization failed
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""


def test_cause_is_the_deepest_line_and_not_its_wrappers() -> None:
    report = judge_log("x.log", "vllm", WRAPPED)

    assert report.is_known
    assert report.diagnosis is not None
    assert report.diagnosis.code == "cuda-oom"
    assert "→" in render(report)


def test_wrappers_alone_are_unknown_and_are_shown() -> None:
    report = judge_log("x.log", None, "RuntimeError: Engine core initialization failed. See root")

    assert not report.is_known
    assert report.diagnosis is not None
    assert report.diagnosis.code == "unknown"
    assert "Engine core" in report.lines[0]


def test_unknown_cause_shows_first_and_last_errors_without_wrappers() -> None:
    text = (
        "".join(f"OddError: number {count}\n" for count in range(50)) + "Traceback (most recent\n"
    )

    lines = judge_log("x.log", None, text).lines

    assert lines[0] == "OddError: number 0"
    assert lines[-1] == "OddError: number 49"
    assert len(lines) < 20


@pytest.mark.parametrize(
    "line",
    [
        "OddError: unexpected --api-key hush-hush",
        "OddError: unexpected --api_key=hush-hush",
        "OddError: 401 for Bearer hush-hush",
        "OddError: token hf_hushhushhush is not valid",
    ],
)
def test_shown_lines_hold_no_secret(line: str) -> None:
    report = judge_log("x.log", None, line)

    assert report.lines
    assert "hush" not in render(report)


@pytest.mark.parametrize("text", ["", "\n\n", "INFO: all is well\n"])
def test_log_without_an_error_says_so(text: str) -> None:
    report = judge_log("x.log", None, text)

    assert report.diagnosis is not None
    assert report.diagnosis.code == "unknown"
    assert report.diagnosis.hint


@given(st.binary(max_size=300))
def test_any_bytes_are_judged(data: bytes) -> None:
    assert render(judge_log("x.log", None, data.decode("utf-8", "replace")))


def test_of_a_very_long_log_both_ends_are_read(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    with log.open("wb") as file:
        file.write(b"begin\n")
        file.truncate(HEAD_BYTES + TAIL_BYTES + 4096)
        file.seek(0, 2)
        file.write(f"\n{DEEP}\n".encode())

    report = read_report(log, None)

    assert report.diagnosis is not None
    assert report.diagnosis.code == "cuda-oom"


def test_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothere\.log"):
        read_report(tmp_path / "nothere.log", None)


@pytest.mark.slow
def test_engine_that_died_is_diagnosed_by_name_and_by_its_log(
    operator: OperatorHere, tmp_path: Path
) -> None:
    words = operator.launch_words("chat", "--port", str(free_port()))
    operator.run(*words, "--", "--enforce-eager", status=None)

    told = json.loads(operator.run("diagnose", "chat", "--json").stdout)
    assert (told["schema"], told["known"]) == ("llmgw.diagnosis/1", True)
    assert told["diagnosis"]["code"] == "cuda-oom"
    assert told["state"].startswith("failed")

    log = tmp_path / "saved.log"
    log.write_bytes(operator.run("logs", "chat", "--raw", "-n", "all").stdout)
    again = operator.run("diagnose", "--log", str(log), "--engine", "vllm").stdout.decode()
    assert "cuda-oom" in again
    operator.run("diagnose", status=2)
    operator.run("diagnose", "chat", "--log", str(log), status=2)
    operator.run("diagnose", "nobody", status=8)
