"""Nearest GPUs: by the PCI tree, and by nvidia-smi topo -m of old and new drivers."""

from pathlib import Path

import pytest

from llmgw_core.agent.probes.nearness import (
    Nearness,
    Place,
    find_nearest,
    find_place,
    measure_distance,
    parse_topology,
)

ROOT = "pci0000:10"
SWITCH = (ROOT, "0000:10:01.0", "0000:11:00.0")


def place(*chain: str, numa: int | None = 0) -> Place:
    return Place(chain[-1] if chain else None, chain, numa)


NIC = place(*SWITCH, "0000:12:00.0", "0000:13:00.0")


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (place(*SWITCH, "0000:12:01.0", "0000:14:00.0"), "PIX"),
        (place(*SWITCH, "0000:12:01.0", "0000:14:00.0", "0000:15:00.0", "0000:16:00.0"), "PXB"),
        (place(ROOT, "0000:10:02.0", "0000:20:00.0"), "PHB"),
        (place("pci0000:80", "0000:80:01.0", "0000:81:00.0"), "NODE"),
        (place("pci0000:80", "0000:80:01.0", "0000:81:00.0", numa=1), "SYS"),
        (place("pci0000:80", "0000:81:00.0", numa=None), None),
    ],
)
def test_distance_follows_the_pci_tree(gpu: Place, expected: str | None) -> None:
    assert measure_distance(NIC, gpu) == expected


def test_all_gpus_at_the_least_distance_are_nearest() -> None:
    gpus = [
        place(*SWITCH, "0000:12:01.0", "0000:14:00.0"),
        place(*SWITCH, "0000:12:02.0", "0000:15:00.0"),
        place(ROOT, "0000:10:02.0", "0000:20:00.0"),
    ]

    assert find_nearest(NIC, gpus) == Nearness("PIX", ("0000:14:00.0", "0000:15:00.0"))


def test_place_of_a_sub_function_is_its_pci_function(tmp_path: Path) -> None:
    device = tmp_path / "devices/pci0000:10/0000:10:01.0/0000:11:00.0/mlx5_core.sf.2"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")

    found = find_place(device)

    assert found == Place("0000:11:00.0", ("pci0000:10", "0000:10:01.0", "0000:11:00.0"), 1)


NEW = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV18\tPIX\tSYS\t0-31\t0
GPU1\tNV18\t X \tNODE\tSYS\t0-31\t0
NIC0\tPIX\tNODE\t X \tSYS\t\t
NIC1\tSYS\tSYS\tSYS\t X \t\t

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""
OLD = "\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\t X \tPHB\t0-15\nmlx5_0\tPHB\t X \t\n"


def test_topology_with_a_legend_is_read() -> None:
    found = parse_topology(NEW, {0: "0000:18:00.0", 1: "0000:2a:00.0"})

    assert found == {
        "mlx5_0": Nearness("PIX", ("0000:18:00.0",)),
        "mlx5_bond_0": Nearness("SYS", ("0000:18:00.0", "0000:2a:00.0")),
    }


def test_topology_with_adapters_as_columns_is_read() -> None:
    assert parse_topology(OLD) == {"mlx5_0": Nearness("PHB", ())}
