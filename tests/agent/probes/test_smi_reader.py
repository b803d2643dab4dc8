"""nvidia-smi is a real process here: refused fields, lost GPUs, hangs, and what a reading costs."""

import time
from pathlib import Path

import pytest

from llmgw_core.agent.inventory import read_node
from llmgw_core.agent.probes.commands import MAX_OUTPUT_BYTES, run_together
from llmgw_core.agent.probes.gpus import SmiReader, assess_gpus
from llmgw_core.domain.hardware import Gpu
from tests.support.hardware import gpu_uuid, smi_app, smi_gpu, write_nvidia_smi, write_sysfs

TIMEOUT_S = 0.5


def reader_of(smi: Path, sysfs: Path, timeout_s: float = 10.0) -> SmiReader:
    env = {"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(sysfs)}
    return SmiReader(env, timeout_s)


def read_gpus(reader: SmiReader) -> tuple[Gpu, ...]:
    return assess_gpus(reader.read(), {}, {})


def test_gpus_processes_and_versions_come_with_one_reading(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path / "smi", [smi_gpu(0), smi_gpu(1)], apps=[smi_app(1, 999999999)])

    reading = reader_of(smi, tmp_path).read()

    assert [row.whole("index") for row in reading.rows] == [0, 1]
    assert [app.pid for app in reading.apps] == [999999999]
    assert (reading.driver_version, reading.cuda_version) == ("550.54.15", "12.4")
    assert reading.fault is None


def test_no_nvidia_smi_is_a_node_without_gpus_and_no_fault(tmp_path: Path) -> None:
    node = read_node({"PATH": str(tmp_path), "LLMGW_SYSFS_ROOT": str(tmp_path)})

    assert (node.reachable, node.gpus, node.error) == (True, (), None)


def test_wrapper_without_the_program_behind_it_is_no_nvidia_smi(tmp_path: Path) -> None:
    said = "bash: line 1: nvidia-smi: command not found\n"
    smi = write_nvidia_smi(tmp_path / "smi", stdout="", stderr=said, rc=127)

    node = read_node({"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(tmp_path)})

    assert (node.gpus, node.error) == ((), None)


def test_nvidia_smi_is_found_on_path(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin/nvidia-smi", [smi_gpu()])

    node = read_node({"PATH": str(tmp_path / "bin"), "LLMGW_SYSFS_ROOT": str(tmp_path)})

    assert [gpu.gpu_class for gpu in node.gpus] == ["h100-80g"]


def test_file_that_cannot_be_executed_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "smi").write_text("not a program")
    (tmp_path / "smi").chmod(0o755)

    reading = reader_of(tmp_path / "smi", tmp_path).read()

    assert reading.fault is not None
    assert reading.fault.code == "smi-failed"


def test_old_driver_that_refuses_fields_still_gives_gpus_and_capability(tmp_path: Path) -> None:
    unknown = [
        "compute_cap",
        "addressing_mode",
        "fabric.state",
        "fabric.status",
        "gpu_recovery_action",
    ]
    smi = write_nvidia_smi(tmp_path / "smi", [smi_gpu()], unknown_fields=unknown, cuda_version=None)

    reading = reader_of(smi, tmp_path).read()

    (gpu,) = assess_gpus(reading, {}, {})
    assert gpu.compute_capability == "9.0"
    assert reading.cuda_version is None
    assert reading.fault is None


def test_refused_fields_are_not_asked_again(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path / "smi", [smi_gpu()], unknown_fields=["compute_cap"])
    reader = reader_of(smi, tmp_path)
    (first,) = reader.read().rows

    (row,) = reader.read().rows

    assert "compute_cap" not in row.cells
    assert set(row.cells) == set(first.cells)


def test_another_nvidia_smi_is_asked_for_everything_anew(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path / "smi", [smi_gpu()], unknown_fields=["compute_cap"])
    reader = reader_of(smi, tmp_path)
    reader.read()
    write_nvidia_smi(smi, [smi_gpu()])

    (row,) = reader.read().rows

    assert row.text("compute_cap") == "9.0"


def test_help_narrows_the_second_query_in_one_step(tmp_path: Path) -> None:
    unknown = ["compute_cap", "fabric.state", "gpu_recovery_action", "fan.speed"]
    smi = write_nvidia_smi(
        tmp_path / "smi", [smi_gpu()], unknown_fields=unknown, knows_help=True, delay_s=0.1
    )
    reader = reader_of(smi, tmp_path)

    reading = reader.read()

    assert reading.has_details is True
    assert set(reader.extra).isdisjoint(unknown)
    assert "addressing_mode" in reader.extra


def test_renamed_field_is_read_under_its_new_name(tmp_path: Path) -> None:
    cells = {**smi_gpu(), "clocks_event_reasons.active": "0x8"}
    unknown = ["clocks_throttle_reasons.active"]
    smi = write_nvidia_smi(tmp_path / "smi", [cells], unknown_fields=unknown)

    (gpu,) = read_gpus(reader_of(smi, tmp_path))

    assert gpu.throttle_reasons == ("hw-slowdown",)


def test_mig_slices_are_listed_where_the_mode_is_on(tmp_path: Path) -> None:
    listed = (
        f"GPU 0: NVIDIA H200 (UUID: {gpu_uuid(0)})\n  MIG 1g.18gb Device  0: (UUID: MIG-11-aa)\n"
    )
    cells = smi_gpu(name="NVIDIA H200", total=143771, mig__mode__current="Enabled")
    smi = write_nvidia_smi(tmp_path / "smi", [cells], listed=listed)

    (gpu,) = read_gpus(reader_of(smi, tmp_path))

    assert [(item.gpu_class, item.uuid) for item in gpu.mig_instances] == [
        ("h200-mig-1g.18gb", "MIG-11-aa")
    ]


def test_one_lost_gpu_does_not_hide_the_others(tmp_path: Path) -> None:
    gpus = [smi_gpu(0), smi_gpu(1), smi_gpu(2)]
    smi = write_nvidia_smi(tmp_path / "smi", gpus, lost=["0000:28:00.0"])
    pci = ["0000:18:00.0", "0000:28:00.0", "0000:38:00.0"]
    sysfs = write_sysfs(tmp_path / "sys", pci_gpus=pci)

    reading = reader_of(smi, sysfs).read()

    found = assess_gpus(reading, {}, {})
    assert [(gpu.pci_bus_id, gpu.available) for gpu in found] == [
        ("0000:18:00.0", True),
        ("0000:28:00.0", False),
        ("0000:38:00.0", True),
    ]
    assert reading.fault is None


def test_lost_gpu_where_pci_cannot_be_listed_is_told_of_the_node(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path / "smi", [smi_gpu(0), smi_gpu(1)], lost=["0000:28:00.0"])

    reading = reader_of(smi, tmp_path / "none").read()

    assert reading.fault is not None
    assert reading.fault.code == "gpu-lost"
    assert [gpu.health[0].code for gpu in assess_gpus(reading, {}, {})] == ["gpu-lost"]


def test_rows_with_a_corrupt_inforom_are_valid(tmp_path: Path) -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:18:00.0\n"
    smi = write_nvidia_smi(tmp_path / "smi", [smi_gpu()], stderr=warning, rc=14)
    reader = reader_of(smi, tmp_path)

    reading = reader.read()

    (gpu,) = assess_gpus(reading, {}, {})
    assert reading.fault is None
    assert [flag.code for flag in gpu.health] == ["inforom-corrupt"]
    assert gpu.available is True


def test_no_driver_is_a_plain_statement(tmp_path: Path) -> None:
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n\n"
    smi = write_nvidia_smi(tmp_path / "smi", stdout=said, rc=9)

    node = read_node({"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(tmp_path)})

    assert node.reachable is True
    assert node.gpus == ()
    assert node.error is not None
    assert node.error.code == "no-driver"


@pytest.mark.slow
def test_silent_nvidia_smi_is_ended_and_told(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path / "smi", hang=True)
    reader = reader_of(smi, tmp_path, TIMEOUT_S)

    reading = reader.read()

    assert reading.fault is not None
    assert (reading.fault.code, reading.is_silent, reader.is_hung) == ("smi-timeout", True, False)


@pytest.mark.slow
def test_second_nvidia_smi_is_not_started_while_a_hung_one_lives(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path / "smi", hang=True, ignore_sigterm=True)
    reader = reader_of(smi, tmp_path, TIMEOUT_S)
    first = reader.read()
    write_nvidia_smi(smi, [smi_gpu()])

    started = time.monotonic()
    second = reader.read()
    took_s = time.monotonic() - started

    assert [r.fault.code for r in (first, second) if r.fault] == ["smi-hung", "smi-hung"]
    assert took_s < TIMEOUT_S
    end_hung(reader)
    assert len(reader.read().rows) == 1


def end_hung(reader: SmiReader) -> None:
    for process in reader.left_running:
        process.kill()
        process.wait(10)


@pytest.mark.slow
def test_reading_costs_one_nvidia_smi_not_three(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path / "smi", [smi_gpu()], delay_s=0.5)

    started = time.monotonic()
    reading = reader_of(smi, tmp_path).read()
    took_s = time.monotonic() - started

    assert len(reading.rows) == 1
    assert took_s < 0.5 * 2


def test_command_that_prints_without_end_is_cut_off() -> None:
    (result,) = run_together([["cat", "/dev/zero"]], 30.0, {"PATH": "/usr/bin:/bin"})

    assert result.timed_out is True
    assert len(result.stdout) <= MAX_OUTPUT_BYTES + 65536


def test_streams_are_kept_apart_and_undecodable_bytes_replaced() -> None:
    command = ["sh", "-c", r"printf 'a\377'; printf b >&2; exit 3"]

    (result,) = run_together([command], 30.0, {"PATH": "/usr/bin:/bin"})

    assert (result.stdout, result.stderr, result.code) == ("a�", "b", 3)


def test_command_that_is_not_there_says_so() -> None:
    (result,) = run_together([["/nonexistent/tool"]], 5.0, {})

    assert "nonexistent" in result.cannot_start
