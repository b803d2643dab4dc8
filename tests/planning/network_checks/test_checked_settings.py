"""What the request, the login and files tell NCCL, judged before a launch."""

from dataclasses import replace

import pytest

from llmgw_core.domain import network as net
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import PortNote
from llmgw_core.domain.network import (
    Interface,
    InterfaceAddress,
    Limit,
    NcclConf,
    PortGid,
)
from tests.support.situations import (
    CURED,
    ERROR,
    INFO,
    LOCAL_GID,
    WARNING,
    asking,
    facts,
    found,
    ib,
    launch,
    pair,
    roce,
    says,
    side,
)


def test_healthy_launch_over_infiniband_gets_no_word() -> None:
    assert found(launch(*pair())) == []


def test_healthy_launch_over_roce_gets_no_word() -> None:
    case = launch(side("a", roce(ip=0x0A000001)), side("b", roce(ip=0x0A000002)))

    assert found(case) == []


def test_healthy_launch_by_tcp_gets_no_word_of_adapters() -> None:
    low = facts(memlock=Limit(65536, 65536), verbs_library=False, peer_memory=())
    case = launch(side("a", network=low), side("b"), wants_tcp=True)

    assert found(case) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"hostname_addresses": ("127.0.1.1",)},
        {"hostname_addresses": ()},
        {"hostname_addresses": ("10.1.2.3",)},
        {"hostname": "localhost"},
        {"hostname_addresses": None, "unread": ("hostname_addresses: ETIMEDOUT",)},
    ],
)
def test_host_name_that_leads_nowhere_stops_unless_gloo_is_told(changes: dict[str, object]) -> None:
    first, second = pair(**changes)

    assert says(launch(replace(first, env={}), replace(second, env={})), "hostname-loopback") == [
        (ERROR, "a")
    ]
    assert says(launch(first, second), "hostname-loopback") == [(INFO, "a")]


@pytest.mark.parametrize(
    ("value", "severity", "words"),
    [
        ("mlx5_0,mlx5_1", ERROR, "takes mlx5_1:1, mlx5_11:1 too"),
        ("=mlx5_0:1", ERROR, "lacks mlx5_10:1"),
        ('=mlx5_0"x",mlx5_10', ERROR, 'mlx5_0"x" matches no adapter'),
        ("=mlx5_0,=mlx5_10", ERROR, "=mlx5_10 matches no adapter"),
        ("=mlx5_0:x,mlx5_10", ERROR, "mlx5_0:0 matches no adapter"),
        ("mlx5_0,mlx5_10", WARNING, "by chance"),
    ],
)
def test_list_of_the_request_has_to_select_exactly_the_chosen_ports(
    value: str, severity: Severity, words: str
) -> None:
    case = launch(asking("a", NCCL_IB_HCA=value), asking("b", NCCL_IB_HCA=value))

    told = [item for item in found(case, "env-conflict") if item.node == "a"]

    assert words in " ".join(item.what for item in told)
    assert max(told, key=lambda item: item.severity is ERROR).severity is severity


def test_exact_list_of_the_request_is_fine() -> None:
    value = "=mlx5_0:1,mlx5_10:1"

    case = launch(asking("a", NCCL_IB_HCA=value), asking("b", NCCL_IB_HCA=value))

    assert found(case, "env-conflict") == []


@pytest.mark.parametrize(
    ("name", "value", "code", "severity"),
    [
        ("NCCL_SOCKET_IFNAME", "eth2", "boot-interface", ERROR),
        ("NCCL_SOCKET_IFNAME", "bond0", "env-conflict", ERROR),
        ("NCCL_SOCKET_IFNAME", "eth", "env-conflict", WARNING),
        ("GLOO_SOCKET_IFNAME", "^lo,docker", "env-conflict", ERROR),
        ("GLOO_SOCKET_IFNAME", "eth2", "boot-interface", ERROR),
        ("NCCL_IB_DISABLE", "1", "env-conflict", ERROR),
        ("NCCL_NET", "Socket", "env-conflict", ERROR),
    ],
)
def test_variable_of_the_request_that_speaks_against_the_plan(
    name: str, value: str, code: str, severity: Severity
) -> None:
    more = (
        Interface("eth0.7", (InterfaceAddress("10.7.0.1", 24),), net.VLAN, 1500, True, True),
        Interface("bond0", (InterfaceAddress("10.9.0.1", 24),), net.BOND, 1500, True, True),
    )
    sides = [
        replace(
            one,
            env={**one.env, name: value},
            asked=frozenset([name]),
            network=replace(one.network, interfaces=one.list_interfaces() + more),
        )
        for one in pair()
        if one.network is not None
    ]

    assert says(launch(*sides), code) == [(severity, "a"), (severity, "b")]


@pytest.mark.parametrize("value", ["=eth0", "eth0", "^docker,lo", "e"])
def test_interface_list_that_takes_the_chosen_one_alone_is_fine(value: str) -> None:
    sides = [
        replace(
            one,
            env={**one.env, "NCCL_SOCKET_IFNAME": value},
            asked=frozenset(["NCCL_SOCKET_IFNAME"]),
        )
        for one in pair()
    ]

    assert found(launch(*sides)) == []


def test_file_of_one_node_alone_is_a_warning_and_its_bad_values_are_errors() -> None:
    conf = NcclConf("/etc/nccl.conf", {"NCCL_IB_GID_INDEX": "3", "NCCL_SOCKET_IFNAME": "ib0"})
    first, second = pair(conf_files=(conf,))
    bare = launch(replace(first, env={}), replace(second, env={}))

    assert says(bare, "boot-interface") == [(ERROR, "a")]
    assert (WARNING, "a") in says(bare, "env-conflict")
    # What the plan sets, no file can change.
    assert says(launch(first, second), "boot-interface") == []


def test_the_same_file_everywhere_is_told_and_no_more() -> None:
    conf = NcclConf("/etc/nccl.conf", {"NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_DEBUG": "WARN"})
    sides = [
        replace(one, network=replace(one.network, conf_files=(conf,)))
        for one in pair()
        if one.network is not None
    ]

    assert says(launch(*sides), "env-conflict") == [(INFO, "a"), (INFO, "b")]


def test_variables_of_the_login_reach_no_engine() -> None:
    case = launch(*pair(environment={"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "INFO"}))

    (told,) = found(case)

    assert (told.severity, told.code, told.node) == (INFO, "env-conflict", "a")
    assert "NCCL_DEBUG" not in told.what


def test_variable_that_only_the_head_has_hangs_the_others() -> None:
    first, second = pair()

    case = launch(first, replace(second, env={"NCCL_NET": "IB"}))

    assert says(case, "env-conflict") == [(ERROR, None), (ERROR, None)]


TABLE = (
    PortGid(0, LOCAL_GID, "IB/RoCE v1", "n0"),
    PortGid(1, LOCAL_GID, "RoCE v2", "n0"),
    PortGid(2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "n0"),
    PortGid(3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "n0"),
    PortGid(5, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", None),
)


@pytest.mark.parametrize(
    ("value", "severity", "words"),
    [
        ("1", ERROR, "link-local"),
        ("2", ERROR, "not RoCE v2"),
        ("4", ERROR, "empty slot"),
        ("5", ERROR, "another network namespace"),
        ("three", ERROR, "no index"),
        ("3", WARNING, "link flaps"),
    ],
)
def test_pinned_gid_index(value: str, severity: Severity, words: str) -> None:
    pinned = {"NCCL_IB_GID_INDEX": value}
    network = facts(port_gids={"mlx5_0:1": TABLE})
    sides = [
        side(name, roce(ip=ip), network=network, env={**CURED, **pinned}, asked=frozenset(pinned))
        for name, ip in (("a", 0x0A000001), ("b", 0x0A000002))
    ]

    told = found(launch(*sides), "gid-roce")

    assert [(item.severity, item.node) for item in told] == [(severity, "a"), (severity, "b")]
    assert words in told[0].what


def test_older_nccl_would_take_index_0_unless_told() -> None:
    network = facts(port_gids={"mlx5_0:1": TABLE})
    sides = [
        side(name, roce(ip=0x0A000000 + n), network=network) for n, name in ((1, "a"), (2, "b"))
    ]
    told = [replace(one, env={**CURED, "NCCL_IB_GID_INDEX": "3"}) for one in sides]

    assert says(launch(*sides, nccl=(2, 10, 3)), "gid-roce") == [(WARNING, "a"), (WARNING, "b")]
    assert says(launch(*told, nccl=(2, 10, 3)), "gid-roce") == []
    assert says(launch(*sides), "gid-roce") == []


def test_addresses_of_another_namespace_are_an_error_where_nothing_else_is_left() -> None:
    note = PortNote("foreign-netns", "")
    foreign = roce("mlx5_1", usable=False, excluded=note)

    assert says(launch(side("a", foreign), side("b", roce())), "gid-roce") == [(ERROR, "a")]
    both = launch(side("a", foreign, roce(ip=0x0A000001)), side("b", roce(ip=0x0A000002)))
    assert says(both, "gid-roce") == [(WARNING, "a")]


def test_ipv6_alone_has_to_be_told() -> None:
    v6 = [
        replace(roce(), gid=f"fd00:0016:0000:0005:0000:0000:0000:000{number}") for number in (1, 2)
    ]
    sides = [side(name, port) for name, port in zip("ab", v6, strict=True)]
    told = [replace(one, env={**CURED, "NCCL_IB_ADDR_FAMILY": "AF_INET6"}) for one in sides]

    assert says(launch(*sides), "gid-roce") == [(WARNING, "a"), (WARNING, "b")]
    assert says(launch(*told), "gid-roce") == [(INFO, "a"), (INFO, "b")]


def test_partition_that_is_not_at_index_0_has_to_be_told() -> None:
    keys = ("0x7fff", "0x8123")
    sides = [side(name, replace(ib(number=n), pkeys=keys)) for n, name in ((1, "a"), (2, "b"))]
    told = [replace(one, env={**CURED, "NCCL_IB_PKEY": "1"}) for one in sides]

    assert says(launch(*sides), "pkey") == [(ERROR, "a"), (ERROR, "b")]
    assert says(launch(*told), "pkey") == [(INFO, "a"), (INFO, "b")]


def test_one_card_is_no_two_rails() -> None:
    ports = [ib(f"mlx5_{n}", n + 1, system_image_guid="0200:0000:0000:40cc") for n in (0, 1)]
    others = [ib(f"mlx5_{n}", n + 5) for n in (0, 1)]
    sides = [
        side(name, *own, env={**CURED, "NCCL_CROSS_NIC": "0"})
        for name, own in (("a", ports), ("b", others))
    ]

    assert says(launch(*sides), "env-conflict") == [(WARNING, "a")]
