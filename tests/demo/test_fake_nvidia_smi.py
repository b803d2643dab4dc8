"""The simulated GPUs, asked by the agent's own probe."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.agent.inventory import read_node
from llmgw_core.demo.cluster import h100s, l40s, write_nvidia_smi
from llmgw_core.demo.fake_sysfs import infiniband_ports, roce_ports, write_sysfs
from llmgw_core.domain.inventory import Node
from tests.support.engines import wait_until


def read_simulated(tmp_path: Path, gpus: list[dict[str, Any]], **smi: object) -> Node:
    """The node with these GPUs, as its agent reads it."""
    program = write_nvidia_smi(tmp_path / "gpus", gpus, **smi)
    addresses = [str(gpu["bus_id"])[4:].lower() for gpu in gpus]
    if not (tmp_path / "sys").exists():
        write_sysfs(tmp_path / "sys", (), addresses)
    return read_node(
        {
            **os.environ,
            "LLMGW_NVIDIA_SMI": str(program),
            "LLMGW_SYSFS_ROOT": str(tmp_path / "sys"),
            "LLMGW_STATE_DIR": str(tmp_path / "state"),
        }
    )


def ask(tmp_path: Path, *args: str) -> tuple[str, int]:
    ran = subprocess.run(
        [str(tmp_path / "gpus/nvidia-smi"), *args], capture_output=True, text=True, check=False
    )
    return ran.stdout, ran.returncode


def test_probe_reads_every_gpu_as_healthy_and_free(tmp_path: Path) -> None:
    node = read_simulated(tmp_path, list(h100s(1)))

    assert [gpu.gpu_class for gpu in node.gpus] == ["h100-80g"] * 8
    assert all(gpu.available and not gpu.health for gpu in node.gpus)
    assert (node.driver_version, node.cuda_version) == ("570.133.20", "12.8")


def test_probe_flags_ecc_errors_and_held_memory(tmp_path: Path) -> None:
    sick, held, well = l40s(1, 3)
    sick["cells"] = {"ecc.errors.uncorrected.volatile.total": "3"}
    held["held_mib"] = 20000

    node = read_simulated(tmp_path, [sick, held, well])

    codes = [[flag.code for flag in gpu.health] for gpu in node.gpus]
    assert codes == [["ecc-uncorrected"], ["memory-held"], []]


def test_probe_names_the_living_holder_of_memory(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "gpus", h100s(1, 1))
    stranger = Path(__file__).parents[2] / "llmgw_core/demo/stranger.py"
    command = [sys.executable, "-I", "-S", str(stranger), str(tmp_path / "gpus"), "0", "4096"]

    with subprocess.Popen(command) as process:
        wait_until(
            lambda: "4096" in ask(tmp_path, "--query-gpu=memory.used", "--format=csv")[0], "held"
        )
        node = read_simulated(tmp_path, list(h100s(1, 1)))
        process.kill()
    after = read_simulated(tmp_path, list(h100s(1, 1)))

    assert [item.pid for item in node.gpus[0].processes] == [process.pid]
    assert [flag.code for flag in node.gpus[0].health] == ["memory-held"]
    assert after.gpus[0].processes == ()


def test_probe_survives_a_driver_that_knows_fewer_fields(tmp_path: Path) -> None:
    node = read_simulated(
        tmp_path, list(h100s(1, 1)), unknown_fields=["compute_cap", "fabric.state"]
    )

    assert [gpu.gpu_class for gpu in node.gpus] == ["h100-80g"]


def test_probe_says_that_the_driver_failed(tmp_path: Path) -> None:
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"

    node = read_simulated(tmp_path, list(h100s(1, 1)), fail={"code": 9, "stdout": said})

    assert node.gpus == ()
    assert node.error is not None


def test_csv_has_header_and_units_unless_told_otherwise(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "gpus", h100s(1, 1))

    whole = ask(tmp_path, "--query-gpu=gpu_name,memory.total", "--format=csv")
    bare = ask(tmp_path, "--query-gpu=memory.total", "--format=csv,noheader,nounits")

    assert whole == ("name, memory.total [MiB]\nNVIDIA H100 80GB HBM3, 81559 MiB\n", 0)
    assert bare == ("81559\n", 0)


def test_unknown_field_voids_the_query(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "gpus", h100s(1, 1))

    said = ask(tmp_path, "--query-gpu=index,no.such", "--format=csv")

    assert said == ('Field "no.such" is not a valid field to query.\n\n', 2)


@pytest.mark.parametrize("option", ["-L", "--list-gpus"])
def test_list_names_each_gpu_with_its_uuid(tmp_path: Path, option: str) -> None:
    gpus = h100s(1, 2)
    write_nvidia_smi(tmp_path / "gpus", gpus)

    said, _ = ask(tmp_path, option)

    assert said.splitlines()[1] == f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {gpus[1]['uuid']})"


def test_help_quotes_every_field_it_answers(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "gpus", h100s(1, 1))

    said, _ = ask(tmp_path, "--help-query-gpu")
    fields = [line.strip('"') for line in said.splitlines() if line.startswith('"')]

    assert ask(tmp_path, f"--query-gpu={','.join(fields)}", "--format=csv")[1] == 0


def test_file_changed_under_way_counts_at_the_next_question(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "gpus", h100s(1, 2))
    path = tmp_path / "gpus/gpus.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gpus": []}))

    assert ask(tmp_path, "-L") == ("No devices were found\n", 6)


def test_probe_reads_infiniband_rails_of_one_fabric(tmp_path: Path) -> None:
    subnet = 0xFEC0_0000_0000_00A1
    write_sysfs(tmp_path / "sys", infiniband_ports(8, 1, subnet), ())

    node = read_simulated(tmp_path, [])

    assert [port.hca for port in node.ports] == [f"mlx5_{rail}" for rail in range(8)]
    assert {(port.fabric, port.rate_gbps) for port in node.ports} == {
        ("ib-fec00000000000a1", 400.0)
    }


def test_probe_reads_roce_ports_by_their_network(tmp_path: Path) -> None:
    write_sysfs(tmp_path / "sys", roce_ports(("10.20.0.5", "10.20.1.5")), ())

    node = read_simulated(tmp_path, [])

    assert [port.fabric for port in node.ports] == ["roce-10.20.0.0/24", "roce-10.20.1.0/24"]
