"""Filter and order of a table's rows."""

from collections.abc import Sequence

import pytest

from llmgw_tui.present.arrange import filter_rows, sort_rows
from llmgw_tui.present.table import Row
from llmgw_tui.present.text import line, span


def rows(*texts: str | None) -> tuple[Row, ...]:
    return tuple(
        Row((str(place),), (line(f"node{place}"), line(span(text))))
        for place, text in enumerate(texts)
    )


def order(found: Sequence[Row]) -> list[str]:
    return [row.key[0] for row in found]


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("", ["0", "1", "2"]),
        ("H100", ["0", "1"]),
        ("h100 NODE1", ["1"]),
        ("e1h", []),
        ("[", []),
        ("  l40s ", ["2"]),
    ],
)
def test_every_word_must_be_in_some_cell(query: str, kept: list[str]) -> None:
    assert order(filter_rows(rows("h100-80g", "H100", "l40s"), query)) == kept


@pytest.mark.parametrize(
    ("texts", "ordered"),
    [
        (("gpu10", "gpu9", "gpu1"), ["2", "1", "0"]),
        (("61 GiB", "512 MiB", "4 GiB"), ["1", "2", "0"]),
        (("2 h", "30 s", "5 m"), ["1", "2", "0"]),
        (("100 %", "20 %", "3.5 %"), ["2", "1", "0"]),
        (("b", "b", "a"), ["2", "0", "1"]),
        (("● up", "▲ GPU held", "✖ GPU fault"), ["2", "1", "0"]),
        (("□□□", "■□□", "✖□□", "✖✖□"), ["3", "2", "1", "0"]),
        (("━━╌╌ 50 %", "━╌╌╌ 25 %", "━━━━ 100 %"), ["1", "0", "2"]),
        (("▁▂█", "▁█▁"), ["1", "0"]),
    ],
)
def test_order_is_natural_by_amount_and_stable(texts: tuple[str, ...], ordered: list[str]) -> None:
    assert order(sort_rows(rows(*texts), 1, reverse=False)) == ordered


@pytest.mark.parametrize(
    ("reverse", "ordered"), [(False, ["2", "1", "0"]), (True, ["1", "2", "0"])]
)
def test_unknown_stays_last_either_way(reverse: bool, ordered: list[str]) -> None:
    assert order(sort_rows(rows(None, "10", "9"), 1, reverse=reverse)) == ordered
