"""exclude_ports of cluster.toml: the operator's word on single ports."""

from dataclasses import replace

from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Node
from llmgw_core.planning.fabrics import assign_fabrics
from llmgw_core.planning.port_override import exclude_ports

GID = "fe80:0000:0000:0000:b859:9f03:00d4:1d48"
FAST = Port(
    "mlx5_0",
    1,
    kind=PortKind.INFINIBAND,
    state="ACTIVE",
    gid=GID,
    rate_gbps=400.0,
    fabric="ib",
    usable=True,
)
SLOW = replace(FAST, hca="mlx5_1", rate_gbps=100.0)
NODE = Node("a", ports=(FAST, SLOW))


def test_port_left_out_is_of_no_fabric_and_says_who_left_it_out() -> None:
    (filled,), _, _ = assign_fabrics([exclude_ports(NODE, ["mlx5_0:1"])])

    first, second = filled.ports
    assert (first.usable, first.fabric) == (False, None)
    assert first.excluded is not None
    assert first.excluded.code == "operator"
    assert second.usable


def test_others_are_judged_as_if_it_were_not_there() -> None:
    assert [port.usable for port in exclude_ports(NODE, []).ports] == [True, True]
    three = replace(NODE, ports=(FAST, replace(FAST, hca="mlx5_2"), SLOW))

    # Beside one that is four times as fast the slow port is for something else; alone it is the fabric's.
    assert [port.usable for port in exclude_ports(three, ["mlx5_2"]).ports] == [True, False, False]
    only = exclude_ports(three, ["mlx5_0", "mlx5_2:1"])
    assert [port.usable for port in only.ports] == [False, False, True]


def test_a_name_that_fits_no_port_is_told() -> None:
    (warning,) = exclude_ports(NODE, ["mlx5_9", "mlx5_0"]).health

    assert warning.code == "unknown-port"
    assert "mlx5_9" in warning.message


def test_node_without_ports_is_as_it_was() -> None:
    silent = Node("a", reachable=False)

    assert exclude_ports(silent, ["mlx5_0"]) is silent
