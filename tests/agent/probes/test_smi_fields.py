"""Which fields are asked for, and what an nvidia-smi that does not know them all is asked instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes import smi_fields
from llmgw_core.agent.probes.smi_fields import CORE_FIELDS, EXTRA_FIELDS, THROTTLE_FIELD

HELP = """
List of valid properties to query for the switch "--query-gpu":

"timestamp"
The timestamp of when the query was made.

"index" or "gpu_index"
Zero based index of the GPU.

"clocks_event_reasons.active" or "clocks_throttle_reasons.active"

"compute_mode"
"0: Default" means multiple contexts are allowed per device.
"""


def test_help_names_fields_and_aliases_but_not_the_values_of_an_enumeration() -> None:
    assert smi_fields.parse_help_fields(HELP) == {
        "timestamp",
        "index",
        "gpu_index",
        "clocks_event_reasons.active",
        THROTTLE_FIELD,
        "compute_mode",
    }


def test_rejected_field_is_named() -> None:
    text = 'Field "compute_cap" is not a valid field to query.\n\n'

    assert smi_fields.parse_rejected_field(text) == "compute_cap"


def test_what_the_help_does_not_list_goes_at_once() -> None:
    left = smi_fields.drop_field(EXTRA_FIELDS, "compute_cap", frozenset({"fan.speed", "pstate"}))

    assert left == ("fan.speed",)


def test_without_help_a_rejected_field_goes_alone() -> None:
    left = smi_fields.drop_field(CORE_FIELDS, "display_active")

    assert left == tuple(name for name in CORE_FIELDS if name != "display_active")


def test_renamed_field_is_asked_for_by_its_other_name_and_kept_under_one() -> None:
    left = smi_fields.drop_field((THROTTLE_FIELD,), THROTTLE_FIELD)

    assert left == ("clocks_event_reasons.active",)
    assert smi_fields.canonical_name(left[0]) == THROTTLE_FIELD


def test_both_names_rejected_end_the_question() -> None:
    left = smi_fields.drop_field(
        ("clocks_event_reasons.active",), "clocks_event_reasons.active", frozenset({"index"})
    )

    assert left == ()


@pytest.mark.parametrize("known", [frozenset[str](), frozenset({"index", "uuid"})])
@given(st.text(max_size=30))
def test_every_refusal_leaves_fewer_fields_or_the_same(
    known: frozenset[str], rejected: str
) -> None:
    left = smi_fields.drop_field(CORE_FIELDS, rejected, known)

    assert set(left) <= set(CORE_FIELDS)


@given(st.binary())
def test_any_help_is_a_set_of_words(raw: bytes) -> None:
    assert all(smi_fields.parse_help_fields(raw.decode("utf-8", "replace")))
