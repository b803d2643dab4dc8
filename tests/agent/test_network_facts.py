"""What a node says of its network: read for real where the kernel has it, from files where hardware is needed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw_core.agent.network_facts import find_ssh_address, read_network_facts, resolve_name
from llmgw_core.agent.probes import installed, own_limits, rdma_now
from llmgw_core.agent.probes.interfaces import classify
from llmgw_core.agent.probes.nccl_conf import (
    parse_nccl_conf,
    pick_environment,
    read_nccl_confs,
)
from llmgw_core.agent.probes.netlink import Link
from llmgw_core.demo.fake_sysfs import infiniband_ports, write_sysfs
from llmgw_core.domain import network as net
from llmgw_core.domain.secret_names import HIDDEN
from llmgw_core.domain.wire import from_jsonable, to_jsonable
from tests.support.sshd import Namespaces

SUBNET = 0xFE80_0000_0000_0000


def test_facts_of_this_machine_survive_the_wire() -> None:
    facts = read_network_facts(dict(os.environ))

    assert facts.interfaces is not None
    assert from_jsonable(net.NodeNetwork, json.loads(json.dumps(to_jsonable(facts)))) == facts
    (lo,) = [item for item in facts.interfaces if item.kind == net.LOOPBACK]
    assert net.InterfaceAddress("127.0.0.1", 8) in lo.addresses
    assert facts.memlock is not None
    assert facts.hostname == os.uname().nodename


def test_a_sysfs_without_class_net_hides_no_interface(tmp_path: Path) -> None:
    write_sysfs(tmp_path, infiniband_ports(2, 1, SUBNET), ())

    facts = read_network_facts({"LLMGW_SYSFS_ROOT": str(tmp_path)})

    assert facts.interfaces
    assert facts.port_states == {"mlx5_0:1": "ACTIVE", "mlx5_1:1": "ACTIVE"}


def test_one_fact_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError(1, "no")

    monkeypatch.setattr("llmgw_core.agent.network_facts.read_network", refuse)

    facts = read_network_facts({})

    assert (facts.interfaces, facts.routes) == (None, None)
    assert "interfaces: EPERM" in facts.unread
    assert facts.nofile is not None


def test_a_namespace_shows_its_own_interfaces(make_namespaces: Callable[[], Namespaces]) -> None:
    spaces = make_namespaces()
    code = (
        "from llmgw_core.agent.probes.interfaces import read_network; "
        "from llmgw_core.domain.wire import dump_json; print(dump_json(read_network().interfaces))"
    )
    argv = ["ip", "netns", "exec", spaces.names[0], sys.executable, "-c", code]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)

    found = {item["name"]: item for item in json.loads(ran.stdout)}

    assert found["eth0"]["kind"] == net.VETH
    assert {"address": "10.77.0.1", "prefix": 24} in found["eth0"]["addresses"]
    assert spaces.bridge not in found


@pytest.mark.parametrize(
    ("kind", "hardware", "name", "expected"),
    [
        (None, 1, "ens5", net.PHYSICAL),
        (None, 32, "ib0", net.IPOIB),
        (None, 772, "lo", net.LOOPBACK),
        ("bridge", 1, "docker0", net.BRIDGE),
        (None, 1, "docker0", net.BRIDGE),
        ("veth", 1, "eth0", net.VETH),
        ("wireguard", 65534, "wg0", net.TUNNEL),
        ("ip6tnl", 769, "ip6tnl0", net.TUNNEL),
        (None, 65534, "tailscale0", net.TUNNEL),
        ("bond", 1, "bond0", net.BOND),
        ("vlan", 1, "bond0.2093", net.VLAN),
    ],
)
def test_kind_of_an_interface(kind: str | None, hardware: int, name: str, expected: str) -> None:
    assert classify(Link(2, name, hardware, 0x1043, 1500, None, kind)) == expected


def test_conf_files_are_read_in_the_order_that_nccl_reads_them(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text("# by the vendor\nNCCL_IB_GID_INDEX=3\nNCCL_A=x=y\n")
    (tmp_path / ".nccl.conf").write_text("NCCL_IB_GID_INDEX=1\nMY_TOKEN=abc\nno line\n")

    own, etc = read_nccl_confs(str(tmp_path), None, str(tmp_path))

    assert own.settings == {"NCCL_IB_GID_INDEX": "1", "MY_TOKEN": HIDDEN}
    assert etc.settings == {"NCCL_IB_GID_INDEX": "3", "NCCL_A": "x=y"}


def test_a_conf_file_of_its_own_replaces_the_one_at_home(tmp_path: Path) -> None:
    (tmp_path / ".nccl.conf").write_text("NCCL_A=home\n")
    other = tmp_path / "other.conf"
    other.write_text("NCCL_A=other\n")

    (conf,) = read_nccl_confs(str(tmp_path), str(other), str(tmp_path / "etc"))

    assert (conf.path, conf.settings) == (str(other), {"NCCL_A": "other"})


def test_of_a_name_that_stands_twice_the_first_counts() -> None:
    assert parse_nccl_conf("NCCL_A=1\nNCCL_A=2\n") == {"NCCL_A": "1"}


def test_only_variables_of_communication_are_told_and_no_secret() -> None:
    env = {"NCCL_DEBUG": "INFO", "HF_TOKEN": "x", "UCX_API_KEY": "y", "PATH": "/bin"}

    assert pick_environment(env) == {"NCCL_DEBUG": "INFO", "UCX_API_KEY": HIDDEN}


def test_verbs_and_plugins_are_found_by_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    (folder / "libibverbs").mkdir(parents=True)
    for name in ("libibverbs.so.1", "libibverbs/libmlx5-rdmav34.so", "libnccl-net-ofi.so"):
        (folder / name).write_bytes(b"")

    folders = installed.list_library_folders({}, str(tmp_path))

    assert installed.has_verbs_library(folders)
    assert installed.find_verbs_providers(folders) == ("mlx5",)
    assert installed.find_net_plugins(folders) == ("libnccl-net-ofi.so",)


def test_iommu_groups_are_counted_by_type(tmp_path: Path) -> None:
    assert rdma_now.count_iommu_groups(str(tmp_path)) is None
    for number, kind in enumerate(("DMA-FQ", "DMA-FQ", "identity")):
        group = tmp_path / "kernel/iommu_groups" / str(number)
        group.mkdir(parents=True)
        (group / "type").write_text(kind + "\n")

    assert rdma_now.count_iommu_groups(str(tmp_path)) == {"DMA-FQ": 2, "identity": 1}
    assert rdma_now.find_iommu_arguments("ro quiet iommu=pt intel_iommu=on") == (
        "iommu=pt",
        "intel_iommu=on",
    )


def test_memory_modules_are_named_with_their_version(tmp_path: Path) -> None:
    (tmp_path / "module/nvidia_peermem").mkdir(parents=True)
    (tmp_path / "module/nvidia_peermem/version").write_text("570.86.15\n")
    (tmp_path / "kernel/mm/memory_peers/nv_mem").mkdir(parents=True)

    found = rdma_now.read_peer_memory(str(tmp_path))

    assert found == ("nvidia_peermem 570.86.15", "memory_peers/nv_mem")


def test_segments_that_nobody_has_mapped_are_stale(tmp_path: Path) -> None:
    shm, proc = tmp_path / "shm", tmp_path / "proc"
    (proc / "12").mkdir(parents=True)
    shm.mkdir()
    for name in ("nccl-a1", "nccl-b2", "other"):
        (shm / name).write_bytes(b"")
    (proc / "12/maps").write_text("7f00-7f01 rw-s 0 00:19 3   /dev/shm/nccl-a1\n")

    found = own_limits.read_shared_memory(str(shm), str(proc))

    assert found.own_nccl_files == 1
    assert found.total_bytes > 0


def test_a_name_that_does_not_resolve_has_no_address() -> None:
    assert resolve_name("no-such-name.invalid") == ()
    assert resolve_name("localhost") is not None


def test_own_address_is_the_third_word_of_ssh_connection() -> None:
    assert find_ssh_address({"SSH_CONNECTION": "10.0.0.9 40022 10.0.0.1 22"}) == "10.0.0.1"
    assert find_ssh_address({"SSH_CONNECTION": "odd"}) is None
