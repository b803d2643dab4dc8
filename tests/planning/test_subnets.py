"""Large clusters are judged by shortcuts: here against the plain rules, one node or pair at a time."""

import random
from collections.abc import Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Node
from llmgw_core.planning.fabric_verdicts import (
    is_same_port,
    judge_pair,
    judge_pairs,
    lids_of,
    share_pkey,
)
from llmgw_core.planning.subnets import Subnets

RANDOMS = st.randoms(use_true_random=False)
TABLES = ((), ("0xffff",), ("0x7fff",), ("0x8001",), ("0x0001", "0x0000"), ("0x8002", "0x8001"))


def random_nodes(rng: random.Random) -> tuple[Node, ...]:
    """A few nodes of few different values, so that LIDs, ports, prefixes, partitions and networks meet."""
    return tuple(
        Node(f"n{number}", ports=random_ports(rng), reachable=rng.random() < 0.9)
        for number in range(rng.randint(2, 9))
    )


def random_ports(rng: random.Random) -> tuple[Port, ...]:
    return tuple(random_port(rng, index) for index in range(rng.randint(0, 3)))


def random_port(rng: random.Random, index: int) -> Port:
    is_infiniband = rng.random() < 0.7
    prefix = rng.choice(("fe80:0000:0000:0000", "fec0:0000:0000:0001"))
    network = rng.choice(("10.0.0.0/24", "10.0.1.0/24"))
    return Port(
        hca=f"mlx5_{index}",
        port=1,
        kind=PortKind.INFINIBAND if is_infiniband else PortKind.ROCE,
        state=rng.choice(("ACTIVE", "ACTIVE", "ACTIVE", "DOWN")),
        lid=rng.choice((None, rng.randint(1, 6), rng.randint(1, 60))),
        lmc=rng.choice((None, 0, 1)),
        sm_lid=rng.choice((None, 1, 1, 2)),
        pkeys=rng.choice(TABLES),
        gid=rng.choice((None, f"{prefix}:0000:0000:0000:{rng.randint(1, 20):04x}")),
        node_guid=rng.choice((None, "0000:0000:0000:0001")),
        fabric=f"ib-{prefix.replace(':', '')}" if is_infiniband else f"roce-{network}",
    )


class PlainSubnets:
    """The rule itself: ask each subnet in turn."""

    def __init__(self) -> None:
        self.known: list[tuple[dict[int, Port], set[tuple[str, ...]]]] = []

    def place(self, ports: Sequence[Port]) -> int:
        place = next(
            (number for number, subnet in enumerate(self.known) if self.admits(*subnet, ports)),
            len(self.known),
        )
        if place == len(self.known):
            self.known.append(({}, set()))
        owners, tables = self.known[place]
        owners.update((lid, port) for port in ports for lid in lids_of(port))
        tables.update(port.pkeys for port in ports)
        return place

    @staticmethod
    def admits(
        owners: dict[int, Port], tables: set[tuple[str, ...]], ports: Sequence[Port]
    ) -> bool:
        taken = [
            owners[lid]
            for port in ports
            for lid in lids_of(port)
            if lid in owners and not is_same_port(owners[lid], port)
        ]
        own = {port.pkeys for port in ports}
        return not taken and all(any(share_pkey(one, other) for one in own) for other in tables)


@given(RANDOMS)
def test_a_node_is_placed_as_if_each_subnet_was_asked_in_turn(rng: random.Random) -> None:
    groups = [random_ports(rng) for _ in range(40)]
    quick, plain = Subnets(), PlainSubnets()
    placed = [quick.place(ports) for ports in groups if ports]
    assert placed == [plain.place(ports) for ports in groups if ports]


@given(RANDOMS)
def test_all_pairs_are_judged_as_each_is_alone(rng: random.Random) -> None:
    nodes = random_nodes(rng)
    proven = {
        frozenset((one.name, other.name))
        for number, (one, other) in enumerate(combinations(nodes, 2))
        if number % 3 == 0
    }
    overrides = {"n0": "a", "n1": "b", "n2": "a"} if rng.random() < 0.5 else {}
    alone = tuple(
        judge_pair(one, other, overrides, is_proven=frozenset((one.name, other.name)) in proven)
        for one, other in combinations(nodes, 2)
    )
    assert judge_pairs(nodes, overrides, proven) == alone


def test_a_node_cannot_claim_more_lids_than_the_standard_has() -> None:
    assert len(lids_of(Port("mlx5_0", 1, lid=1, lmc=1 << 60))) == 128
    assert len(lids_of(Port("mlx5_0", 1, lid=1, lmc=-1))) == 1
