"""What tries of ports say of two nodes."""

import pytest

from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.reach import LinkProbe, PairVerdict, Reach
from llmgw_core.fleet.fabric_probing import MAX_LINKS, address_of, choose_links, settle

POSSIBLE = PairVerdict(("n1", "n2"), Reach.POSSIBLE, "equal prefix")
PASS = LinkProbe(("a:1", "b:1"), True)
FAIL = LinkProbe(("a:2", "b:2"), False, "10.0.0.2 ETIMEDOUT")
UNTRIED = LinkProbe(("a:3", "b:3"), None, "no address")


@pytest.mark.parametrize(
    ("tried", "verdict"),
    [
        ([PASS, PASS], Reach.PROVEN),
        ([PASS, UNTRIED], Reach.PROVEN),
        ([PASS, FAIL], Reach.POSSIBLE),
        ([FAIL, FAIL], Reach.DIFFERENT),
        ([UNTRIED], Reach.POSSIBLE),
        ([], Reach.POSSIBLE),
    ],
)
def test_tries_settle_a_verdict(tried: list[LinkProbe], verdict: Reach) -> None:
    assert settle(POSSIBLE, tried).verdict is verdict


def test_what_failed_is_in_the_reason() -> None:
    assert "a:2 to b:2: 10.0.0.2 ETIMEDOUT" in settle(POSSIBLE, [PASS, FAIL]).reason


def test_each_port_is_tried_once_and_not_too_many() -> None:
    names = [f"m{number}" for number in range(MAX_LINKS + 2)]
    every = tuple((f"{one}:1", f"{other}:1") for one in names for other in names)
    node = Node("n", ports=tuple(Port(hca=name, port=1) for name in names))

    links = choose_links(PairVerdict(("n1", "n2"), Reach.POSSIBLE, "", None, every), node, node)

    assert [(one.hca, other.hca) for one, other in links] == [
        (name, name) for name in names[:MAX_LINKS]
    ]


@pytest.mark.parametrize(
    ("kind", "gid", "expected"),
    [
        (PortKind.ROCE, "0000:0000:0000:0000:0000:ffff:0a01:0005", "10.1.0.5"),
        (PortKind.ROCE, "fd00:0001:0000:0000:0000:0000:0000:0005", "fd00:1::5"),
        (PortKind.INFINIBAND, "fe80:0000:0000:0000:0200:0000:0055:4822", None),
    ],
)
def test_roce_port_is_tried_at_its_own_address(
    kind: PortKind, gid: str, expected: str | None
) -> None:
    assert address_of(Port(hca="m", port=1, kind=kind, gid=gid)) == expected
