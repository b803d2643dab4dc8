"""Whether a GPU is one to launch on: health flags, who holds its memory, and what is free."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from llmgw_core.agent.probes.gpus import GpuReading, assess_gpus, find_missing_gpus
from llmgw_core.agent.probes.nvidia_smi import AppRow, GpuRow, parse_cell
from llmgw_core.agent.probes.pci import PciGpu
from llmgw_core.agent.probes.processes import ProcessFacts
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu
from tests.support.hardware import gpu_uuid, smi_gpu


def row(index: int = 0, cells: Mapping[str, str] = MappingProxyType({})) -> GpuRow:
    raw = {**smi_gpu(index), **cells}
    return GpuRow({name: parse_cell(text) for name, text in raw.items()})


def assess(
    reading: GpuReading,
    owners: Mapping[int, str] = MappingProxyType({}),
    taken: Mapping[int | str, str] = MappingProxyType({}),
) -> Gpu:
    (gpu,) = assess_gpus(reading, owners, taken)
    return gpu


def app(pid: int, memory_mib: int | None = 2048, name: str | None = "python3") -> AppRow:
    return AppRow(gpu_uuid(0), pid, name, memory_mib)


def codes(gpu: Gpu) -> list[str]:
    return [flag.code for flag in gpu.health]


def test_idle_healthy_gpu_is_available() -> None:
    gpu = assess(GpuReading(rows=(row(),)))

    assert (gpu.available, gpu.health) == (True, ())


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ({"ecc.errors.uncorrected.volatile.total": "2"}, "ecc-uncorrected"),
        ({"temperature.gpu": "[GPU requires reset]"}, "requires-reset"),
        ({"gpu_recovery_action": "Reset"}, "requires-reset"),
        ({"temperature.gpu": "[GPU is lost]"}, "gpu-lost"),
        ({"memory.used": "[Unknown Error]"}, "unreadable"),
        ({"memory.used": "[N/A]"}, "memory-unknown"),
        ({"mig.mode.current": "Enabled"}, "mig-enabled"),
        ({"compute_mode": "Prohibited"}, "compute-prohibited"),
        ({"memory.free": "[Insufficient Permissions]"}, "memory-unknown"),
        (
            {"ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "Yes"},
            "ecc-sram-threshold",
        ),
        ({"remapped_rows.failure": "Yes"}, "row-remap-failed"),
        ({"fabric.state": "In Progress"}, "nvlink-fabric"),
        ({"fabric.state": "Completed", "fabric.status": "Insufficient Resources"}, "nvlink-fabric"),
        ({"memory.used": "65"}, "memory-held"),
    ],
)
def test_this_makes_a_gpu_unavailable(cells: dict[str, str], code: str) -> None:
    gpu = assess(GpuReading(rows=(row(0, cells),)))

    assert codes(gpu) == [code]
    assert gpu.available is False


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"temperature.gpu": "[Unknown Error]"}, ["unreadable"]),
        ({"remapped_rows.pending": "Yes"}, ["row-remap-pending"]),
        ({"retired_pages.pending": "Yes"}, ["retired-pages-pending"]),
        ({"retired_pages.sbe": "60", "retired_pages.dbe": "2"}, ["memory-worn"]),
        ({"retired_pages.sbe": "60", "retired_pages.dbe": "1"}, []),
        ({"remapped_rows.uncorrectable": "513"}, ["memory-worn"]),
        ({"ecc.errors.uncorrected.aggregate.total": "3"}, ["ecc-uncorrected-past"]),
        ({"ecc.mode.current": "Disabled"}, ["ecc-off"]),
        ({"persistence_mode": "Disabled"}, ["persistence-off"]),
        ({"utilization.gpu": "[N/A]"}, ["utilization-unknown"]),
        ({"compute_mode": "Exclusive_Process"}, ["compute-exclusive"]),
        ({"name": "NVIDIA H100L-2-24C"}, ["vgpu"]),
        ({"clocks_throttle_reasons.active": "0x0000000000000048"}, ["throttled"]),
        ({"clocks_throttle_reasons.active": "0x0000000000000005"}, []),
        ({"temperature.gpu.tlimit": "35"}, []),
        ({"temperature.gpu.tlimit": "0"}, ["throttled"]),
        ({"memory.used": "64"}, []),
        ({"memory.used": "600", "display_active": "Enabled"}, []),
        ({"memory.used": "41230", "addressing_mode": "ATS"}, ["memory-used-inexact"]),
        (
            {"name": "NVIDIA GB10", "memory.used": "[N/A]", "memory.total": "[N/A]"},
            ["unified-memory"],
        ),
        ({"ecc.errors.uncorrected.volatile.total": "[N/A]"}, []),
        ({"fabric.state": "Completed", "fabric.status": "Success"}, []),
    ],
)
def test_this_leaves_a_gpu_available(cells: dict[str, str], expected: list[str]) -> None:
    gpu = assess(GpuReading(rows=(row(0, cells),)))

    assert codes(gpu) == expected
    assert gpu.available is True


def test_card_that_needs_a_reset_does_not_read_as_empty_and_idle() -> None:
    gpu = assess(GpuReading(rows=(row(0, {"memory.used": "0", "gpu_recovery_action": "Reset"}),)))

    assert (gpu.memory_used_mib, gpu.utilization_percent) == (None, None)


def test_foreign_process_is_named_with_pid_user_and_memory() -> None:
    reading = GpuReading(rows=(row(),), apps=(app(4711),), processes={4711: ProcessFacts("svc")})

    gpu = assess(reading)

    (flag,) = gpu.health
    assert flag.code == "memory-held"
    assert flag.message.startswith("pid 4711 (python3, user svc) holds 2048 MiB")
    assert gpu.available is False


def test_memory_of_a_dead_process_asks_for_a_reset() -> None:
    reading = GpuReading(
        rows=(row(),), apps=(app(7, name=None),), processes={7: ProcessFacts(is_gone=True)}
    )

    (flag,) = assess(reading).health

    assert "reset" in flag.message


def test_process_of_our_engine_holds_the_gpu_for_it_and_is_no_flaw() -> None:
    reading = GpuReading(rows=(row(0, {"memory.used": "70000"}),), apps=(app(4711),))

    gpu = assess(reading, owners={4711: "llama-0a1b2c3d"})

    assert (gpu.engine, gpu.health, gpu.available) == ("llama-0a1b2c3d", (), False)
    assert gpu.processes[0].engine == "llama-0a1b2c3d"


def test_gpu_taken_by_our_engine_is_not_held_by_memory_without_a_process() -> None:
    gpu = assess(GpuReading(rows=(row(0, {"memory.used": "70000"}),)), taken={0: "llama-0a1b2c3d"})

    assert (gpu.engine, gpu.health, gpu.available) == ("llama-0a1b2c3d", (), False)


def test_process_beside_our_engine_is_told() -> None:
    reading = GpuReading(
        rows=(row(),), apps=(app(1), app(2)), processes={2: ProcessFacts("somebody")}
    )

    gpu = assess(reading, owners={1: "llama-0a1b2c3d"})

    assert codes(gpu) == ["memory-held"]


def test_desktop_compositor_does_not_hold_a_gpu() -> None:
    reading = GpuReading(
        rows=(row(0, {"display_active": "Enabled"}),), apps=(app(9, 25, "/usr/bin/kwin"),)
    )

    assert assess(reading).available is True


def test_gpu_in_a_line_cut_short_is_shown_and_not_available() -> None:
    cut = GpuRow({"index": parse_cell("3")}, is_cut=True)

    gpu = assess(GpuReading(rows=(cut,)))

    assert (gpu.index, codes(gpu), gpu.available) == (3, ["unreadable"], False)


def test_lost_gpu_keeps_the_identity_of_an_earlier_reading() -> None:
    known = assess_gpus(GpuReading(rows=(row(0), row(1))), {}, {})

    gpus = assess_gpus(GpuReading(rows=(row(0),), lost=((None, "0000:28:00.0"),)), {}, {}, known)

    assert [(gpu.index, gpu.uuid, gpu.available) for gpu in gpus] == [
        (0, gpu_uuid(0), True),
        (1, gpu_uuid(1), False),
    ]
    assert codes(gpus[1]) == ["gpu-lost"]


def test_silent_driver_leaves_identities_without_readings() -> None:
    known = assess_gpus(GpuReading(rows=(row(),)), {}, {})

    (gpu,) = assess_gpus(GpuReading(is_silent=True), {}, {}, known)

    assert (gpu.uuid, gpu.gpu_class, gpu.memory_used_mib) == (gpu_uuid(0), "h100-80g", None)
    assert (codes(gpu), gpu.available) == (["unreadable"], False)


def test_errors_come_before_warnings() -> None:
    gpu = assess(
        GpuReading(rows=(row(0, {"remapped_rows.pending": "Yes", "mig.mode.current": "Enabled"}),))
    )

    assert [flag.severity for flag in gpu.health] == [Severity.ERROR, Severity.WARNING]


def test_gpu_on_the_bus_that_is_in_no_row_is_missing() -> None:
    pci = [
        PciGpu("0000:18:00.0", has_driver=True),
        PciGpu("0000:82:00.0", has_driver=True),
        PciGpu("0000:99:00.0", has_driver=False),
    ]

    assert find_missing_gpus([row(0)], [], pci) == ["0000:82:00.0"]


@pytest.mark.parametrize(
    ("fact", "kind"),
    [
        (ProcessFacts("svc"), "user"),
        (ProcessFacts("root", container="6c1f00aa11bb"), "container"),
        (ProcessFacts(is_gone=True), "orphan"),
        (ProcessFacts(), "hidden"),
    ],
)
def test_whose_a_process_is_is_told(fact: ProcessFacts, kind: str) -> None:
    gpu = assess(GpuReading(rows=(row(),), apps=(app(7),), processes={7: fact}))

    assert [process.kind for process in gpu.processes] == [kind]
    assert gpu.available is False


def test_capability_comes_from_the_device_id_when_name_and_driver_say_nothing() -> None:
    cells = {"name": "Tesla PG500-216", "compute_cap": "[N/A]", "pci.device_id": "0x1DF010DE"}

    gpu = assess(GpuReading(rows=(row(0, cells),)))

    assert (gpu.compute_capability, gpu.compute_capability_source) == ("7.0", "pci")


def test_throttle_reasons_are_named() -> None:
    gpu = assess(GpuReading(rows=(row(0, {"clocks_throttle_reasons.active": "0x84"}),)))

    assert gpu.throttle_reasons == ("sw-power-cap", "hw-power-brake")
