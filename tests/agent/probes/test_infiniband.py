"""RDMA ports from a sysfs tree: formats of several drivers, and files that are missing, refuse, or hold rubbish."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes import rdma_text
from llmgw_core.agent.probes.gids import Gid, choose_gid
from llmgw_core.agent.probes.infiniband import read_ports
from llmgw_core.agent.probes.nearness import parse_topology
from llmgw_core.agent.probes.routes import find_default_netdevs, find_ipv4_prefix, parse_routes
from llmgw_core.domain.fabric import ipv4_of
from llmgw_core.domain.hardware import Port, PortKind
from tests.support.hardware import NO_GID, FakePort, ib_port, ipv4_gid, roce_port, write_sysfs


def read_port(root: Path, port: FakePort) -> Port:
    (found,) = read_ports(str(write_sysfs(root, [port])))
    return found


def test_infiniband_port_is_read_whole(tmp_path: Path) -> None:
    port = read_port(tmp_path, ib_port("mlx5_0", netdev="ibs1"))

    assert port == Port(
        hca="mlx5_0",
        port=1,
        link_layer="InfiniBand",
        kind=PortKind.INFINIBAND,
        state="ACTIVE",
        physical_state="LinkUp",
        rate_gbps=400.0,
        lid=26,
        gid="fe80:0000:0000:0000:0200:0000:0055:4822",
        netdev="ibs1",
        numa_node=0,
        pci_bus_id="0000:18:00.0",
        fabric="ib-fe80000000000000",
        usable=True,
        link_width=4,
        link_speed="NDR",
        gid_index=0,
        gid_type="IB/RoCE v1",
    )


def test_roce_port_has_its_version_2_ipv4_address_and_network(tmp_path: Path) -> None:
    port = read_port(tmp_path, roce_port("mlx5_1", "10.1.7.5", netdev="ens9"))

    assert (port.kind, port.gid, port.netdev) == (PortKind.ROCE, ipv4_gid("10.1.7.5"), "ens9")
    assert (port.fabric, port.lid) == ("roce-10.1.7.0/24", None)


def test_no_adapter_is_no_port_and_no_error(tmp_path: Path) -> None:
    assert read_ports(str(tmp_path)) == ()


@pytest.mark.parametrize(
    ("port", "kind"),
    [
        (ib_port(), PortKind.INFINIBAND),
        (roce_port(), PortKind.ROCE),
        (roce_port("irdma0", node_type="4: RNIC", driver="irdma"), PortKind.IWARP),
        (roce_port("rxe0", is_soft=True, node_type="1: CA"), PortKind.SOFT_ROCE),
        (ib_port("hfi1_0", driver="hfi1"), PortKind.OMNI_PATH),
        (
            FakePort("rdmap79s0", link_layer="Unknown", node_type="7: unspecified", driver="efa"),
            PortKind.EFA,
        ),
        (FakePort("usnic_0", link_layer="Ethernet", node_type="6: usNIC UDP"), PortKind.UNKNOWN),
        (FakePort("mlx5_0", link_layer=None), PortKind.UNKNOWN),
    ],
)
def test_kind_is_not_the_link_layer(tmp_path: Path, port: FakePort, kind: PortKind) -> None:
    assert read_port(tmp_path, port).kind is kind


@pytest.mark.parametrize(
    "port",
    [
        ib_port(state="1: DOWN"),
        ib_port(state="2: INIT"),
        ib_port(state=None),
        ib_port("hfi1_0", driver="hfi1"),
        roce_port(ip=None),
        roce_port(ip="169.254.3.4"),
        roce_port("rxe0", is_soft=True),
        FakePort("mlx5_0", gids=((NO_GID, None, None),)),
        FakePort("mlx5_0", link_layer="Ethernet", gids=((ipv4_gid("10.1.0.5"), "RoCE v2", None),)),
        FakePort(
            "mlx5_0", link_layer="Ethernet", gids=((ipv4_gid("10.1.0.5"), "IB/RoCE v1", "e"),)
        ),
    ],
)
def test_port_that_engines_cannot_use_is_of_no_fabric(tmp_path: Path, port: FakePort) -> None:
    assert read_port(tmp_path, port).fabric is None


def test_roce_over_ipv6_alone_has_a_fabric(tmp_path: Path) -> None:
    gid = "fd00:0001:0002:0003:0000:0000:0000:0005"

    port = read_port(
        tmp_path, FakePort("bnxt_re0", link_layer="Ethernet", gids=((gid, "RoCE v2", "eth2"),))
    )

    assert port.fabric == "roce-fd00:1:2:3::/64"


@pytest.mark.parametrize(
    "name", ["link_layer", "state", "phys_state", "rate", "lid", "node_type", "pci", "numa_node"]
)
def test_missing_file_costs_one_field_and_not_the_port(tmp_path: Path, name: str) -> None:
    without: dict[str, Any] = {name: None}

    port = read_port(tmp_path, replace(ib_port(), **without))

    assert (port.hca, port.port) == ("mlx5_0", 1)


def test_file_that_refuses_to_be_read_costs_one_field(tmp_path: Path) -> None:
    # Reading a directory ends in an error, as sysfs files do by EINVAL.
    write_sysfs(tmp_path, [ib_port(rate=None)])
    (tmp_path / "class/infiniband/mlx5_0/ports/1/rate").mkdir()

    (port,) = read_ports(str(tmp_path))

    assert (port.rate_gbps, port.state) == (None, "ACTIVE")


def test_unknown_numa_node_is_none(tmp_path: Path) -> None:
    assert read_port(tmp_path, ib_port(numa_node="-1")).numa_node is None


def test_ports_sort_by_number_in_their_names(tmp_path: Path) -> None:
    names = ["mlx5_10", "mlx5_2", "mlx5_1"]
    ports = [ib_port(name, pci=f"0000:{number:02x}:00.0") for number, name in enumerate(names)]

    found = read_ports(str(write_sysfs(tmp_path, ports)))

    assert [port.hca for port in found] == ["mlx5_1", "mlx5_2", "mlx5_10"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 Gb/sec (4X)", (10.0, 4, "SDR")),
        ("2.5 Gb/sec (1X SDR)", (2.5, 1, "SDR")),
        ("40 Gb/sec (4X FDR10)", (40.0, 4, "FDR10")),
        ("56 Gb/sec (4X FDR)\n\n", (56.0, 4, "FDR")),
        ("200 Gb/sec (2X NDR)", (200.0, 2, "NDR")),
        ("800 Gb/sec (4X XDR)", (800.0, 4, "XDR")),
        ("fast", (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_rate_is_read_from_its_text(
    text: str | None, expected: tuple[float | None, int | None, str | None]
) -> None:
    assert rdma_text.parse_rate(text) == expected


def test_rate_of_a_speed_the_kernel_does_not_know_is_unknown(tmp_path: Path) -> None:
    assert read_port(tmp_path, ib_port(rate="10 Gb/sec (4X)")).rate_gbps is None


def test_lid_of_a_port_without_subnet_manager_is_unknown(tmp_path: Path) -> None:
    assert read_port(tmp_path, ib_port(lid="0xffff")).lid is None


ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
ens1\t00000000\t0100010A\t0003\t0\t0\t100\t00000000\t0\t0\t0
ens1\t0000010A\t00000000\t0001\t0\t0\t100\t0000FFFF\t0\t0\t0
ens2\t0000010A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
"""


@pytest.mark.parametrize(
    ("netdev", "expected"), [("ens1", 16), ("ens2", 24), ("ens3", None), (None, None)]
)
def test_network_prefix_comes_from_the_netdevs_route(
    netdev: str | None, expected: int | None
) -> None:
    address = ipv4_of(ipv4_gid("10.1.0.5"))

    assert find_ipv4_prefix(address, netdev, parse_routes(ROUTES)) == expected


@given(st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "replace")) | st.text())
def test_no_text_breaks_a_parser(text: str) -> None:
    rdma_text.parse_state(text)
    rdma_text.parse_rate(text)
    rdma_text.parse_lid(text)
    rdma_text.parse_lmc(text)
    rdma_text.parse_pkey(text)
    rdma_text.parse_guid(text)
    rdma_text.parse_word(text)
    rdma_text.parse_leading_number(text)
    parse_routes(f"header\n{text}")
    find_default_netdevs(f"header\n{text}")
    parse_topology(f"\tGPU0\tNIC0\nGPU0\t X \t{text}\n{text}")
    choose_gid([Gid(0, text, text, text)], is_infiniband=False)


@pytest.mark.slow
@given(st.binary(max_size=64))
def test_rubbish_in_every_file_leaves_the_port(
    tmp_path_factory: pytest.TempPathFactory, rubbish: bytes
) -> None:
    root = write_sysfs(tmp_path_factory.mktemp("sys"), [roce_port()])
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(rubbish)

    (port,) = read_ports(str(root))

    assert (port.hca, port.port, port.fabric) == ("mlx5_0", 1, None)


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def test_what_identifies_adapter_and_subnet_is_read(tmp_path: Path) -> None:
    hca = "class/infiniband/mlx5_0"
    write_sysfs(tmp_path, [ib_port()])
    for name, text in (
        ("node_guid", "b859:9f03:00d4:1d48"),
        ("sys_image_guid", "b859:9f03:00d4:1d48"),
        ("fw_ver", "28.41.1000"),
        ("hca_type", "MT4129"),
        ("board_id", "MT_0000000838"),
        ("ports/1/sm_lid", "0x47"),
        ("ports/1/lid_mask_count", "2"),
        ("ports/1/pkeys/0", "0x7fff"),
        ("ports/1/pkeys/1", "0x0000"),
        ("ports/1/pkeys/2", "0x8123"),
        ("ports/1/pkeys/3", "0x0000"),
    ):
        write(tmp_path, f"{hca}/{name}", text)

    (port,) = read_ports(str(tmp_path))

    assert (port.node_guid, port.system_image_guid) == ("b859:9f03:00d4:1d48",) * 2
    assert (port.firmware, port.model, port.board) == ("28.41.1000", "MT4129", "MT_0000000838")
    assert (port.sm_lid, port.lmc) == (0x47, 2)
    assert port.pkeys == ("0x7fff", "0x0000", "0x8123")


@pytest.mark.parametrize(
    ("mtu", "expected"),
    [("1500", 1024), ("2200", 2048), ("4200", 4096), ("9000", 4096), ("100", None), ("x", None)],
)
def test_mtu_of_roce_is_what_fits_its_netdev(
    tmp_path: Path, mtu: str, expected: int | None
) -> None:
    write_sysfs(tmp_path, [roce_port(netdev="ens1")])
    write(tmp_path, "class/net/ens1/mtu", mtu)

    (port,) = read_ports(str(tmp_path))

    assert port.mtu_bytes == expected


def test_index_of_the_gid_is_that_of_its_slot_behind_holes(tmp_path: Path) -> None:
    holes = ((NO_GID, None, None),) * 4
    gids = (
        *holes,
        (ipv4_gid("10.1.0.5"), "IB/RoCE v1", "e1"),
        (ipv4_gid("10.1.0.5"), "RoCE v2", "e1"),
    )

    port = read_port(tmp_path, FakePort("mlx5_0", link_layer="Ethernet", gids=gids))

    assert (port.gid_index, port.gid_type, port.usable) == (5, "RoCE v2", True)


def test_file_that_refuses_is_told_with_its_errno(tmp_path: Path) -> None:
    write_sysfs(tmp_path, [ib_port(rate=None, state=None)])
    (tmp_path / "class/infiniband/mlx5_0/ports/1/rate").mkdir()

    (port,) = read_ports(str(tmp_path))

    assert port.unread == ("state: ENOENT", "rate: EISDIR")


def test_adapter_without_its_device_node_is_not_usable(tmp_path: Path) -> None:
    ports = [ib_port("mlx5_0", pci="0000:18:00.0"), ib_port("mlx5_1", pci="0000:28:00.0")]
    root = write_sysfs(tmp_path / "sys", ports)
    write(root, "class/infiniband_verbs/uverbs0/ibdev", "mlx5_0")
    write(root, "class/infiniband_verbs/uverbs1/ibdev", "mlx5_1")
    write(tmp_path, "dev/infiniband/uverbs0", "")

    found = read_ports(str(root), dev_root=str(tmp_path / "dev"))

    assert [(port.uverbs, port.uverbs_access, port.usable) for port in found] == [
        ("uverbs0", "ok", True),
        ("uverbs1", "ENOENT", False),
    ]


def test_virtual_function_names_its_physical_one(tmp_path: Path) -> None:
    write_sysfs(
        tmp_path, [ib_port("mlx5_0", pci="0000:18:00.0"), ib_port("mlx5_1", pci="0000:18:01.1")]
    )
    devices = tmp_path / "devices/pci0000:00"
    (devices / "0000:18:01.1/physfn").symlink_to(devices / "0000:18:00.0")

    whole, virtual = read_ports(str(tmp_path))

    assert (virtual.vf, virtual.pf_pci_bus_id, whole.vf) == (True, "0000:18:00.0", False)
    assert (whole.usable, virtual.usable) == (True, False)


def test_counters_are_never_read(tmp_path: Path) -> None:
    # A FIFO that nobody writes to would hold a reader for ever.
    write_sysfs(tmp_path, [ib_port()])
    folder = tmp_path / "class/infiniband/mlx5_0/ports/1/counters"
    folder.mkdir()
    os.mkfifo(folder / "port_rcv_data")

    assert len(read_ports(str(tmp_path))) == 1


def test_way_out_of_the_node_is_the_default_routes_netdev(tmp_path: Path) -> None:
    ports = [roce_port("m0", "10.1.0.5", netdev="ens1"), roce_port("m1", "10.2.0.5", netdev="ens2")]
    for number, port in enumerate(ports):
        write_sysfs(tmp_path / "sys", [replace(port, pci=f"0000:{number:02x}:00.0")])
    write(tmp_path, "proc/net/route", ROUTES)

    first, second = read_ports(str(tmp_path / "sys"), str(tmp_path / "proc"))

    assert (first.default_route, second.default_route) == (True, False)
    assert first.suspect is not None
    assert (first.suspect.code, first.usable, second.suspect) == ("default-route", True, None)


def test_omni_path_is_known_by_its_board_too(tmp_path: Path) -> None:
    write_sysfs(tmp_path, [ib_port("ibp24s0", driver=None)])
    write(tmp_path, "class/infiniband/ibp24s0/board_id", "Intel Omni-Path Adapter 100 Series")

    (port,) = read_ports(str(tmp_path))

    assert port.kind is PortKind.OMNI_PATH


def test_adapter_without_hardware_is_soft(tmp_path: Path) -> None:
    (port,) = read_ports(str(write_sysfs(tmp_path, [roce_port("rxe0", pci=None)])))

    assert port.kind is PortKind.SOFT_ROCE
