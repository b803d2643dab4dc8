"""Fabrics and islands across nodes: who can reach whom, and what the operator's word changes."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.domain import wire
from llmgw_core.domain.fabric import fabric_key, parse_gid
from llmgw_core.domain.hardware import Gpu, Port, PortKind
from llmgw_core.domain.inventory import Fabric, Inventory, Island, Node
from llmgw_core.domain.reach import Reach
from llmgw_core.planning.fabrics import assign_fabrics, build_inventory

IB = "ib-fe80000000000000"


def ib(fabric: str = IB, rate: float = 400.0, state: str = "ACTIVE") -> Port:
    return Port(
        hca="mlx5_0", port=1, kind=PortKind.INFINIBAND, state=state, rate_gbps=rate, fabric=fabric
    )


def roce(fabric: str = "roce-10.1.0.0/24", rate: float = 400.0) -> Port:
    return Port(
        hca="mlx5_1", port=1, kind=PortKind.ROCE, state="ACTIVE", rate_gbps=rate, fabric=fabric
    )


def node(name: str, *ports: Port, gpus: tuple[str, ...] = ()) -> Node:
    cards = tuple(Gpu(index=number, gpu_class=kind) for number, kind in enumerate(gpus))
    return Node(name=name, ports=ports, gpus=cards)


def islands_of(*nodes: Node, overrides: dict[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    _, _, islands = assign_fabrics(nodes, overrides)
    return {island.id: island.nodes for island in islands}


def test_node_without_adapter_is_an_island_named_by_it() -> None:
    nodes, fabrics, islands = assign_fabrics([node("n1", gpus=("l4-22g",))])

    assert nodes[0].island == "n1"
    assert fabrics == ()
    assert islands == (Island("n1", None, ("n1",), {"l4-22g": 1}),)


def test_nodes_that_share_a_fabric_are_one_island_in_natural_order() -> None:
    nodes, fabrics, islands = assign_fabrics(
        [node("n10", ib(), gpus=("h100-80g",) * 2), node("n2", ib(), gpus=("h100-80g",) * 2)]
    )

    assert [found.island for found in nodes] == [IB, IB]
    assert [(found.id, found.kind, found.nodes) for found in fabrics] == [
        (IB, "infiniband", ("n2", "n10"))
    ]
    assert fabrics[0].verdict is Reach.POSSIBLE
    assert islands == (Island(IB, IB, ("n2", "n10"), {"h100-80g": 4}),)


def test_different_fabrics_are_different_islands() -> None:
    a, b = roce("roce-10.1.0.0/24"), roce("roce-10.2.0.0/24")

    found = islands_of(node("n1", a), node("n2", a), node("n3", b), node("n4", b))

    assert found == {"roce-10.1.0.0/24": ("n1", "n2"), "roce-10.2.0.0/24": ("n3", "n4")}


def test_infiniband_comes_before_a_faster_roce() -> None:
    both = (ib(rate=100.0), roce(rate=800.0))

    assert islands_of(node("n1", *both), node("n2", *both)) == {IB: ("n1", "n2")}


def test_of_two_roce_fabrics_the_faster_one_is_taken() -> None:
    slow, fast = roce("roce-10.0.0.0/24", 25.0), roce("roce-10.9.0.0/24", 400.0)

    found = islands_of(node("n1", slow, fast), node("n2", slow, fast))

    assert found == {"roce-10.9.0.0/24": ("n1", "n2")}


def test_node_left_over_by_the_better_fabric_stands_alone() -> None:
    found = islands_of(node("n1", ib(), roce()), node("n2", ib(), roce()), node("n3", roce()))

    assert found == {IB: ("n1", "n2"), "n3": ("n3",)}


def test_fabric_of_its_own_does_not_keep_a_node_from_a_shared_one() -> None:
    found = islands_of(node("n1", ib(), roce()), node("n2", roce()))

    assert found == {"roce-10.1.0.0/24": ("n1", "n2")}


def test_port_that_is_down_joins_nothing() -> None:
    nodes, fabrics, _ = assign_fabrics([node("n1", ib()), node("n2", ib(state="DOWN"))])

    assert nodes[1].ports[0].fabric is None
    assert fabrics == (Fabric(IB, "infiniband", ("n1",)),)


def test_lone_node_with_adapter_names_its_fabric() -> None:
    _, _, islands = assign_fabrics([node("n1", ib())])

    assert islands == (Island("n1", IB, ("n1",), {}),)


def test_operator_parts_nodes_that_look_alike() -> None:
    nodes = [node(f"n{number}", ib()) for number in (1, 2, 3, 4)]

    found = islands_of(
        *nodes, overrides={"n1": "rack-a", "n2": "rack-a", "n3": "rack-b", "n4": "rack-b"}
    )

    assert found == {"rack-a": ("n1", "n2"), "rack-b": ("n3", "n4")}


def test_operator_joins_what_looks_different() -> None:
    nodes, fabrics, _ = assign_fabrics(
        [node("n1", roce("roce-10.1.0.0/31")), node("n2", roce("roce-10.2.0.0/31"))],
        {"n1": "routed", "n2": "routed"},
    )

    assert [found.ports[0].fabric for found in nodes] == ["routed", "routed"]
    assert fabrics == (
        Fabric("routed", "roce", ("n1", "n2"), (), Reach.PROVEN, "cluster.toml says so"),
    )


def test_operators_word_holds_for_a_node_without_adapter() -> None:
    _, fabrics, islands = assign_fabrics([node("n1"), node("n2")], {"n1": "tcp", "n2": "tcp"})

    assert fabrics == (
        Fabric("tcp", "unknown", ("n1", "n2"), (), Reach.PROVEN, "cluster.toml says so"),
    )
    assert islands[0].nodes == ("n1", "n2")


def test_unreachable_node_stays_where_its_last_reading_put_it() -> None:
    lost = replace(node("n2", ib()), reachable=False)

    assert islands_of(node("n1", ib()), lost) == {IB: ("n1", "n2")}


def test_unreachable_node_never_heard_of_stands_alone() -> None:
    assert islands_of(node("n1", ib()), Node(name="n2", reachable=False)) == {
        "n1": ("n1",),
        "n2": ("n2",),
    }


def test_gpus_of_unknown_class_are_not_counted() -> None:
    _, _, islands = assign_fabrics([Node(name="n1", gpus=(Gpu(index=0),))])

    assert islands[0].gpu_classes == {}


def test_inventory_is_the_same_whatever_order_nodes_answer_in() -> None:
    nodes = [node("n1", ib()), node("n2", ib()), node("n10")]
    stamp = "2026-01-01T00:00:00Z"

    texts = {wire.dump_json(build_inventory(order, stamp)) for order in (nodes, nodes[::-1])}

    assert len(texts) == 1
    document = wire.from_jsonable(Inventory, json.loads(texts.pop()))
    assert [found.name for found in document.nodes] == ["n1", "n2", "n10"]


PORTS = st.lists(
    st.builds(
        lambda kind, fabric, rate, state: Port(
            hca="h", port=1, kind=kind, fabric=fabric, rate_gbps=rate, state=state
        ),
        st.sampled_from(PortKind),
        st.sampled_from([None, IB, "roce-a", "roce-b"]),
        st.sampled_from([None, 100.0, 400.0]),
        st.sampled_from(["ACTIVE", "DOWN", None]),
    ),
    max_size=3,
)


@given(st.lists(PORTS, max_size=6), st.sampled_from([{}, {"n0": "n1", "n3": "n1"}]))
def test_every_node_is_in_exactly_one_island(
    ports: list[list[Port]], overrides: dict[str, str]
) -> None:
    nodes = [node(f"n{number}", *each) for number, each in enumerate(ports)]

    filled, _, islands = assign_fabrics(nodes, overrides)

    members = [name for island in islands for name in island.nodes]
    assert sorted(members) == sorted(found.name for found in filled)
    assert len({island.id for island in islands}) == len(islands)
    assert {found.name: found.island for found in filled} == {
        name: island.id for island in islands for name in island.nodes
    }


@pytest.mark.parametrize(
    ("kind", "gid", "prefix", "expected"),
    [
        (
            PortKind.INFINIBAND,
            "fec0:0000:0000:0001:0002:0003:0004:0005",
            None,
            "ib-fec0000000000001",
        ),
        (PortKind.ROCE, "0000:0000:0000:0000:0000:ffff:0a01:0305", 16, "roce-10.1.0.0/16"),
        (PortKind.ROCE, "0000:0000:0000:0000:0000:ffff:0a01:0305", 31, "roce-10.1.3.4/31"),
        (PortKind.ROCE, "0000:0000:0000:0000:0000:ffff:0a01:0305", None, "roce-10.1.3.0/24"),
        (PortKind.ROCE, "fe80:0000:0000:0000:0200:00ff:fe00:0001", None, None),
        (PortKind.ROCE, "0000:0000:0000:0000:0000:ffff:a9fe:0305", None, None),
        (PortKind.SOFT_ROCE, "0000:0000:0000:0000:0000:ffff:0a01:0305", 24, None),
        (PortKind.INFINIBAND, "0000:0000:0000:0000:0000:0000:0000:0000", None, None),
        (PortKind.INFINIBAND, "rubbish", None, None),
        (PortKind.INFINIBAND, None, None, None),
    ],
)
def test_fabric_of_a_port(
    kind: PortKind, gid: str | None, prefix: int | None, expected: str | None
) -> None:
    port = Port(hca="mlx5_0", port=1, kind=kind, state="ACTIVE", gid=gid)

    assert fabric_key(port, prefix) == expected


@given(st.text())
def test_any_text_is_a_gid_or_none(text: str) -> None:
    parse_gid(text)
    fabric_key(Port(hca="h", port=1, kind=PortKind.ROCE, state="ACTIVE", gid=text))
