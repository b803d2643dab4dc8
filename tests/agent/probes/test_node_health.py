"""What is worth a word about a node as a whole, and what PCI has that no tool reads."""

from pathlib import Path

from llmgw_core.agent.inventory import read_node
from llmgw_core.agent.probes.gpus import GpuReading, assess_gpus
from llmgw_core.agent.probes.kernel_log import KernelLog
from llmgw_core.agent.probes.node_health import find_node_health
from llmgw_core.agent.probes.nvidia_smi import GpuRow, parse_cell
from llmgw_core.agent.probes.nvlink import parse_inactive_links
from llmgw_core.agent.probes.pci import PciCensus, PciGpu, read_pci
from llmgw_core.agent.probes.xids import parse_kernel_log
from llmgw_core.domain.hardware import Gpu
from tests.support.hardware import smi_gpu, write_nvidia_smi, write_sysfs


def write_device(root: Path, bus_id: str, vendor: str, kind: str) -> None:
    device = root / "bus/pci/devices" / bus_id
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(kind + "\n")


def reading_of(*cells: dict[str, str], **changes: object) -> GpuReading:
    rows = tuple(GpuRow({name: parse_cell(text) for name, text in raw.items()}) for raw in cells)
    return GpuReading(**{"rows": rows, **changes})  # type: ignore[arg-type]


def codes(reading: GpuReading) -> list[str]:
    return [flag.code for flag in find_node_health(reading, assess_gpus(reading, {}, {}))]


def test_healthy_node_has_nothing_to_say() -> None:
    log = KernelLog(is_readable=True)

    assert codes(reading_of(smi_gpu(0), smi_gpu(1), log=log)) == []


def test_kernel_log_that_may_not_be_read_is_said_once() -> None:
    assert codes(reading_of(smi_gpu(0), smi_gpu(1), log=KernelLog())) == ["xid-unknown"]


def test_six_seconds_are_slow_and_not_dead() -> None:
    assert codes(reading_of(smi_gpu(0), took_s=6.1)) == ["smi-slow"]


def test_second_query_without_an_answer_is_told() -> None:
    assert codes(reading_of(smi_gpu(0), has_details=False)) == ["details-unread"]


def test_gpu_the_driver_could_not_start_is_told_from_the_kernel_log() -> None:
    text = "NVRM: GPU 0000:28:00.0: RmInitAdapter failed! (0x24:0xffff:1220)"
    log = KernelLog(parse_kernel_log(text), is_readable=True)

    assert codes(reading_of(smi_gpu(0), log=log)) == ["gpu-init-failed"]


def test_one_product_with_two_totals_is_told() -> None:
    reading = reading_of(smi_gpu(0, total=81920), smi_gpu(1, total=81251))

    assert codes(reading) == ["memory-differs"]


def test_nvidia_gpus_without_nvidia_smi_are_a_warning_and_no_fault(tmp_path: Path) -> None:
    sysfs = write_sysfs(tmp_path / "sys", pci_gpus=["0000:18:00.0"])

    node = read_node({"PATH": str(tmp_path), "LLMGW_SYSFS_ROOT": str(sysfs)})

    assert (node.error, node.gpus) == (None, ())
    assert [flag.code for flag in node.health] == ["gpu-unread"]


def test_census_knows_makers_and_leaves_console_chips_out(tmp_path: Path) -> None:
    write_device(tmp_path, "0000:03:00.0", "0x19e5", "0x030000")
    write_device(tmp_path, "0000:3b:00.0", "0x10de", "0x030200")
    write_device(tmp_path, "0000:3b:00.1", "0x10de", "0x040300")
    write_device(tmp_path, "0000:5a:00.0", "0x1002", "0x120000")
    write_device(tmp_path, "0000:7d:00.0", "0x10de", "0x068000")
    write_device(tmp_path, "0000:9a:00.0", "0x1da3", "0x120000")
    write_device(tmp_path, "0000:00:02.0", "0x8086", "0x038000")

    assert read_pci(str(tmp_path)) == PciCensus(
        nvidia=(PciGpu("0000:3b:00.0", has_driver=False),),
        amd=("0000:5a:00.0",),
        others=(("Habana", "0000:9a:00.0"),),
        has_nvswitch=True,
    )


def test_pci_that_cannot_be_listed_is_unknown(tmp_path: Path) -> None:
    assert read_pci(str(tmp_path / "none")) is None


def test_only_links_that_are_down_beside_others_count() -> None:
    text = (
        "GPU 0: NVIDIA H200 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA H200 (UUID: GPU-2)\n\t Link 0: <inactive>\n"
        "GPU 2: NVIDIA L40S (UUID: GPU-3)\nDevice does not have or support Nvlink\n"
    )

    assert parse_inactive_links(text) == {0: 1}


def assess_one(reading: GpuReading) -> Gpu:
    (gpu,) = assess_gpus(reading, {}, {})
    return gpu


def test_link_that_is_down_is_a_warning() -> None:
    gpu = assess_one(reading_of(smi_gpu(0), inactive_links={0: 2}))

    assert ([flag.code for flag in gpu.health], gpu.available) == (["nvlink-inactive"], True)


def test_a100_board_without_its_fabric_manager_is_not_available() -> None:
    cells = smi_gpu(0, name="NVIDIA A100-SXM4-80GB")

    gpu = assess_one(reading_of(cells, has_fabric_manager=False))

    assert ([flag.code for flag in gpu.health], gpu.available) == (["nvlink-fabric"], False)


def test_unified_memory_is_the_machines(tmp_path: Path) -> None:
    cells = smi_gpu(0, name="NVIDIA GB10", total="[N/A]", used="[N/A]")
    smi = write_nvidia_smi(tmp_path / "smi", [cells])

    node = read_node({"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(tmp_path)})

    (gpu,) = node.gpus
    assert (gpu.memory_total_mib, gpu.gpu_class) == (None, "gb10-uma")
    assert gpu.unified_memory_mib == (node.host.memory_total_bytes or 0) >> 20
