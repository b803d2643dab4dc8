"""What an engine prints is kept in bounded space, byte for byte, and read by offset."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_core.agent.logs import MAX_LINE_BYTES, LineReader, read_chunk, read_ends
from llmgw_core.agent.pump import Pump, list_segments, read_dropped
from tests.support.engines import Bench, wait_until


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "out.fifo"
    os.mkfifo(path)
    return path


def store(pump: Pump, fifo: Path, data: bytes) -> None:
    fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    for start in range(0, len(data), 4096):
        os.write(fd, data[start : start + 4096])
        pump.drain(10)
    os.close(fd)


def test_log_keeps_the_newest_segments_only(fifo: Path, tmp_path: Path) -> None:
    pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=1000, segments_kept=3)

    store(pump, fifo, b"0123456789" * 1000)
    pump.close()

    segments = list_segments(str(tmp_path / "log"))
    assert [offset for offset, _ in segments] == [7000, 8000, 9000]
    assert all(Path(path).stat().st_size == 1000 for _, path in segments)


def test_any_bytes_come_back_as_they_were(fifo: Path, tmp_path: Path) -> None:
    data = bytes(range(256)) * 40 + "⚡ München".encode() * 100
    pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=777, segments_kept=99)
    store(pump, fifo, data)

    pieces, offset = b"", 0
    while True:
        chunk = read_chunk(tmp_path / "log", "e", offset, 101)
        if not chunk.data:
            break
        pieces += chunk.data.encode("utf-8", "surrogateescape")
        offset = chunk.next_offset

    assert pieces == data
    assert offset == chunk.end_offset == len(data)
    pump.close()


def test_bytes_no_longer_kept_are_told_as_skipped(fifo: Path, tmp_path: Path) -> None:
    pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=100, segments_kept=2)
    store(pump, fifo, b"x" * 1000)

    chunk = read_chunk(tmp_path / "log", "e", 50, 10)

    assert (chunk.offset, chunk.skipped, chunk.start_offset) == (800, 750, 800)
    assert (len(chunk.data), chunk.next_offset, chunk.end_offset) == (10, 810, 1000)
    pump.close()


def test_negative_offset_counts_from_the_end(fifo: Path, tmp_path: Path) -> None:
    pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=100, segments_kept=99)
    store(pump, fifo, b"abcdefgh")

    assert read_chunk(tmp_path / "log", "e", -3, 99).data == "fgh"
    assert read_chunk(tmp_path / "log", "e", -99, 99).data == "abcdefgh"
    assert read_chunk(tmp_path / "none", "e", -3, 99).end_offset == 0
    pump.close()


def test_pump_goes_on_where_the_former_one_was(fifo: Path, tmp_path: Path) -> None:
    for text in (b"one ", b"two"):
        pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=100, segments_kept=9)
        store(pump, fifo, text)
        pump.close()

    assert read_chunk(tmp_path / "log", "e", 0, 99).data == "one two"


@pytest.mark.faults
def test_deleted_log_directory_is_made_again(
    fifo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw_core.agent.pump.META_EVERY_S", 0.0)
    pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=100, segments_kept=9)
    store(pump, fifo, b"lost ")
    shutil.rmtree(tmp_path / "log")
    pump.check()

    store(pump, fifo, b"kept")

    chunk = read_chunk(tmp_path / "log", "e", 0, 99)
    assert (chunk.data, chunk.offset, chunk.skipped) == ("kept", 5, 5)
    pump.close()


def test_bytes_the_disk_does_not_take_are_counted_and_reading_goes_on(
    fifo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=100, segments_kept=9)
    store(pump, fifo, b"before ")

    def full(*_: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("llmgw_core.agent.pump.splice", full)
        store(pump, fifo, b"lost")
    store(pump, fifo, b"after")
    pump.close()

    chunk = read_chunk(tmp_path / "log", "e", 0, 99)
    assert (chunk.data, chunk.dropped) == ("before after", 4)
    assert read_dropped(str(tmp_path / "log")) == 4


def test_log_leaves_the_last_of_a_disk_alone(
    fifo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw_core.agent.pump.RESERVE_BYTES", 1 << 60)
    pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=100, segments_kept=9)

    store(pump, fifo, b"dropped")
    pump.close()

    chunk = read_chunk(tmp_path / "log", "e", 0, 99)
    assert (chunk.data, chunk.dropped) == ("", 7)


def write_segment(directory: Path, data: bytes, offset: int = 0) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{offset:020d}.seg").write_bytes(data)


def test_each_drawing_of_a_bar_is_a_line(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", b"\r 10%\r 20%\nnext\nhalf")
    reader = LineReader(tmp_path / "log")

    assert reader.read_lines(1 << 20) == [" 10%", " 20%", "next"]


def test_line_cut_between_two_reads_is_whole(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", "Mün".encode()[:2])
    reader = LineReader(tmp_path / "log")
    assert reader.read_lines(1 << 20) == []

    write_segment(tmp_path / "log", "München\n".encode())

    assert reader.read_lines(1 << 20) == ["München"]


def test_endless_line_takes_bounded_space(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", b"x" * (10 << 20) + b"\nend\n")
    reader = LineReader(tmp_path / "log")

    lines = reader.read_lines(256 << 10)

    assert [len(line) for line in lines] == [MAX_LINE_BYTES, 3]


def test_secret_is_starred_wherever_a_piece_ends(tmp_path: Path) -> None:
    secret = b"hf_secret"
    write_segment(tmp_path / "log", b"token hf_secret end")

    for size in range(1, 20):
        text, offset = "", 0
        while len(text) < 19:
            chunk = read_chunk(tmp_path / "log", "e", offset, size, [secret])
            text, offset = text + chunk.data, chunk.next_offset
        assert text == "token ********* end"


def test_begun_secret_is_held_back_until_it_is_whole(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", b"token hf_sec")

    chunk = read_chunk(tmp_path / "log", "e", 0, 99, [b"hf_secret"])

    assert (chunk.data, chunk.next_offset) == ("token ", 6)


def test_ends_of_a_long_log_are_its_first_and_last_bytes(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", b"a" * 50)
    write_segment(tmp_path / "log", b"b" * 50, offset=50)

    assert read_ends(tmp_path / "log", 3, 4) == "aaa\nbbbb"


@pytest.mark.slow
def test_log_of_a_running_engine_is_bounded_and_followed_by_offset(bench: Bench) -> None:
    bench.env |= {"LLMGW_SHIM_SEGMENT_BYTES": "4096", "LLMGW_SHIM_SEGMENTS": "3"}
    supervisor, plan = bench.supervisor(), bench.plan("--count=5000")
    supervisor.launch("k", plan, {})
    total = 5000 * len("line 00000000\n")

    wait_until(
        lambda: supervisor.read_log(plan.engine_id, 0, 10).end_offset == total, "all is stored"
    )

    chunk = supervisor.read_log(plan.engine_id, -14, 100)
    assert chunk.data == "line 00004999\n"
    directory = bench.instance.engine(plan.engine_id).log
    assert sum(Path(path).stat().st_size for _, path in list_segments(str(directory))) <= 3 * 4096


OLD_PYTHON = Path.home() / ".pyenv/versions/3.9.18/bin/python"
SPLICE = """
import os, sys, tempfile
from llmgw_core.agent import pump
fifo, path = sys.argv[1] + "/f", sys.argv[1] + "/out"
os.mkfifo(fifo)
source = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
target = os.open(path, os.O_WRONLY | os.O_CREAT)
os.write(source, b"0123456789")
print(pump.splice(source, target, 4, 0), pump.splice(source, target, 99, 4))
try:
    pump.splice(source, target, 9, 10)
except BlockingIOError:
    print("empty")
try:
    os.write(source, b"x")
    pump.splice(source, os.open(path, os.O_WRONLY | os.O_APPEND), 9, 10)
except OSError as error:
    print(error.errno)
"""


@pytest.mark.parametrize("python", [sys.executable, str(OLD_PYTHON)], ids=["this", "3.9"])
def test_splice_moves_bytes_with_or_without_pythons_own(tmp_path: Path, python: str) -> None:
    if not Path(python).exists():
        pytest.skip(f"{python} is not installed here")

    done = subprocess.run(
        [python, "-c", SPLICE, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["4", "6", "empty", "22"]
    assert (tmp_path / "out").read_bytes() == b"0123456789"


def test_pump_copies_where_the_file_system_does_not_splice(
    fifo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("llmgw_core.agent.pump.splice", refused)
    pump = Pump(str(fifo), str(tmp_path / "log"), segment_bytes=3, segments_kept=9)

    store(pump, fifo, b"0123456789")
    pump.close()

    assert read_chunk(tmp_path / "log", "e", 0, 99).data == "0123456789"
