"""Which ports of a node engines should use: what excludes one, what only makes it suspect."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.port_choice import choose_kind, judge_ports

IPV4 = "0000:0000:0000:0000:0000:ffff:0a01:0005"


def ib(name: str, pci: str = "", **changes: Any) -> Port:
    number = int(name.split("_")[1])
    port = Port(
        hca=name,
        port=1,
        link_layer="InfiniBand",
        kind=PortKind.INFINIBAND,
        state="ACTIVE",
        physical_state="LinkUp",
        rate_gbps=400.0,
        lid=number + 1,
        sm_lid=1,
        gid=f"fe80:0000:0000:0000:0200:0000:0055:{number:04x}",
        pci_bus_id=pci or f"0000:{0x10 + number:02x}:00.0",
    )
    return replace(port, **changes)


def roce(name: str, **changes: Any) -> Port:
    port = Port(
        hca=name,
        port=1,
        link_layer="Ethernet",
        kind=PortKind.ROCE,
        state="ACTIVE",
        rate_gbps=400.0,
        gid=IPV4,
        gid_type="RoCE v2",
        netdev="ens1",
    )
    return replace(port, **changes)


def excluded(*ports: Port) -> dict[str, str]:
    return {port.hca: port.excluded.code for port in judge_ports(ports) if port.excluded}


@pytest.mark.parametrize(
    ("port", "code", "words"),
    [
        (ib("mlx5_0", state="DOWN", physical_state="Disabled"), "not-active", "DOWN, Disabled"),
        (ib("mlx5_0", state="INIT", sm_lid=None), "not-active", "no subnet manager"),
        (ib("mlx5_0", state=None), "not-active", "cannot be read"),
        (ib("mlx5_0", vf=True, state="DOWN"), "not-active", "virtual function"),
        (ib("hfi1_0", kind=PortKind.OMNI_PATH), "omni-path", "Omni-Path"),
        (ib("mlx5_0", gid=None), "no-gid", "empty"),
        (ib("mlx5_0", uverbs="uverbs0", uverbs_access="EPERM"), "no-access", "uverbs0"),
        (roce("m", gid="fe80:0000:0000:0000:0200:00ff:fe00:0001"), "no-gid", "link-local"),
        (roce("m", gid_type="IB/RoCE v1"), "no-gid", "no RoCE v2"),
        (roce("m", netdev=None), "foreign-netns", "netdev"),
        (roce("rxe0", kind=PortKind.SOFT_ROCE), "soft-roce", "software"),
    ],
)
def test_what_a_port_cannot_do_excludes_it(port: Port, code: str, words: str) -> None:
    (judged,) = judge_ports([port])

    assert judged.excluded is not None
    assert (judged.usable, judged.excluded.code) == (False, code)
    assert words in judged.excluded.reason


def test_a_port_with_nothing_against_it_is_usable() -> None:
    (judged,) = judge_ports([ib("mlx5_0", uverbs_access="ok")])

    assert (judged.usable, judged.excluded, judged.suspect) == (True, None, None)


def test_roce_is_left_out_beside_infiniband() -> None:
    assert excluded(ib("mlx5_0"), roce("mlx5_1", rate_gbps=100.0)) == {"mlx5_1": "other-link-layer"}


def test_one_infiniband_port_for_storage_does_not_rule_out_eight_of_roce() -> None:
    ports = [roce(f"r{number}") for number in range(8)]

    assert excluded(ib("mlx5_0"), *ports) == {"mlx5_0": "other-link-layer"}


def test_of_equal_sums_infiniband_is_chosen() -> None:
    assert choose_kind([roce("r"), ib("mlx5_0")]) is PortKind.INFINIBAND


def test_infiniband_of_unknown_rate_is_not_outbid() -> None:
    assert choose_kind([roce("r"), ib("mlx5_0", rate_gbps=None)]) is PortKind.INFINIBAND


def test_port_of_half_the_usual_rate_is_left_out_and_suspect() -> None:
    *_, slow = judge_ports([roce("r0"), roce("r1"), roce("r2", rate_gbps=25.0)])

    assert slow.excluded is not None
    assert slow.excluded.code == "slower"
    assert slow.suspect == slow.excluded


def test_four_functions_of_one_slot_are_nvswitch_management() -> None:
    functions = [ib(f"mlx5_{number}", f"0000:05:00.{number}", sm_lid=9) for number in range(4)]
    compute = [ib(f"mlx5_{number}") for number in range(4, 8)]

    assert set(excluded(*functions, *compute).values()) == {"nvswitch-management"}
    assert all(port.usable for port in judge_ports([*functions, *compute])[4:])


def test_two_functions_of_one_card_are_an_ordinary_dual_port_card() -> None:
    assert excluded(ib("mlx5_0", "0000:05:00.0"), ib("mlx5_1", "0000:05:00.1")) == {}


def test_ports_of_a_small_subnet_of_their_own_are_left_out() -> None:
    ports = [ib(f"mlx5_{number}") for number in range(4)]

    assert excluded(*ports, ib("mlx5_9", sm_lid=7)) == {"mlx5_9": "other-subnet"}


def test_two_planes_of_equal_size_are_both_kept() -> None:
    ports = [ib(f"mlx5_{number}", sm_lid=number % 2 + 1) for number in range(4)]

    assert excluded(*ports) == {}


def test_virtual_function_beside_its_own_physical_one_is_left_out() -> None:
    whole = ib("mlx5_0", "0000:18:00.0")
    virtual = ib("mlx5_1", "0000:18:00.1", vf=True, pf_pci_bus_id="0000:18:00.0")

    assert excluded(whole, virtual) == {"mlx5_1": "virtual-function"}


def test_virtual_function_alone_is_what_the_node_has() -> None:
    assert excluded(ib("mlx5_1", vf=True, pf_pci_bus_id="0000:18:00.0")) == {}


def test_port_farther_from_gpus_than_its_siblings_is_suspect_and_usable() -> None:
    near = [ib(f"mlx5_{number}", gpu_distance="PIX") for number in range(2)]

    *_, far = judge_ports([*near, ib("mlx5_2", gpu_distance="NODE")])

    assert far.usable
    assert far.suspect is not None
    assert far.suspect.code == "far-from-gpus"


def test_where_most_ports_are_far_from_gpus_none_is_suspect() -> None:
    far = [ib(f"mlx5_{number}", gpu_distance="PHB") for number in range(3)]

    judged = judge_ports([ib("mlx5_9", gpu_distance="PIX"), *far])

    assert [port.suspect for port in judged] == [None] * 4


PORTS = st.lists(
    st.builds(
        Port,
        hca=st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_2"]),
        port=st.integers(1, 2),
        kind=st.sampled_from(PortKind),
        state=st.sampled_from(["ACTIVE", "DOWN", "INIT", None]),
        rate_gbps=st.sampled_from([None, 25.0, 400.0]),
        sm_lid=st.sampled_from([None, 1, 2]),
        gid=st.sampled_from([None, IPV4, "fe80:0000:0000:0000:0200:0000:0055:0001", "x"]),
        gid_type=st.sampled_from([None, "RoCE v2", "IB/RoCE v1"]),
        netdev=st.sampled_from([None, "ens1"]),
        pci_bus_id=st.sampled_from([None, "0000:05:00.0", "0000:05:00.1", "0000:05:00.2", "x"]),
        vf=st.booleans(),
        pf_pci_bus_id=st.sampled_from([None, "0000:05:00.0"]),
        gpu_distance=st.sampled_from([None, "PIX", "NODE"]),
        default_route=st.booleans(),
    ),
    max_size=8,
)


@given(PORTS)
def test_every_port_is_usable_or_told_why_not(ports: list[Port]) -> None:
    judged = judge_ports(ports)

    assert [port.hca for port in judged] == [port.hca for port in ports]
    assert all(port.usable == (port.excluded is None) for port in judged)
    assert len({port.kind for port in judged if port.usable}) <= 1


@given(PORTS)
def test_judging_again_changes_nothing(ports: list[Port]) -> None:
    judged = judge_ports(ports)

    assert judge_ports(judged) == judged
