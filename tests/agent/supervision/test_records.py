"""Records are whole or not there, and a torn one is never guessed at."""

import os
from pathlib import Path

import pytest

from llmgw_core.agent.records import ExitRecord, SpecRecord, TornRecord, read_record, write_record

ENDED = ExitRecord(0, None, "exited", "2026-01-01T00:00:00Z")


def test_record_comes_back_as_it_was(tmp_path: Path) -> None:
    write_record(tmp_path / "exit.json", ENDED)

    assert read_record(tmp_path / "exit.json", ExitRecord) == ENDED
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]


def test_absent_record_is_none(tmp_path: Path) -> None:
    assert read_record(tmp_path / "exit.json", ExitRecord) is None


@pytest.mark.parametrize(
    "text",
    ["", '{"code": 0', "[]", '{"code": "0"}', '{"code": 0, "strange": 1}', "\x00\x00", "[" * 9999],
)
def test_torn_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "exit.json").write_text(text, "utf-8")

    with pytest.raises(TornRecord, match=r"exit\.json"):
        read_record(tmp_path / "exit.json", ExitRecord)


def test_record_of_another_version_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"version": 2}', "utf-8")

    with pytest.raises(TornRecord):
        read_record(tmp_path / "spec.json", SpecRecord)


def test_write_that_fails_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(tmp_path / "exit.json", ENDED)

    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_record(tmp_path / "exit.json", ExitRecord(1, None, "exited", "x"))

    assert read_record(tmp_path / "exit.json", ExitRecord) == ENDED
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]
