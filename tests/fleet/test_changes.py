"""Changes of a node: put on the old one they make the new one, and what does not fit is refused with its path."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from llmgw_core.domain.delta import diff
from llmgw_core.domain.hardware import Gpu, Host, Port
from llmgw_core.domain.inventory import Node, NodeFault
from llmgw_core.domain.wire import WireError
from llmgw_core.fleet.changes import patch
from tests.domain.test_wire import JSON, NODES, QUICK

NODE = Node(
    "n1",
    host=Host(load_1m=1.0, cpu_count=8),
    gpus=(Gpu(0, power_watts=70.0), Gpu(1, power_watts=71.0)),
    ports=(Port("mlx5_0", 1),),
)


@QUICK
@given(NODES, NODES)
def test_changes_make_the_new_node_of_the_old(old: Node, new: Node) -> None:
    assert patch(old, json.loads(json.dumps(diff(old, new)))) == new


def test_only_what_differs_is_told() -> None:
    new = replace(
        NODE,
        host=replace(NODE.host, load_1m=2.5),
        gpus=(NODE.gpus[0], replace(NODE.gpus[1], power_watts=400.0)),
    )
    assert diff(NODE, new) == {"host": {"load_1m": 2.5}, "gpus": {"1": {"power_watts": 400.0}}}


def test_what_did_not_change_is_the_same_object() -> None:
    new = patch(NODE, {"gpus": {"1": {"power_watts": 400.0}}})
    assert (new.gpus[0], new.ports) == (NODE.gpus[0], NODE.ports)
    assert new.gpus[0] is NODE.gpus[0]
    assert new.ports is NODE.ports


def test_a_list_that_changed_its_length_is_told_whole() -> None:
    changes = diff(NODE, replace(NODE, gpus=NODE.gpus[:1]))
    assert isinstance(changes["gpus"], list)


def test_an_object_that_may_be_missing_is_told_whole() -> None:
    old = replace(NODE, error=NodeFault("a", "b", "c"))
    new = replace(NODE, error=NodeFault("a", "other", "c"))
    assert diff(old, new) == {"error": {"code": "a", "message": "other", "hint": "c"}}
    assert diff(new, NODE) == {"error": None}


@given(JSON)
def test_any_json_is_changes_or_a_wire_error(data: Any) -> None:
    try:
        built = patch(NODE, data)
    except WireError:
        return
    assert isinstance(built, Node)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], "Node: expected an object of changes"),
        ({"name": 3}, "Node.name: expected str"),
        ({"reachable": 1}, "Node.reachable: expected bool"),
        ({"host": {"load_1m": float("nan")}}, "Node.host.load_1m: expected a finite number"),
        ({"host": {"cpu_count": True}}, "Node.host.cpu_count: expected int, got bool"),
        ({"host": None}, "Node.host: expected an object of changes"),
        ({"gpus": {"2": {}}}, "Node.gpus.2: there are 2"),
        ({"gpus": {"-1": {}}}, "Node.gpus.-1: there are 2"),
        ({"gpus": {"1": {"index": "0"}}}, "Node.gpus.1.index: expected int"),
        ({"gpus": None}, "Node.gpus: expected a list"),
        ({"driver_version": "\ud800"}, "Node.driver_version: it is no text"),
        ({"gpus": [{"index": 0, "name": "\ud800"}]}, "Node.gpus: it is no text"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(changes: Any, said: str) -> None:
    with pytest.raises(WireError) as caught:
        patch(NODE, changes)
    assert said in str(caught.value)


def test_a_whole_number_fits_where_a_float_is_asked() -> None:
    host = patch(NODE, {"host": {"load_1m": 2}}).host
    assert (host.load_1m, type(host.load_1m)) == (2.0, float)


def test_what_a_newer_agent_tells_besides_is_left_out() -> None:
    changes = {
        "colour": 1,
        "host": {"load_1m": 2.5, "aura": "calm"},
        "error": {"code": "a", "message": "b", "hint": "c", "mood": 3},
        "gpus": [
            {
                "index": 0,
                "soul": None,
                "health": [
                    {"code": "x", "severity": "info", "message": "m", "hint": "h", "omen": 1}
                ],
            }
        ],
    }
    known = {
        "host": {"load_1m": 2.5},
        "error": {"code": "a", "message": "b", "hint": "c"},
        "gpus": [
            {"index": 0, "health": [{"code": "x", "severity": "info", "message": "m", "hint": "h"}]}
        ],
    }

    assert patch(NODE, changes) == patch(NODE, known)
    assert patch(NODE, {"gpus": {"1": {"soul": 1}}}) is not None
