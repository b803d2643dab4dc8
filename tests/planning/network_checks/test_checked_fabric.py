"""Ports and networks of a launch over several nodes, judged before it."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from llmgw_core.domain import network as net
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import PortNote
from llmgw_core.domain.network import (
    Interface,
    InterfaceAddress,
)
from llmgw_core.planning.network_checks.situation import Side, Situation
from tests.support.situations import (
    ERROR,
    INFO,
    WARNING,
    facts,
    found,
    ib,
    launch,
    pair,
    roce,
    says,
    side,
)


def on(name: str, address: str, prefix: int = 24, **changes: object) -> Interface:
    made = Interface(name, (InterfaceAddress(address, prefix),), net.PHYSICAL, 9000, True, True)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_two_adapters_in_one_network_answer_for_each_other() -> None:
    interfaces = [on("n0", "10.0.0.1", arp_ignore=0), on("n1", "10.0.0.3", arp_ignore=0)]
    quiet = [replace(item, arp_ignore=1) for item in interfaces]
    other = side("b", roce(ip=0x0A000002), roce("mlx5_1", ip=0x0A000004))

    def first(items: Iterable[Interface]) -> Side:
        ports = (roce(ip=0x0A000001), roce("mlx5_1", ip=0x0A000003))
        return side("a", *ports, network=facts(interfaces=tuple(items)))

    assert says(launch(first(interfaces), other), "roce-subnet") == [(WARNING, "a")]
    assert says(launch(first(quiet), other), "roce-subnet") == []


def test_an_adapter_for_each_network_makes_rails() -> None:
    case = launch(
        side("a", roce(ip=0x0A000001), roce("mlx5_1", ip=0x0A000101)),
        side("b", roce(ip=0x0A000002), roce("mlx5_1", ip=0x0A000102)),
    )

    (told,) = found(case, "roce-subnet")

    assert told.severity is WARNING
    assert "rails" in told.what


def ring(*, nccl: tuple[int, ...]) -> Situation:
    cables = {"a": (1, 3), "b": (2, 1), "c": (3, 2)}
    sides = [
        side(
            name,
            *(roce(f"mlx5_{n}", ip=(10 << 24) + (net << 8) + n + 1) for n, net in enumerate(own)),
            chosen=(),
        )
        for name, own in cables.items()
    ]
    return launch(*sides, kind=None, nccl=nccl)


def test_ring_of_cables_needs_an_nccl_that_knows_rings() -> None:
    assert says(ring(nccl=(2, 30, 7)), "roce-subnet") == [(WARNING, None)]
    assert says(ring(nccl=(2, 27, 3)), "roce-subnet") == [(ERROR, None)]


def test_routed_point_to_point_networks_disprove_nothing() -> None:
    sides = [
        side(
            name,
            roce(ip=(10 << 24) + last),
            network=facts(interfaces=(on("n0", f"10.0.0.{last}", 31),)),
            chosen=(),
        )
        for name, last in (("a", 1), ("b", 5))
    ]

    case = launch(*sides, kind=None)

    assert says(case, "roce-subnet") == [(INFO, None)]
    assert says(case, "active-probe") == [(WARNING, None)]


@pytest.mark.parametrize(
    ("mtus", "expected"),
    [((4096, 1024), [ERROR]), ((1024, 1024), [INFO]), ((4096, 4096), [])],
)
def test_mtu_of_all_ports(mtus: tuple[int, int], expected: list[Severity]) -> None:
    sides = [
        side(
            name,
            roce(ip=0x0A000001 + n),
            chosen=(replace(roce(ip=0x0A000001 + n), mtu_bytes=mtu),),
        )
        for n, (name, mtu) in enumerate(zip("ab", mtus, strict=True))
    ]

    assert [item.severity for item in found(launch(*sides), "mtu")] == expected


def test_port_that_changed_between_two_looks_flaps() -> None:
    assert says(launch(*pair(port_states={"mlx5_0:1": "DOWN"})), "port-active") == [(ERROR, "a")]


def test_port_that_waits_for_a_subnet_manager() -> None:
    waiting = ib("mlx5_1", 9, usable=False, state="INIT")
    waiting = replace(waiting, sm_lid=None, excluded=PortNote("not-active", "INIT, LinkUp"))

    alone = launch(side("a", waiting), side("b", ib(number=2)))
    beside = launch(side("a", ib(number=1), waiting), side("b", ib(number=2)))

    assert says(alone, "port-active") == [(ERROR, "a")]
    assert says(beside, "port-active") == [(WARNING, "a")]


def test_adapters_that_are_for_something_else() -> None:
    suspect = ib(number=1, suspect=PortNote("far-from-gpus", "closest GPU distance NODE"))
    managing = ib(
        "mlx5_4", 4, usable=False, excluded=PortNote("nvswitch-management", "4 functions")
    )
    idle = replace(ib("mlx5_9", 8, usable=False, vf=True), state="DOWN")

    case = launch(side("a", suspect, managing, idle), side("b", ib(number=2)))

    assert says(case, "nonfabric-hca") == [(WARNING, "a"), (WARNING, "a"), (INFO, "a")]


def test_other_link_layer_is_told() -> None:
    ethernet = roce("mlx5_9", usable=False, excluded=PortNote("other-link-layer", ""))

    case = launch(side("a", ib(number=1), ethernet), side("b", ib(number=2)))

    assert says(case, "link-layer-mixed") == [(INFO, "a")]


def test_one_machine_under_two_names_is_told() -> None:
    case = launch(side("a", ib(number=1)), side("b", ib(number=1)))

    assert says(case, "common-fabric") == [(WARNING, "b")]


def test_unequal_numbers_of_ports_are_told() -> None:
    spare = ib("mlx5_1", 5, usable=False, excluded=PortNote("other-fabric", ""))

    case = launch(side("a", ib(number=1), spare), side("b", ib(number=2)))

    assert says(case, "hca-per-node") == [(WARNING, None)]
