"""Whether two nodes can be on one fabric: what disproves it, what never proves it, and who is believed."""

from dataclasses import replace
from typing import Any

import pytest

from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.reach import Reach
from llmgw_core.planning.fabric_verdicts import judge_pair, judge_pairs, share_pkey
from llmgw_core.planning.fabrics import assign_fabrics

IB = "ib-fe80000000000000"


def ib(lid: int, prefix: str = "fe80:0000:0000:0000", **changes: Any) -> Port:
    port = Port(
        hca="mlx5_0",
        port=1,
        kind=PortKind.INFINIBAND,
        state="ACTIVE",
        rate_gbps=400.0,
        usable=True,
        lid=lid,
        sm_lid=1,
        lmc=0,
        gid=f"{prefix}:0200:0000:0055:{lid:04x}",
        fabric=f"ib-{prefix.replace(':', '')}",
    )
    return replace(port, **changes)


def roce(network: str, hca: str = "mlx5_1", **changes: Any) -> Port:
    port = Port(
        hca=hca,
        port=1,
        kind=PortKind.ROCE,
        state="ACTIVE",
        rate_gbps=200.0,
        usable=True,
        fabric=f"roce-{network}",
    )
    return replace(port, **changes)


def node(name: str, *ports: Port, address: str | None = None) -> Node:
    return Node(name=name, ports=ports, address=address)


@pytest.mark.parametrize(
    ("one", "other", "verdict", "words"),
    [
        (ib(1), ib(2), Reach.POSSIBLE, "probe"),
        (ib(1), ib(2, "fec0:0000:0000:0001"), Reach.DIFFERENT, "prefixes differ"),
        (ib(1), ib(2, sm_lid=7), Reach.DIFFERENT, "subnet managers differ"),
        (ib(1), ib(2, sm_lid=None), Reach.POSSIBLE, "probe"),
        (ib(5), ib(5, gid="fe80:0000:0000:0000:0200:0000:0066:0005"), Reach.DIFFERENT, "LID 0x5"),
        (ib(4, lmc=2), ib(6), Reach.DIFFERENT, "LID 0x6"),
        (ib(5), ib(5), Reach.POSSIBLE, "one machine under two names"),
        (ib(1, pkeys=("0x7fff",)), ib(2, pkeys=("0x7fff",)), Reach.DIFFERENT, "partition"),
        (ib(1), roce("10.1.0.0/24"), Reach.DIFFERENT, "link layers differ"),
        (roce("10.1.0.0/24"), roce("10.1.0.0/24"), Reach.POSSIBLE, "10.1.0.0/24"),
        (roce("10.1.0.0/31"), roce("10.1.0.4/31"), Reach.POSSIBLE, "disproves nothing"),
    ],
)
def test_verdict_on_two_ports(one: Port, other: Port, verdict: Reach, words: str) -> None:
    found = judge_pair(node("n1", one), node("n2", other))

    assert found.verdict is verdict
    assert words in found.reason


def test_node_without_adapter_shares_no_fabric() -> None:
    found = judge_pair(node("n1", ib(1)), node("n2"))

    assert (found.verdict, found.reason) == (
        Reach.DIFFERENT,
        "n2 has no InfiniBand or RoCE adapter",
    )


def test_of_a_silent_node_nothing_is_known() -> None:
    found = judge_pair(node("n1", ib(1)), Node(name="n2", reachable=False))

    assert found.verdict is Reach.POSSIBLE


def test_node_without_adapter_shares_none_with_a_silent_one_either() -> None:
    found = judge_pair(Node(name="n1", reachable=False), node("n2"))

    assert found.verdict is Reach.DIFFERENT


@pytest.mark.parametrize(
    ("fabrics", "verdict"),
    [({"n1": "x", "n2": "x"}, Reach.PROVEN), ({"n1": "x", "n2": "y"}, Reach.DIFFERENT)],
)
def test_operators_word_wins(fabrics: dict[str, str], verdict: Reach) -> None:
    other = ib(2, sm_lid=7) if verdict is Reach.PROVEN else ib(2)

    assert judge_pair(node("n1", ib(1)), node("n2", other), fabrics).verdict is verdict


def test_a_probe_proves_what_is_possible_and_nothing_that_is_disproved() -> None:
    nodes = [node("n1", ib(1)), node("n2", ib(2)), node("n3", ib(3, sm_lid=7))]
    proven = [frozenset(("n1", "n2")), frozenset(("n1", "n3"))]

    found = {pair.nodes: pair.verdict for pair in judge_pairs(nodes, proven=proven)}

    assert found[("n1", "n2")] is Reach.PROVEN
    assert found[("n1", "n3")] is Reach.DIFFERENT


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("0xffff",), ("0x7fff",), True),
        (("0x7fff", "0x8123"), ("0x7fff", "0x8123"), True),
        (("0x7fff",), ("0x7fff",), False),
        (("0xffff",), ("0x8001",), False),
        (("0xffff", "0x0000", "0x8001"), ("0x0000", "0x8001"), True),
        ((), ("0x8001",), True),
    ],
)
def test_partition_needs_a_full_member(
    first: tuple[str, ...], second: tuple[str, ...], expected: bool
) -> None:
    assert share_pkey(first, second) is expected


def test_nodes_of_two_subnets_with_one_prefix_are_two_islands() -> None:
    nodes = [
        node("n1", ib(1)),
        node("n2", ib(2)),
        node("n3", ib(3, sm_lid=7)),
        node("n4", ib(4, sm_lid=7)),
    ]

    _, _, islands = assign_fabrics(nodes)

    assert {island.id: island.nodes for island in islands} == {
        f"{IB}-sm1": ("n1", "n2"),
        f"{IB}-sm7": ("n3", "n4"),
    }


def test_nodes_with_one_lid_are_two_islands() -> None:
    twin = ib(5, gid="fe80:0000:0000:0000:0200:0000:0066:0005")

    _, _, islands = assign_fabrics([node("n1", ib(5)), node("n2", twin), node("n3", ib(7))])

    assert [island.nodes for island in islands] == [("n1", "n3"), ("n2",)]


def test_networks_of_the_same_nodes_are_rails_of_one_fabric() -> None:
    rails = (roce("10.1.0.0/25", "mlx5_0"), roce("10.1.0.128/25", "mlx5_1"))

    nodes, fabrics, islands = assign_fabrics([node("n1", *rails), node("n2", *rails)])

    assert fabrics[0].networks == ("10.1.0.0/25", "10.1.0.128/25")
    assert [island.nodes for island in islands] == [("n1", "n2")]
    assert all(port.usable for port in nodes[0].ports)


def test_network_by_which_nodes_are_reached_goes_before_another_one() -> None:
    both = (roce("10.0.0.0/24", "mlx5_0"), roce("10.100.0.0/24", "mlx5_1"))

    nodes, _, _ = assign_fabrics(
        [node("n1", *both, address="10.100.0.1"), node("n2", *both, address="10.100.0.2")]
    )

    first, second = nodes[0].ports
    assert first.excluded is not None
    assert (first.excluded.code, second.usable) == ("other-network", True)


def test_port_that_the_other_node_has_no_match_for_is_not_used() -> None:
    nodes, _, _ = assign_fabrics(
        [
            node("n1", roce("10.1.0.0/24", "a"), roce("10.2.0.0/24", "b")),
            node("n2", roce("10.1.0.0/24", "a")),
        ]
    )

    assert [port.usable for port in nodes[0].ports] == [True, False]
