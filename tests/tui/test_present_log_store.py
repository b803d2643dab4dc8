"""The lines of a log that are kept: shown, found, wrapped, let go."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_tui.present.log_lines import Level
from llmgw_tui.present.log_store import LogFilter, LogStore, RowPlace

LINES = (
    "INFO start",
    "(Worker_TP0 pid=1) INFO loads",
    "(Worker_TP1 pid=2) WARNING odd",
    "(Worker_TP1 pid=2) ERROR ValueError: bad thing",
    "  in a traceback",
    "INFO end",
)


def make_store(*lines: str, partial: str = "", max_lines: int = 100) -> LogStore:
    store = LogStore(max_lines)
    store.add(lines or LINES, partial)
    return store


def shown(store: LogStore) -> list[str]:
    return list(store.shown_lines())


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (LogFilter(), [0, 1, 2, 3, 4, 5]),
        (LogFilter(Level.WARN), [2, 3, 4]),
        (LogFilter(Level.ERROR), [3, 4]),
        (LogFilter(process="Worker_TP1"), [2, 3]),
        (LogFilter(Level.ERROR, "Worker_TP0"), []),
    ],
)
def test_a_filter_keeps_lines_by_level_and_process(wanted: LogFilter, kept: list[int]) -> None:
    store = make_store()
    store.set_filter(wanted)

    assert shown(store) == [LINES[place] for place in kept]


@pytest.mark.parametrize(
    "wanted", [LogFilter(Level.WARN), LogFilter(process="Worker_TP1"), LogFilter(only_hits=True)]
)
def test_lines_that_come_under_a_filter_are_shown_as_if_they_had_been_there(
    wanted: LogFilter,
) -> None:
    early, late = make_store(*LINES, *LINES), LogStore(100)
    for store in (early, late):
        store.set_pattern(re.compile("bad|start"))
        store.set_filter(wanted)
    for text in (*LINES, *LINES):
        late.add([text], "")

    assert shown(early) == shown(late)
    assert early.hit_count == late.hit_count


def test_processes_are_named_in_the_order_of_their_first_line() -> None:
    assert make_store().process_names == ("Worker_TP0", "Worker_TP1")


def test_hits_are_gone_to_in_both_directions_with_their_ordinal() -> None:
    store = make_store()
    store.set_pattern(re.compile("Worker_TP1|end"))

    assert store.hit_count == 3
    assert store.hit_from(2, 1) == (3, 2)
    assert store.hit_from(3, -1) == (2, 1)
    assert store.hit_from(5, 1) is None
    assert (store.nth_hit(3), store.nth_hit(4), store.nth_hit(0)) == (5, None, None)


def test_a_search_that_ends_ends_showing_its_hits_alone() -> None:
    store = make_store()
    store.set_pattern(re.compile("end"))
    store.set_filter(LogFilter(only_hits=True))
    store.set_pattern(None)

    assert len(shown(store)) == len(LINES)


def test_a_wrapped_line_has_a_row_for_each_part() -> None:
    store = make_store("abcdefghij", "x", "模型" * 5, partial="partial")
    store.set_cells(4)

    rows = [store.at_row(row) for row in range(store.row_count)]

    assert rows == [
        *(RowPlace(0, part) for part in range(3)),
        RowPlace(1, 0),
        *(RowPlace(2, part) for part in range(5)),
        *(RowPlace(3, part) for part in range(2)),
    ]
    assert store.at_row(store.row_count) is None
    assert [store.row_of(number) for number in range(4)] == [0, 3, 4, 9]


def test_what_is_let_go_keeps_the_numbers_of_the_rest() -> None:
    store = make_store(*(f"line {number}" for number in range(100)))
    store.set_pattern(re.compile("line .5$"))

    lost = store.add([f"line {number}" for number in range(100, 120)], "")

    assert lost == 20
    assert store.at_row(0) == RowPlace(20, 0)
    assert store.text_of(25) == "line 25"
    assert store.text_of(3) == ""
    assert store.hit_from(0, 1) == (25, 1)


@given(
    lines=st.lists(st.sampled_from([*LINES, "", "x" * 30]), max_size=60),
    cells=st.sampled_from([None, 5, 11]),
    wanted=st.sampled_from([LogFilter(), LogFilter(Level.WARN), LogFilter(process="Worker_TP1")]),
    steps=st.integers(1, 7),
)
def test_every_row_is_of_a_line_that_leads_back_to_it(
    lines: list[str], cells: int | None, wanted: LogFilter, steps: int
) -> None:
    store = LogStore(20)
    store.set_cells(cells)
    store.set_filter(wanted)
    for start in range(0, len(lines), steps):
        store.add(lines[start : start + steps], "")

    for row in range(store.row_count):
        place = store.at_row(row)
        assert place is not None
        assert store.row_of(place.number) + place.part == row


@pytest.mark.parametrize(
    ("message", "number"),
    [
        ("bad thing", 3),
        ("the engine's words: bad thi…", 3),
        ("of something that no line says", 3),
    ],
)
def test_the_cause_is_the_line_that_the_diagnosis_quotes_else_the_first_error(
    message: str, number: int
) -> None:
    assert make_store().find_cause(message) == number


def test_a_log_without_an_error_has_no_cause() -> None:
    assert make_store("INFO fine").find_cause("x") is None
