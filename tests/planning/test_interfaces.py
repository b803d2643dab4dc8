"""By which interface the ranks of a launch meet."""

import pytest

from llmgw_core.domain import network as net
from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.network import Interface, InterfaceAddress, NodeNetwork
from llmgw_core.planning.interface_env import interface_settings
from llmgw_core.planning.interfaces import (
    ChosenInterface,
    InterfaceChoice,
    InterfaceHint,
    choose_interfaces,
)


def on(name: str, *addresses: str, kind: str = net.PHYSICAL, way_out: bool = False) -> Interface:
    given = [InterfaceAddress(text.split("/")[0], int(text.split("/")[1])) for text in addresses]
    return Interface(name, tuple(given), kind, 1500, True, True, way_out)


def node(*interfaces: Interface, ssh: str | None = None) -> NodeNetwork:
    return NodeNetwork(interfaces=interfaces, routes=(), ssh_address=ssh)


def names(choice: InterfaceChoice) -> dict[str, str]:
    return {name: f"{item.interface} {item.address}" for name, item in choice.chosen.items()}


def test_network_of_the_ssh_addresses_is_taken_of_several_common_ones() -> None:
    facts = {
        name: node(on("eth1", f"10.50.1.{n}/24"), on("eth0", f"10.41.0.{n}/24"))
        for n, name in ((7, "a"), (8, "b"))
    }

    choice = choose_interfaces(facts, {"a": InterfaceHint(ssh_address="10.41.0.7")})

    assert names(choice) == {"a": "eth0 10.41.0.7", "b": "eth0 10.41.0.8"}


def test_interfaces_may_be_called_differently_on_each_node() -> None:
    facts = {"a": node(on("ens5", "10.0.0.1/24")), "b": node(on("eno1", "10.0.0.2/24"))}

    assert names(choose_interfaces(facts, {})) == {"a": "ens5 10.0.0.1", "b": "eno1 10.0.0.2"}


def test_bridge_of_containers_is_no_way_to_a_peer() -> None:
    docker = on("docker0", "172.17.0.1/16", kind=net.BRIDGE)
    facts = {
        "a": node(docker, on("eno1", "10.0.0.1/24", way_out=True)),
        "b": node(docker, on("eno1", "10.0.1.2/24", way_out=True)),
    }

    choice = choose_interfaces(facts, {})

    assert names(choice) == {"a": "eno1 10.0.0.1", "b": "eno1 10.0.1.2"}
    assert "by routes" in choice.chosen["a"].reason


def test_bridge_of_virtual_machines_loses_against_a_real_network() -> None:
    facts = {
        name: node(
            on("virbr0", f"192.168.122.{n}/24", kind=net.BRIDGE), on("eno1", f"10.0.0.{n}/24")
        )
        for n, name in ((1, "a"), (2, "b"))
    }

    assert names(choose_interfaces(facts, {}))["a"] == "eno1 10.0.0.1"


def test_tunnel_is_taken_where_it_alone_leads_to_the_peers() -> None:
    facts = {
        name: node(on("wg0", f"10.9.0.{n}/24", kind=net.TUNNEL), on("eno1", f"10.0.{n}.1/24"))
        for n, name in ((1, "a"), (2, "b"))
    }

    assert names(choose_interfaces(facts, {})) == {"a": "wg0 10.9.0.1", "b": "wg0 10.9.0.2"}


def test_veth_with_a_link_local_address_is_not_looked_at() -> None:
    facts = {
        "a": node(on("veth12ab", "fe80::1/64", kind=net.VETH), on("eno1", "10.0.0.1/24")),
        "b": node(on("eno1", "10.0.0.2/24")),
    }

    choice = choose_interfaces(facts, {})

    assert names(choice)["a"] == "eno1 10.0.0.1"
    (told,) = choice.findings
    assert (told.severity, told.node) == (Severity.INFO, "a")
    assert "veth12ab" in told.what


def test_operators_word_wins_and_a_way_out_elsewhere_is_told() -> None:
    facts = {
        name: node(
            on("wlan0", f"192.168.1.{n}/24", way_out=True), on("enp1s0f0np0", f"10.100.0.{n}/24")
        )
        for n, name in ((1, "a"), (2, "b"))
    }
    hints = {
        "a": InterfaceHint(cluster_address="10.100.0.1"),
        "b": InterfaceHint(interface="enp1s0f0np0"),
    }

    choice = choose_interfaces(facts, hints)

    assert names(choice) == {"a": "enp1s0f0np0 10.100.0.1", "b": "enp1s0f0np0 10.100.0.2"}
    assert [item.severity for item in choice.findings] == [Severity.WARNING] * 2
    assert "wlan0" in choice.findings[0].what


def test_word_for_one_node_leads_the_others_into_its_network() -> None:
    facts = {
        name: node(on("eth0", f"10.0.0.{n}/24", way_out=True), on("eth1", f"10.1.0.{n}/24"))
        for n, name in ((1, "a"), (2, "b"))
    }

    choice = choose_interfaces(facts, {"a": InterfaceHint(cluster_address="10.1.0.1")})

    assert names(choice)["b"] == "eth1 10.1.0.2"


@pytest.mark.parametrize(
    "hint", [InterfaceHint(cluster_address="10.0.9.9"), InterfaceHint(interface="ib7")]
)
def test_word_that_the_node_does_not_know_is_an_error_with_what_it_has(hint: InterfaceHint) -> None:
    facts = {"a": node(on("eth0", "10.0.0.1/24")), "b": node(on("eth0", "10.0.0.2/24"))}

    choice = choose_interfaces(facts, {"a": hint})

    assert choice.chosen == {}
    (error,) = choice.findings
    assert (error.code, error.severity, error.node) == ("boot-interface", Severity.ERROR, "a")
    assert "eth0 10.0.0.1" in error.what


def test_node_without_a_usable_address_is_an_error() -> None:
    down = Interface("eth0", (InterfaceAddress("10.0.0.2", 24),), net.PHYSICAL, 1500, True, False)
    facts = {"a": node(on("eth0", "10.0.0.1/24", way_out=True)), "b": node(down)}

    choice = choose_interfaces(facts, {})

    assert choice.chosen == {}
    assert [item.node for item in choice.findings] == ["b"]


def test_node_whose_agent_does_not_tell_is_an_error() -> None:
    choice = choose_interfaces({"a": node(on("eth0", "10.0.0.1/24")), "b": None}, {})

    assert [(item.node, item.severity) for item in choice.findings] == [("b", Severity.ERROR)]


def test_one_node_needs_no_interface() -> None:
    assert choose_interfaces({"a": None}, {}) == InterfaceChoice({})


def test_ipv6_alone_is_told_to_nccl_and_to_the_operator() -> None:
    facts = {name: node(on("veth0", f"2001:db8::{name}/64", kind=net.VETH)) for name in ("a", "b")}

    choice = choose_interfaces(facts, {})

    assert [item.severity for item in choice.findings] == [Severity.WARNING] * 2
    env = {
        item.name: item.value for item in interface_settings(choice.chosen["a"], EngineKind.VLLM)
    }
    assert env == {
        "NCCL_SOCKET_IFNAME": "=veth0",
        "GLOO_SOCKET_IFNAME": "veth0",
        "VLLM_HOST_IP": "2001:db8::a",
        "NCCL_SOCKET_FAMILY": "AF_INET6",
    }


def test_an_address_on_several_interfaces_is_a_warning() -> None:
    facts = {
        "a": node(on("ens5", "10.0.0.1/24"), on("bond0", "10.0.0.1/24", kind=net.BOND)),
        "b": node(on("ens5", "10.0.0.2/24")),
    }

    (told,) = choose_interfaces(facts, {}).findings

    assert (told.severity, told.node) == (Severity.WARNING, "a")


def test_an_address_that_is_none_is_not_looked_at() -> None:
    odd = Interface("eth9", (InterfaceAddress("nonsense", 99),), net.PHYSICAL, 1500, True, True)
    facts = {"a": node(odd, on("eth0", "10.0.0.1/24")), "b": node(on("eth0", "10.0.0.2/24"))}

    assert names(choose_interfaces(facts, {}))["a"] == "eth0 10.0.0.1"


def test_kv_transfer_and_deepep_get_lists_of_their_own() -> None:
    ports = [
        Port("mlx5_0", 1, kind=PortKind.ROCE, gid_index=3, gid="::ffff:10.0.0.1"),
        Port("mlx5_10", 1, kind=PortKind.ROCE, gid_index=3, gid="::ffff:10.0.1.1"),
    ]
    where = ChosenInterface("eth0", "10.0.0.1", "10.0.0.0/24 is common to all nodes")

    found = interface_settings(where, EngineKind.SGLANG, ports, kv_transfer=True, deepep=True)

    env = {item.name: item.value for item in found}
    assert env["SGLANG_HOST_IP"] == "10.0.0.1"
    assert env["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_10:1,eth0"
    assert env["NVSHMEM_HCA_LIST"] == "mlx5_0:1,mlx5_10:1"
    assert env["NVSHMEM_ENABLE_NIC_PE_MAPPING"] == "1"
    assert env["NVSHMEM_IB_GID_INDEX"] == "3"


def test_unequal_gid_indices_make_nvshmem_look_by_family() -> None:
    gid = "0000:0000:0000:0000:0000:ffff:0a00:0001"
    ports = [
        Port("mlx5_0", 1, kind=PortKind.ROCE, gid_index=3, gid=gid),
        Port("mlx5_1", 1, kind=PortKind.ROCE, gid_index=5, gid=gid),
    ]

    found = interface_settings(
        ChosenInterface("eth0", "10.0.0.1", ""), EngineKind.VLLM, ports, deepep=True
    )

    env = {item.name: item.value for item in found}
    assert "NVSHMEM_IB_GID_INDEX" not in env
    assert (env["NVSHMEM_IB_ADDR_FAMILY"], env["NVSHMEM_IB_ADDR_RANGE"]) == ("AF_INET", "0.0.0.0/0")
