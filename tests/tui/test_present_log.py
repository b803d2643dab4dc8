"""A log as the operator sees it."""

from dataclasses import replace

import pytest

from llmgw_core.domain.engine import LogChunk
from llmgw_tui.present.log import (
    MAX_LINE_CHARACTERS,
    MAX_PARTIAL_CHARACTERS,
    LogAssembler,
    LogLook,
    clean_line,
    log_status,
)
from llmgw_tui.present.log_lines import (
    Level,
    compile_search,
    level_of,
    line_tone,
    log_line,
    process_of,
)
from llmgw_tui.present.log_store import LogFilter
from llmgw_tui.present.text import Span, Tone, plain


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("windows\r", "windows"),
        ("\rLoading: 10%\rLoading: 50%", "Loading: 50%"),
        ("\rLoading: 100%\r\r", "Loading: 100%"),
        ("\x1b[1;31mERROR\x1b[0m bad", "ERROR bad"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x1b\\text", "text"),
        ("\x1b[2K\x1b[1Gbar", "bar"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1b(Bascii", "ascii"),
        ("\x9b31mc1", "c1"),
        ("a\tb", "a    b"),
        ("nul\x00 bell\x07", "nul· bell·"),
        ("torn \x1b[", "torn "),
        ("", ""),
        ("   ", ""),
    ],
)
def test_log_lines_are_cleaned(raw: str, shown: str) -> None:
    assert clean_line(raw) == shown


def test_a_long_line_is_cut_and_says_so() -> None:
    shown = clean_line("x" * 10_000)

    assert shown == "x" * MAX_LINE_CHARACTERS + " … (line cut here)"


@pytest.mark.parametrize(
    ("text", "tone"),
    [
        ("INFO 01-01 00:00:00 [core.py:1] fine", Tone.NORMAL),
        ("(EngineCore pid=12) ERROR 01-01 broken", Tone.ERROR),
        ("Traceback (most recent call last):", Tone.ERROR),
        ("torch.OutOfMemoryError: CUDA out of memory", Tone.ERROR),
        ("WARNING 01-01 odd", Tone.WARN),
        ("DEBUG 01-01 chatter", Tone.DIM),
        ("no_errors_here", Tone.NORMAL),
    ],
)
def test_lines_have_the_tone_of_their_level(text: str, tone: Tone) -> None:
    assert line_tone(text) is tone


def test_what_is_searched_is_marked_whatever_its_case() -> None:
    assert log_line("a Shard of shards", compile_search("shard")[0]) == (
        Span("a "),
        Span("Shard", Tone.MATCH),
        Span(" of "),
        Span("shard", Tone.MATCH),
        Span("s"),
    )


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("shard", True),
        ("SHARD", True),
        ("Shard|nothing", True),
        (r"\d+%", True),
        ("[", False),
        ("(50", True),
    ],
)
def test_a_search_is_a_pattern_or_the_text_as_it_stands(search: str, found: bool) -> None:
    pattern, wrong = compile_search(search)

    assert pattern is not None
    assert (pattern.search("Shard 1 (50%)") is not None) is found
    assert bool(wrong) is (search in ("[", "(50"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(Worker_TP1 pid=4102) INFO 12-01 loaded", "Worker_TP1"),
        ("(RayWorkerWrapper pid=41, ip=10.0.0.2) x", "RayWorkerWrapper"),
        ("[2026-12-01 02:30:45 DP0 TP3] Load weight", "DP0 TP3"),
        ("[2026-12-01 02:30:45] server_args", None),
        ("[rank3]: Traceback", "rank3"),
        ("INFO:     Application startup complete.", None),
    ],
)
def test_a_line_names_its_process(text: str, name: str | None) -> None:
    assert process_of(text) == name


def test_the_lines_of_a_traceback_have_the_level_of_their_head() -> None:
    assert level_of('  File "x.py", line 1', Level.ERROR) is Level.ERROR
    assert level_of("next", Level.ERROR) is Level.INFO


def make_chunk(data: bytes, **changes: object) -> LogChunk:
    chunk = LogChunk(
        engine="chat-1",
        offset=0,
        data=data.decode("utf-8", "surrogateescape"),
        next_offset=len(data),
        start_offset=0,
        end_offset=len(data),
    )
    return replace(chunk, **changes)  # type: ignore[arg-type]


def test_a_line_torn_between_chunks_is_one_line() -> None:
    assembler = LogAssembler()

    lines = assembler.add(make_chunk(b"one\ntw")) + assembler.add(make_chunk(b"o\n"))

    assert lines == ["one", "two"]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_character_torn_anywhere_is_whole_again(cut: int) -> None:
    data = "Größe 模型\n".encode()
    assembler = LogAssembler()

    lines = assembler.add(make_chunk(data[:cut])) + assembler.add(make_chunk(data[cut:]))

    assert lines == ["Größe 模型"]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert LogAssembler().add(make_chunk(b"bad \xff\xfe byte\n")) == ["bad \ufffd\ufffd byte"]


def test_a_bar_is_the_partial_line_at_its_last_state() -> None:
    assembler = LogAssembler()
    assembler.add(make_chunk(b"start\n\rLoading: 10%\rLoading: 42%"))

    assert assembler.partial == "Loading: 42%"


def test_a_bar_that_is_finished_is_one_line() -> None:
    assembler = LogAssembler()
    assembler.add(make_chunk(b"\rLoading: 10%"))

    assert assembler.add(make_chunk(b"\rLoading: 100%\n")) == ["Loading: 100%"]


def test_a_log_that_begins_later_says_how_much_is_before_it() -> None:
    lines = LogAssembler().add(make_chunk(b"end\n", offset=2048))

    assert lines[0].startswith("── 2.0 KiB before this are not shown")


def test_what_is_no_longer_kept_is_said_in_place() -> None:
    assembler = LogAssembler()
    assembler.add(make_chunk(b"before, torn he"))

    lines = assembler.add(make_chunk(b"after\n", offset=99999, skipped=1024))

    assert lines[0] == "before, torn he"
    assert "1.0 KiB skipped" in lines[1]
    assert lines[2] == "after"


def test_the_last_line_of_an_ended_log_needs_no_newline() -> None:
    assert LogAssembler().add(make_chunk(b"Killed", ended=True)) == ["Killed"]


def test_a_line_without_end_does_not_grow_without_end() -> None:
    assembler = LogAssembler()

    lines = [text for _ in range(10) for text in assembler.add(make_chunk(b"x" * 60_000))]

    assert len(lines) >= 4
    assert all(len(text) < MAX_LINE_CHARACTERS + 30 for text in lines)


def test_a_bar_without_end_keeps_only_its_last_state() -> None:
    assembler = LogAssembler()
    data = b"".join(b"\rstep %d" % number for number in range(20_000))

    assert assembler.add(make_chunk(data)) == []
    assert assembler.partial == "step 19999"
    assert len(assembler._partial) <= MAX_PARTIAL_CHARACTERS


@pytest.mark.parametrize(
    ("chunk", "look", "text"),
    [
        (None, LogLook(), "waiting for the node"),
        (make_chunk(b"x"), LogLook(), "▼ following"),
        (make_chunk(b"x"), LogLook(following=False), "‖ held"),
        (make_chunk(b"x"), LogLook(following=False, behind=12), "12 new below (f follows)"),
        (make_chunk(b"x"), LogLook(search="shard", hits=3), "/shard: 3 found"),
        (make_chunk(b"x"), LogLook(search="shard", hits=3, hit=2), "/shard: 2 of 3 found"),
        (
            make_chunk(b"x"),
            LogLook(filter=LogFilter(Level.WARN, "Worker_TP1"), shown=4, kept=90),
            "only warn+, Worker_TP1 (4 of 90)",
        ),
        (make_chunk(b"x"), LogLook(wrapped=True, timed=True), "wrap time"),
        (make_chunk(b"x", ended=True), LogLook(), "end of log"),
        (make_chunk(b"x", dropped=2048), LogLook(), "▲ 2.0 KiB were never stored (disk full)"),
    ],
)
def test_the_status_of_a_log(chunk: LogChunk | None, look: LogLook, text: str) -> None:
    assert text in plain(log_status("chat on gpu1", chunk, look))
