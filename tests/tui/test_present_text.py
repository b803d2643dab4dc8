"""Spans, cropping, wrapping, quantities, and how columns share a width."""

import pytest

from llmgw_tui.present.table import Column, Row, Rows, anchor, natural_widths, share_width
from llmgw_tui.present.text import (
    Span,
    Tone,
    bar,
    clean,
    dimmed,
    fit,
    join,
    line,
    plain,
    span,
    width,
    wrap,
)
from llmgw_tui.present.units import (
    count_of,
    format_age,
    format_bytes,
    format_gib,
    format_number,
    format_percent,
    format_uptime,
    parse_rfc3339,
)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("bell\x07", "bell·"),
        ("\x1b[31mred", "·[31mred"),
        ("two\nlines", "two·lines"),
        ("c1\x9b", "c1·"),
        ("rtl\u202eevil", "rtl·evil"),
        ("isolate\u2066x", "isolate·x"),
        ("torn\udc80", "torn·"),
        ("Größe 模型", "Größe 模型"),
    ],
)
def test_control_characters_are_shown_not_obeyed(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_a_span_of_nothing_known_is_a_dim_dash() -> None:
    assert span(None) == Span("—", Tone.DIM)


def test_a_line_leaves_out_what_is_none() -> None:
    assert plain(line("a", None, span(3))) == "a3"


@pytest.mark.parametrize(
    ("text", "cells", "fitted"),
    [
        ("ab", 4, "ab  "),
        ("abcd", 4, "abcd"),
        ("abcdef", 4, "abc…"),
        ("模型模型", 5, "模型…"),
        ("模型模型", 4, "模 …"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_fit_takes_exactly_the_cells(text: str, cells: int, fitted: str) -> None:
    assert plain(fit(line(text), cells)) == fitted


@pytest.mark.parametrize("cells", range(1, 12))
def test_fit_is_as_wide_as_asked_whatever_the_spans(cells: int) -> None:
    value = line(span("模型", Tone.OK), "abc", span("xyz", Tone.WARN))

    assert width(fit(value, cells)) == cells


def test_fit_to_the_right_pads_on_the_left() -> None:
    assert plain(fit(line("7"), 3, right=True)) == "  7"


def test_join_leaves_no_separator_for_empty_lines() -> None:
    assert plain(join([line("a"), (), line("b")], "|")) == "a|b"


def test_dimming_keeps_warnings_and_errors() -> None:
    value = dimmed(line("a", span("b", Tone.WARN), span("c", Tone.ERROR), span("d", Tone.OK)))

    assert [part.tone for part in value] == [Tone.DIM, Tone.WARN, Tone.ERROR, Tone.DIM]


@pytest.mark.parametrize(
    ("text", "cells", "wrapped"),
    [
        ("short", 10, ["short"]),
        ("one two three", 8, ["one two", "three"]),
        ("  one two three", 8, ["  one", "  two", "  three"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("", 5, [""]),
        ("a b", 1, ["a", "b"]),
    ],
)
def test_wrap_breaks_at_blanks(text: str, cells: int, wrapped: list[str]) -> None:
    assert [plain(value) for value in wrap(line(text), cells)] == wrapped


@pytest.mark.parametrize("cells", [3, 7, 10, 19, 40])
def test_wrapped_lines_are_never_wider(cells: int) -> None:
    value = line(
        span("model    ", Tone.DIM), "/models/模型/very-long-name with words and more words"
    )

    assert all(width(part) <= cells for part in wrap(value, cells))


def test_wrap_continues_under_what_follows_a_label() -> None:
    value = line(span("ready    ", Tone.DIM), "after one token came back")

    assert [plain(part) for part in wrap(value, 20)][1].startswith("         ")


def test_wrap_keeps_tones() -> None:
    wrapped = wrap(line(span("one ", Tone.OK), span("two", Tone.WARN)), 4)

    assert wrapped[1][-1] == Span("two", Tone.WARN)


@pytest.mark.parametrize(
    ("fraction", "drawn"),
    [
        (None, "····"),
        (0.0, "╌╌╌╌"),
        (0.5, "━━╌╌"),
        (1.0, "━━━━"),
        (1.7, "━━━━"),
        (-1.0, "╌╌╌╌"),
    ],
)
def test_bar(fraction: float | None, drawn: str) -> None:
    assert bar(fraction, 4) == drawn


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "—"),
        (-3, "0s"),
        (0.4, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h00m"),
        (7500, "2h05m"),
        (86400, "1d00h"),
        (442_800, "5d03h"),
    ],
)
def test_ages(seconds: float | None, text: str) -> None:
    assert format_age(seconds) == text


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_not_known(text: str | None) -> None:
    assert parse_rfc3339(text) is None


def test_times_are_read_as_utc() -> None:
    assert parse_rfc3339("2026-01-01T00:00:00Z") == 1_767_225_600.0


def test_uptime_of_an_unknown_start_is_not_known() -> None:
    assert format_uptime(None, 5.0) == "—"


@pytest.mark.parametrize(
    ("mib", "text"),
    [(None, "—"), (0, "0"), (4, "0.0"), (1536, "1.5"), (81559, "80"), (10240, "10")],
)
def test_gib(mib: int | None, text: str) -> None:
    assert format_gib(mib) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(("value", "text"), [(None, "—"), (0.0, "0 W"), (511.6, "512 W")])
def test_numbers(value: float | None, text: str) -> None:
    assert format_number(value, " W") == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(None, "—"), (0.0, "0 %"), (0.999, "99 %"), (1.0, "100 %"), (3.0, "100 %")],
)
def test_percents_round_down_so_that_100_means_done(fraction: float | None, text: str) -> None:
    assert format_percent(fraction) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_counts(number: int, text: str) -> None:
    assert count_of(number, "node") == text


COLUMNS = (
    Column("NAME", least=4, most=20, keep=9),
    Column("MODEL", least=5, most=30, keep=3),
    Column("PID", least=3, most=8, keep=1),
)


def make_row(name: str, *cells: str) -> Row:
    return Row((name,), tuple(line(cell) for cell in (name, *cells)))


def test_natural_widths_lie_between_title_and_most() -> None:
    rows = [make_row("a", "m" * 50, "1")]

    assert natural_widths(COLUMNS, rows) == (4, 30, 3)


@pytest.mark.parametrize(
    ("available", "widths"),
    [
        (100, (10, 20, 5)),
        (39, (10, 20, 5)),
        (38, (10, 19, 5)),
        (20, (5, 6, 5)),
        (16, (4, 5, 3)),
        (15, (6, 7, 0)),
        (8, (8, 0, 0)),
        (2, (4, 0, 0)),
    ],
)
def test_columns_shrink_first_and_then_the_least_worth_keeping_goes(
    available: int, widths: tuple[int, ...]
) -> None:
    assert share_width(COLUMNS, (10, 20, 5), available) == widths


@pytest.mark.parametrize(
    ("keys", "key", "place", "expected"),
    [
        ("abc", "b", 1, 1),
        ("cab", "b", 1, 2),
        ("bac", "b", 1, 0),
        ("ac", "b", 1, 1),
        ("a", "b", 1, 0),
        ("", "b", 1, 0),
        ("abc", None, 0, 0),
    ],
)
def test_the_cursor_stays_on_its_key(keys: str, key: str | None, place: int, expected: int) -> None:
    rows = Rows.of([Row((name,), ()) for name in keys])

    assert anchor(rows, None if key is None else (key,), place) == expected
