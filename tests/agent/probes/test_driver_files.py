"""What the kernel module says of GPUs while nvidia-smi is silent."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes.driver_files import (
    DriverGpu,
    parse_information,
    parse_loaded_driver,
    read_driver_gpus,
)
from llmgw_core.agent.probes.gpus import GpuReading, assess_gpus

INFORMATION = (
    "Model: \t\t NVIDIA H200\nIRQ:   \t\t 207\nGPU UUID: \t GPU-6c1f00aa-11bb-22cc-33dd-44ee55ff6677\n"
    "Bus Type: \t PCIe\nGPU Excluded:\t No\n"
)
GPU = DriverGpu("0000:18:00.0", "NVIDIA H200", "GPU-6c1f00aa-11bb-22cc-33dd-44ee55ff6677")


def test_identity_of_each_gpu_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "driver/nvidia/gpus/0000:18:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(INFORMATION)

    assert read_driver_gpus(str(tmp_path)) == [GPU]


def test_gpu_that_never_answered_has_its_address_alone() -> None:
    text = "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\n"

    assert parse_information("0000:18:00.0", text) == DriverGpu("0000:18:00.0")


def test_machine_without_the_module_has_none(tmp_path: Path) -> None:
    assert read_driver_gpus(str(tmp_path)) == []


def test_loaded_driver_is_read_of_both_kinds_of_module() -> None:
    closed = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    )
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n"

    assert (parse_loaded_driver(closed), parse_loaded_driver(opened)) == ("550.54.15", "570.133.20")


def test_silent_first_reading_shows_who_is_there_and_nothing_of_how() -> None:
    (gpu,) = assess_gpus(GpuReading(is_silent=True, driver_gpus=(GPU,)), {}, {})

    assert (gpu.uuid, gpu.name, gpu.available) == (GPU.uuid, "NVIDIA H200", False)
    assert (gpu.memory_used_mib, [flag.code for flag in gpu.health]) == (None, ["unreadable"])


@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.decode("utf-8", "replace"))))
def test_no_text_breaks_a_parser(text: str) -> None:
    parse_information("0000:18:00.0", text)
    parse_information("0000:18:00.0", f"Model: {text}\nGPU UUID: GPU-{text}")
    parse_loaded_driver(text)
    parse_loaded_driver(f"NVRM version: {text}")
