"""AMD GPUs: amd-smi, rocm-smi and sysfs, whatever NVIDIA's tools do."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.inventory import read_node
from llmgw_core.agent.probes.amd import AmdReader, AmdReading, assess_amd_gpus
from llmgw_core.agent.probes.amd_text import (
    AmdProcess,
    AmdRow,
    fill_gaps,
    parse_amd_processes,
    parse_amd_smi,
    parse_rocm_smi,
)
from tests.support.hardware import smi_gpu, write_nvidia_smi

STATIC = [
    {
        "gpu": 0,
        "asic": {
            "market_name": "AMD Instinct MI300X",
            "asic_serial": "0x9A1",
            "target_graphics_version": "gfx942",
        },
        "bus": {"bdf": "0000:05:00.0"},
        "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}},
    }
]
METRIC = [
    {
        "gpu": 0,
        "usage": {"gfx_activity": {"value": 7, "unit": "%"}},
        "power": {"socket_power": {"value": 141, "unit": "W"}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 44, "unit": "C"}},
        "mem_usage": {"used_vram": {"value": 285, "unit": "MB"}},
        "ecc": {"total_uncorrectable_count": 0},
    }
]
MIB = 1 << 20
ROCM = {
    "card0": {
        "Card Series": "AMD Instinct MI300X",
        "VRAM Total Memory (B)": "206141652992",
        "VRAM Total Used Memory (B)": "299839488",
        "Unique ID": "0x9a1",
        "GPU use (%)": "3",
    },
    "system": {"Driver version": "6.10.5"},
}


def write_tool(path: Path, **answers: str) -> Path:
    """An executable that answers by its first argument."""
    cases = "".join(f"{word}) cat <<'END'\n{text}\nEND\n;;\n" for word, text in answers.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n')
    path.chmod(0o755)
    return path


def write_card(root: Path, bus_id: str, *, used_mib: int = 200) -> None:
    device = root / "devices" / bus_id
    device.mkdir(parents=True)
    files = {
        "vendor": "0x1002",
        "mem_info_vram_total": str(196592 * MIB),
        "mem_info_vram_used": str(used_mib * MIB),
        "gpu_busy_percent": "5",
        "unique_id": "9a1",
    }
    for name, text in files.items():
        (device / name).write_text(text + "\n")
    number = len(list((root / "class/drm").glob("card*"))) if (root / "class/drm").exists() else 0
    card = root / f"class/drm/card{number}"
    card.mkdir(parents=True)
    (card / "device").symlink_to(device)


def test_amd_smi_gives_identity_and_readings() -> None:
    (row,) = parse_amd_smi(json.dumps(STATIC), json.dumps({"gpu_data": METRIC}))

    assert row == AmdRow(
        index=0,
        name="AMD Instinct MI300X",
        uuid="0x9A1",
        bus_id="0000:05:00.0",
        architecture="gfx942",
        memory_total_mib=196592,
        memory_used_mib=285,
        utilization_percent=7,
        temperature_celsius=44,
        power_watts=141.0,
        ecc_uncorrected=0,
    )


def test_rocm_smi_gives_bytes_in_strings() -> None:
    (row,) = parse_rocm_smi("WARNING: low power\n" + json.dumps(ROCM))

    assert (row.name, row.memory_total_mib, row.memory_used_mib) == (
        "AMD Instinct MI300X",
        196592,
        285,
    )


def test_words_for_nothing_are_not_zero() -> None:
    (row,) = parse_amd_smi('[{"gpu": 0, "vram": {"size": "N/A"}}]', '[{"gpu": 0, "usage": "N/A"}]')

    assert row == AmdRow(index=0)


def test_what_a_tool_leaves_out_comes_from_the_kernel() -> None:
    (row,) = fill_gaps(
        [AmdRow(0, name="MI300X", bus_id="0000:05:00.0")],
        [AmdRow(3, name="other", bus_id="0000:05:00.0", memory_total_mib=196592)],
    )

    assert (row.index, row.name, row.memory_total_mib) == (0, "MI300X", 196592)


def test_processes_are_read_with_their_memory() -> None:
    listed = [
        {
            "gpu": 0,
            "process_list": [
                {
                    "process_info": {
                        "name": "vllm",
                        "pid": 77,
                        "memory_usage": {"vram_mem": {"value": 2097152, "unit": "B"}},
                    }
                }
            ],
        },
        {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]},
    ]

    assert parse_amd_processes(json.dumps(listed)) == [AmdProcess(0, 77, "vllm", 2)]


def test_idle_card_is_available_and_a_used_one_is_not() -> None:
    rows = (
        AmdRow(0, name="AMD Instinct MI300X", memory_total_mib=196592, memory_used_mib=285),
        AmdRow(1, name="AMD Instinct MI300X", memory_total_mib=196592, memory_used_mib=90000),
    )

    gpus = assess_amd_gpus(AmdReading(rows), {}, {})

    assert [(gpu.gpu_class, gpu.vendor, gpu.available) for gpu in gpus] == [
        ("mi300x-192g", "amd", True),
        ("mi300x-192g", "amd", False),
    ]
    assert [flag.code for flag in gpus[1].health] == ["memory-held"]


def test_node_with_rocm_smi_alone_shows_its_gpus(tmp_path: Path) -> None:
    tool = write_tool(tmp_path / "bin/rocm-smi", **{"--showproductname": json.dumps(ROCM)})

    node = read_node({"PATH": f"{tool.parent}:/bin", "LLMGW_SYSFS_ROOT": str(tmp_path)})

    assert [gpu.memory_total_mib for gpu in node.gpus] == [196592]
    assert node.error is None


def test_kernel_alone_tells_of_cards(tmp_path: Path) -> None:
    write_card(tmp_path, "0000:05:00.0")

    node = read_node({"PATH": str(tmp_path), "LLMGW_SYSFS_ROOT": str(tmp_path)})

    assert [(gpu.pci_bus_id, gpu.memory_total_mib, gpu.memory_used_mib) for gpu in node.gpus] == [
        ("0000:05:00.0", 196592, 200)
    ]


def test_tool_that_fails_leaves_what_the_kernel_says(tmp_path: Path) -> None:
    write_card(tmp_path, "0000:05:00.0")
    tool = write_tool(tmp_path / "bin/amd-smi", static="AMDSMI_STATUS_INIT_ERROR")

    reading = AmdReader(
        {"LLMGW_AMD_SMI": str(tool), "LLMGW_SYSFS_ROOT": str(tmp_path), "PATH": "/bin:/usr/bin"}
    ).read()

    assert [row.memory_total_mib for row in reading.rows] == [196592]
    assert reading.why_partial is not None
    assert "AMDSMI_STATUS_INIT_ERROR" in reading.why_partial


def test_failing_nvidia_driver_does_not_hide_amd_gpus(tmp_path: Path) -> None:
    write_card(tmp_path / "sys", "0000:05:00.0")
    smi = write_nvidia_smi(
        tmp_path / "smi", stdout="couldn't communicate with the NVIDIA driver", rc=9
    )

    node = read_node({"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(tmp_path / "sys")})

    assert [gpu.vendor for gpu in node.gpus] == ["amd"]
    assert node.error is not None
    assert node.error.code == "no-driver"


def test_indices_of_a_mixed_node_are_unique(tmp_path: Path) -> None:
    write_card(tmp_path / "sys", "0000:05:00.0")
    smi = write_nvidia_smi(tmp_path / "smi", [smi_gpu(0), smi_gpu(1)])

    node = read_node({"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(tmp_path / "sys")})

    assert [(gpu.index, gpu.vendor) for gpu in node.gpus] == [
        (0, "nvidia"),
        (1, "nvidia"),
        (2, "amd"),
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8) | st.just("N/A"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["gpu", "pid", "vram", "size", "value", "unit", "asic", "card0", "usage", "name"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.one_of(
        st.binary().map(lambda raw: raw.decode("utf-8", "replace")),
        VALUES.map(json.dumps),
        st.text(),
    )
)
def test_no_text_breaks_a_parser(text: str) -> None:
    rows = parse_amd_smi(text, text) + parse_rocm_smi(text)
    apps = parse_amd_processes(text)

    assess_amd_gpus(AmdReading(tuple(rows), tuple(apps)), {}, {})


def test_deep_nesting_is_no_document() -> None:
    assert parse_rocm_smi("[" * 100_000) == []
