"""Names sort as people count, GiB round as operators say them, and errors cross a connection whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core import errors
from llmgw_core.domain.findings import Finding, Severity, has_errors
from llmgw_core.domain.units import format_indices, natural_key, round_gib


def test_names_sort_with_numbers_as_numbers() -> None:
    names = ["n10", "n2", "head", "n1-r10", "n1-r2", "n01"]

    assert sorted(names, key=natural_key) == ["head", "n01", "n1-r2", "n1-r10", "n2", "n10"]


@given(st.lists(st.text(max_size=20)))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    ordered = sorted(names, key=natural_key)

    assert sorted(ordered, key=natural_key) == ordered


@pytest.mark.parametrize(
    ("mib", "gib"), [(46068, 45), (81559, 80), (512, 1), (511, 0), (23034, 22)]
)
def test_gib_are_rounded_half_up(mib: int, gib: int) -> None:
    assert round_gib(mib) == gib


def all_errors() -> list[type[errors.LlmgwError]]:
    found = [errors.LlmgwError]
    for cls in found:
        found.extend(cls.__subclasses__())
    # Tests of other parts may have made their own.
    return [cls for cls in found if cls.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: cls.__name__)
def test_error_comes_back_as_its_class(cls: type[errors.LlmgwError]) -> None:
    error = cls("what", "why", "fix", "n07")

    back = errors.from_wire(error.to_wire())

    assert (type(back), back.to_wire()) == (cls, error.to_wire())


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [cls.code for cls in all_errors()]

    assert sorted(set(codes)) == sorted(codes)


def test_tree_in_the_docstring_has_every_error_with_its_code() -> None:
    words = set((errors.__doc__ or "").split())

    missing = {cls.__name__ for cls in all_errors() if not {cls.__name__, cls.code} <= words}

    assert missing <= {"LlmgwError"}


def test_error_of_an_unknown_code_keeps_its_text() -> None:
    back = errors.from_wire({"code": "of-the-future", "what": "n07 GPU 3 is odd", "node": "n07"})

    assert (type(back), str(back)) == (errors.NodeError, "n07: n07 GPU 3 is odd")


@given(
    st.dictionaries(
        st.sampled_from(["code", "what", "why", "fix", "node"]),
        st.none() | st.text() | st.integers() | st.lists(st.integers()),
    )
)
def test_any_error_data_gives_an_error(data: dict[str, object]) -> None:
    assert isinstance(errors.from_wire(data), errors.LlmgwError)


def test_error_says_where_what_why_and_what_to_do() -> None:
    error = errors.GpuTaken(
        "GPU 3 is not free", "pid 4711 holds 61440 MiB", "choose another", "n07"
    )

    assert str(error) == "n07: GPU 3 is not free: pid 4711 holds 61440 MiB (choose another)"


def test_only_errors_stop_a_launch() -> None:
    warning = Finding("c", Severity.WARNING, "s", "w")

    assert has_errors([warning]) is False
    assert has_errors([warning, Finding("c", Severity.ERROR, "s", "w")]) is True


def test_indices_are_told_as_ranges() -> None:
    assert format_indices(()) == ""
    assert format_indices((0, 1, 2, 3)) == "0-3"
    assert format_indices((0, 2, 3, 7)) == "0,2-3,7"
