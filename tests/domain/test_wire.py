"""The wire form: what goes out comes back the same, and what does not fit is refused with its path."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from llmgw_core.domain import wire
from llmgw_core.domain.engine import EngineKind, EngineState, EngineStatus
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Gpu, GpuHealth, GpuProcess, Host, Port, PortKind
from llmgw_core.domain.inventory import Node, NodeFault
from llmgw_core.domain.launch import LaunchRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COUNT = st.integers(0, 2**40)
FLOAT = st.floats(allow_nan=False, allow_infinity=False, width=32)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


GPUS = st.builds(
    Gpu,
    index=COUNT,
    uuid=maybe(TEXT),
    gpu_class=maybe(TEXT),
    memory_used_mib=maybe(COUNT),
    power_watts=maybe(FLOAT),
    health=st.tuples(st.builds(GpuHealth, TEXT, st.sampled_from(Severity), TEXT)),
    processes=st.lists(st.builds(GpuProcess, COUNT, maybe(TEXT), maybe(TEXT))).map(tuple),
    available=st.booleans(),
)
ENGINES = st.builds(
    EngineStatus,
    id=TEXT,
    name=TEXT,
    engine=st.sampled_from(EngineKind),
    model=TEXT,
    served_model_name=TEXT,
    state=st.sampled_from(EngineState),
    gpus=st.lists(COUNT, max_size=3).map(tuple),
    progress=maybe(FLOAT),
)
NODES = st.builds(
    Node,
    name=TEXT,
    error=maybe(st.builds(NodeFault, TEXT, TEXT, TEXT)),
    host=st.builds(Host, hostname=maybe(TEXT), load_1m=maybe(FLOAT), cpu_count=maybe(COUNT)),
    gpus=st.lists(GPUS, max_size=2).map(tuple),
    ports=st.lists(
        st.builds(Port, hca=TEXT, port=COUNT, kind=st.sampled_from(PortKind), lid=maybe(COUNT)),
        max_size=2,
    ).map(tuple),
    engines=st.lists(ENGINES, max_size=2).map(tuple),
)
QUICK = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "gpus", "host", "error", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@QUICK
@given(NODES)
def test_a_node_comes_back_the_same(node: Node) -> None:
    assert wire.from_jsonable(Node, json.loads(wire.dump_json(node))) == node


@QUICK
@given(NODES)
def test_both_readers_agree(node: Node) -> None:
    assert TypeAdapter(Node).validate_json(wire.dump_json(node)) == node


@given(JSON)
def test_any_json_is_a_node_or_a_wire_error(data: Any) -> None:
    try:
        built = wire.from_jsonable(Node, data)
    except wire.WireError:
        return
    assert json.loads(wire.dump_json(built), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "Node: expected an object, got a list"),
        ({}, "Node: missing name"),
        ({"name": 3}, "Node.name: expected str, got int"),
        ({"name": "n", "colour": 1}, "Node.colour: no such key"),
        ({"name": "n", "reachable": 1}, "Node.reachable: expected bool, got int"),
        ({"name": "n", "gpus": {}}, "Node.gpus: expected a list, got an object"),
        ({"name": "n", "gpus": [{"index": True}]}, "Node.gpus.0.index: expected int, got bool"),
        ({"name": "n", "gpus": [{"index": "0"}]}, "Node.gpus.0.index: expected int, got a string"),
        ({"name": "n", "gpus": [{"gpu_class": "x", "index": 0}]}, "Node.gpus.0.gpu_class: no such"),
        ({"name": "n", "host": None}, "Node.host: expected an object, got null"),
        ({"name": "n", "ports": [{"hca": "m", "port": 1, "kind": "wifi"}]}, "'wifi' is none of"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(data: Any, said: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.from_jsonable(Node, data)

    assert said in str(caught.value)


def test_whole_number_fits_where_a_float_is_asked() -> None:
    host = wire.from_jsonable(Host, {"load_1m": 2})

    assert (host.load_1m, type(host.load_1m)) == (2.0, float)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1" + "0" * 400])
def test_number_that_a_float_cannot_hold_is_refused_by_both_readers(number: str) -> None:
    text = f'{{"load_1m": {number}}}'

    with pytest.raises(wire.WireError, match="load_1m: expected a finite number"):
        wire.from_jsonable(Host, json.loads(text))
    with pytest.raises(ValueError, match="load_1m"):
        TypeAdapter(Host).validate_json(text)


def test_class_is_the_wire_name_of_gpu_class() -> None:
    assert wire.to_jsonable(Gpu(index=0, gpu_class="l4-22g"))["class"] == "l4-22g"


def test_keys_are_sorted_and_text_is_ascii() -> None:
    text = wire.dump_json(Finding("c", Severity.INFO, "s", "ü"))

    assert text.isascii()
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_dictionary_of_strings_is_checked_by_value() -> None:
    request = {"name": "a", "engine": "vllm", "model": "m", "env": {"A": 1}}

    with pytest.raises(wire.WireError, match=r"LaunchRequest\.env\.A: expected str"):
        wire.from_jsonable(LaunchRequest, request)


def test_path_begins_where_the_caller_says() -> None:
    @dataclass(frozen=True)
    class One:
        count: int

    with pytest.raises(wire.WireError, match=r"^spec\.toml\.count: "):
        wire.from_jsonable(One, {"count": "x"}, "spec.toml")
