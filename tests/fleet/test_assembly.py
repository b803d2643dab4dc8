"""The picture of the fleet, put together step by step, against the one made of all nodes at once."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.domain.hardware import Gpu, Port, PortKind
from llmgw_core.domain.inventory import Contact, Node, NodeView
from llmgw_core.fleet.assembly import Assembler
from llmgw_core.planning.fabrics import assign_fabrics
from tests.planning.test_subnets import random_port

OVERRIDES = {"n1": "lab"}


def rail(number: int, index: int) -> Port:
    """One of two RoCE ports whose networks join all nodes: planning gives them another fabric than they have."""
    return Port(
        hca=f"mlx5_{index}",
        port=1,
        kind=PortKind.ROCE,
        state="ACTIVE",
        rate_gbps=200.0,
        usable=True,
        fabric=f"roce-10.{index}.0.0/16",
        rx_gbps=float(number),
    )


def random_change(node: Node, rng: random.Random) -> Node:
    """What a second does to a node: mostly numbers, now and then a port, a GPU or the connection."""
    kind = rng.randrange(8)
    if kind == 0 and node.ports:
        return replace(node, ports=(random_port(rng, 0), *node.ports[1:]))
    if kind == 1:
        return replace(node, gpus=(*node.gpus, Gpu(len(node.gpus), gpu_class="h100-80g")))
    if kind == 2:
        return replace(node, reachable=not node.reachable)
    if kind == 3:
        return replace(node, address=rng.choice((None, "10.0.0.7", "10.1.0.7")))
    return replace(
        node,
        ports=tuple(replace(port, rx_gbps=rng.random()) for port in node.ports),
        gpus=tuple(replace(gpu, utilization_percent=rng.randrange(100)) for gpu in node.gpus),
    )


@given(st.randoms(use_true_random=False))
def test_each_picture_is_the_one_made_of_all_nodes_at_once(rng: random.Random) -> None:
    assembler = Assembler(OVERRIDES)
    views = [
        NodeView(
            Node(f"n{n}", ports=(rail(n, 0), rail(n, 1)), address=f"10.9.0.{n}"), Contact.CONNECTED
        )
        for n in range(5)
    ]
    for _ in range(12):
        place = rng.randrange(5)
        views[place] = replace(views[place], node=random_change(views[place].node, rng))
        picture = assembler.assemble(views)
        nodes, fabrics, islands = assign_fabrics([view.node for view in views], OVERRIDES)
        assert [view.node for view in picture.nodes] == list(nodes)
        assert (picture.fabrics, picture.islands) == (fabrics, islands)


def test_a_node_that_did_not_change_is_the_same_object_in_the_next_picture() -> None:
    views = [NodeView(Node(f"n{n}", ports=(rail(n, 0),)), Contact.CONNECTED) for n in range(3)]
    assembler = Assembler({})
    first = assembler.assemble(views)
    views[1] = replace(views[1], node=replace(views[1].node, driver_version="2"))
    second = assembler.assemble(views)

    assert [new is old for new, old in zip(second.nodes, first.nodes, strict=True)] == [
        True,
        False,
        True,
    ]
    assert second.nodes[1].node.driver_version == "2"
