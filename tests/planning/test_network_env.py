"""What NCCL is told on each node, judged by NCCL's own rule for reading it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Fabric, Node
from llmgw_core.planning.hca_filter import format_hca_filter, parse_hca_filter
from llmgw_core.planning.network_env import NetworkEnv, plan_network_env

V4_GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"
V6_GID = "fd00:0000:0000:0000:0000:0000:0000:0001"
NAMES = st.text("mlx5_01brocep", min_size=1, max_size=8)


def ib(hca: str, **changes: object) -> Port:
    port = Port(hca, 1, kind=PortKind.INFINIBAND, fabric="ib", usable=True, rate_gbps=400.0)
    return replace(port, pkeys=("0xffff",), **changes)  # type: ignore[arg-type]


def roce(hca: str, index: int = 3, gid: str = V4_GID, **changes: object) -> Port:
    port = Port(hca, 1, kind=PortKind.ROCE, fabric="roce", usable=True, rate_gbps=100.0)
    return replace(port, gid=gid, gid_index=index, **changes)  # type: ignore[arg-type]


def env_of(planned: NetworkEnv, node: str = "a") -> dict[str, str]:
    return {item.name: item.value for item in planned.settings[node]}


def codes(planned: NetworkEnv) -> set[str]:
    return {finding.code for finding in planned.findings}


def pair(ours: tuple[Port, ...], theirs: tuple[Port, ...]) -> tuple[Node, Node]:
    return Node("a", ports=ours), Node("b", ports=theirs)


@given(
    st.lists(st.tuples(NAMES, st.integers(1, 2)), min_size=1, max_size=40, unique=True), st.data()
)
def test_list_selects_exactly_the_chosen_ports_of_any_names(
    names: list[tuple[str, int]], data: st.DataObject
) -> None:
    ports = [replace(ib(hca), port=number) for hca, number in names]
    size = min(len(ports), 32)
    chosen = data.draw(st.lists(st.sampled_from(ports), min_size=1, max_size=size, unique=True))

    judge = parse_hca_filter(format_hca_filter(chosen))

    assert {port for port in ports if judge.selects(port.hca, port.port)} == set(chosen)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", {"mlx5_1:1", "mlx5_10:1", "bnxt_0:2"}),
        ("^", set()),
        ("mlx5_1", {"mlx5_1:1", "mlx5_10:1"}),
        ("=mlx5_1", {"mlx5_1:1"}),
        ("^mlx5_1", {"bnxt_0:2"}),
        ("^=mlx5_1:1", {"mlx5_10:1", "bnxt_0:2"}),
        ("=mlx5_1,=mlx5_10", {"mlx5_1:1"}),
        ("=mlx5_1:one", set()),
        ("=mlx5_1::0:0", {"mlx5_1:1"}),
        ("=bnxt_0:2:0", {"bnxt_0:2"}),
    ],
)
def test_filter_is_read_as_nccl_reads_it(text: str, selected: set[str]) -> None:
    judge = parse_hca_filter(text)

    ports = (("mlx5_1", 1), ("mlx5_10", 1), ("bnxt_0", 2))
    assert {f"{hca}:{port}" for hca, port in ports if judge.selects(hca, port)} == selected


def test_each_node_lists_its_own_usable_ports_of_the_shared_fabric() -> None:
    nodes = pair((ib("mlx5_0"), ib("mlx5_1", usable=False)), (ib("mlx5_3"),))

    planned = plan_network_env(nodes, ())

    assert env_of(planned) == {
        "NCCL_IB_HCA": "=mlx5_0:1",
        "NCCL_NET": "IB",
        "NCCL_IGNORE_NET_MISMATCH": "0",
    }
    assert env_of(planned, "b")["NCCL_IB_HCA"] == "=mlx5_3:1"
    assert codes(planned) == set()
    assert all(item.reason for item in planned.settings["a"])


def test_one_node_needs_nothing() -> None:
    assert env_of(plan_network_env([Node("a", ports=(ib("mlx5_0"),))], ())) == {}


def test_no_common_fabric_is_an_error_and_never_a_half_list() -> None:
    planned = plan_network_env(pair((ib("mlx5_0"),), ()), ())

    assert codes(planned) == {"no-common-fabric"}
    assert env_of(planned) == {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
    assert env_of(planned) == env_of(planned, "b")


def test_tcp_by_name_is_no_error() -> None:
    planned = plan_network_env(pair((ib("mlx5_0"),), (ib("mlx5_0"),)), (), wants_tcp=True)

    assert codes(planned) == set()
    assert "NCCL_IB_HCA" not in env_of(planned)


def test_unequal_counts_of_ports_are_an_error() -> None:
    planned = plan_network_env(pair((ib("mlx5_0"), ib("mlx5_1")), (ib("mlx5_0"),)), ())

    assert "adapter-count" in codes(planned)


def test_gid_index_is_left_to_nccl_unless_it_is_old() -> None:
    nodes = pair((roce("r0", 3),), (roce("r0", 5),))

    assert "NCCL_IB_GID_INDEX" not in env_of(plan_network_env(nodes, (), (2, 21)))
    assert "NCCL_IB_GID_INDEX" not in env_of(plan_network_env(nodes, ()))
    old = plan_network_env(nodes, (), (2, 20, 5))
    assert env_of(old)["NCCL_IB_GID_INDEX"] == "3"
    assert env_of(old, "b")["NCCL_IB_GID_INDEX"] == "5"


def test_old_nccl_is_refused_where_the_indices_of_one_node_differ() -> None:
    ports = (roce("r0", 3), roce("r1", 5))

    assert codes(plan_network_env(pair(ports, ports), (), (2, 20))) == {"gid-index-differs"}
    assert codes(plan_network_env(pair(ports, ports), (), (2, 27))) == set()


def test_ipv6_alone_is_told_and_a_mixture_is_refused() -> None:
    six = (roce("r0", gid=V6_GID),)
    mixed = (roce("r0"), roce("r1", gid=V6_GID))

    assert env_of(plan_network_env(pair(six, six), ()))["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"
    assert "gid-family-mixed" in codes(plan_network_env(pair(mixed, mixed), ()))


@pytest.mark.parametrize(
    ("keys", "value", "found"),
    [
        (("0xffff", "0x8123"), None, set()),
        (("0x7fff", "0x8123"), "1", set()),
        (("0x7fff",), None, {"pkey"}),
        (("0x7fff", "junk"), None, {"pkey"}),
        ((), None, set()),
    ],
)
def test_partition_key_is_named_where_the_first_one_does_not_serve(
    keys: tuple[str, ...], value: str | None, found: set[str]
) -> None:
    ports = (replace(ib("mlx5_0"), pkeys=keys),)

    planned = plan_network_env(pair(ports, ports), ())

    assert env_of(planned).get("NCCL_IB_PKEY") == value
    assert codes(planned) == found


def test_one_limited_member_beside_full_ones_is_heard_and_two_are_not() -> None:
    full, limited = (replace(ib("mlx5_0"), pkeys=(key,)) for key in ("0xffff", "0x7fff"))

    one = plan_network_env([Node("a", ports=(limited,)), Node("b", ports=(full,))], ())
    two = plan_network_env([Node(name, ports=(limited,)) for name in "ab"], ())

    assert codes(one) == set()
    assert "NCCL_IB_PKEY" not in env_of(one)
    assert codes(two) == {"pkey"}


def test_all_nodes_take_the_same_partition_each_at_its_own_index() -> None:
    ours = replace(ib("mlx5_0"), pkeys=("0x7fff", "0x8001", "0x8002"))
    theirs = replace(ib("mlx5_0"), pkeys=("0x7fff", "0x8002", "0x0000"))

    planned = plan_network_env(pair((ours,), (theirs,)), ())

    assert (env_of(planned)["NCCL_IB_PKEY"], env_of(planned, "b")["NCCL_IB_PKEY"]) == ("2", "1")


def test_rails_are_not_crossed_while_nothing_says_that_they_may_be() -> None:
    ports = (roce("r0"), roce("r1"))
    rails = Fabric("roce", "roce", ("a", "b"), ("10.0.0.0/25", "10.0.0.128/25"))

    assert env_of(plan_network_env(pair(ports, ports), (rails,)))["NCCL_CROSS_NIC"] == "0"
    assert "NCCL_CROSS_NIC" not in env_of(plan_network_env(pair(ports, ports), ()))


def test_more_ports_than_nccl_reads_are_an_error() -> None:
    ports = tuple(ib(f"mlx5_{number}") for number in range(33))

    assert "too-many-adapters" in codes(plan_network_env(pair(ports, ports), ()))
