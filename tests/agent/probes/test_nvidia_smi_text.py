"""What nvidia-smi prints is read cell by cell: value, absent, or failed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes import nvidia_smi, smi_faults
from llmgw_core.agent.probes.gpus import GpuReading, assess_gpus
from llmgw_core.agent.probes.nvidia_smi import parse_gpu_rows
from llmgw_core.agent.probes.smi_fields import APP_FIELDS, CORE_FIELDS, EXTRA_FIELDS

FIELDS = CORE_FIELDS + EXTRA_FIELDS


@pytest.mark.parametrize("token", ["[N/A]", "N/A", "[Not Supported]", "", "[Function Not Found]"])
def test_words_for_nothing_there_are_absent(token: str) -> None:
    (row,) = parse_gpu_rows(f"0, {token}\n", ("index", "memory.used"))

    assert row.whole("memory.used") is None
    assert row.failures == {}


@pytest.mark.parametrize("token", ["[Unknown Error]", "ERR!", "[GPU requires reset]", "[New Text]"])
def test_error_texts_are_failed_reads(token: str) -> None:
    (row,) = parse_gpu_rows(f"0, {token}\n", ("index", "memory.used"))

    assert row.whole("memory.used") is None
    assert row.failures == {"memory.used": token}


def test_numbers_are_read_with_and_without_units() -> None:
    (row,) = parse_gpu_rows("0, 81559 MiB, 71.22\n", ("index", "memory.total", "power.draw"))

    assert (row.whole("memory.total"), row.number("power.draw")) == (81559, 71.22)


def test_a_negative_number_is_not_a_reading() -> None:
    (row,) = parse_gpu_rows("0, -1\n", ("index", "memory.used"))

    assert row.whole("memory.used") is None


def test_a_line_cut_short_is_kept_without_its_last_cell() -> None:
    text = "0, GPU-a, NVIDIA L40S, 46068\n1, GPU-b, NVIDIA L4"

    rows = parse_gpu_rows(text, ("index", "uuid", "name", "memory.total"))

    assert [(row.whole("index"), row.text("name"), row.is_cut) for row in rows] == [
        (0, "NVIDIA L40S", False),
        (1, None, True),
    ]


def test_a_header_that_was_not_asked_for_is_no_row() -> None:
    text = "index, name, memory.total [MiB]\n0, NVIDIA L40S, 46068 MiB\n"

    (row,) = parse_gpu_rows(text, ("index", "name", "memory.total"))

    assert row.whole("memory.total") == 46068


def test_a_comma_too_many_belongs_to_the_name() -> None:
    (row,) = parse_gpu_rows("0, Odd, Name, 81559\n", ("index", "name", "memory.total"))

    assert (row.text("name"), row.whole("memory.total")) == ("Odd, Name", 81559)


def test_messages_between_rows_are_no_rows() -> None:
    text = (
        "0, NVIDIA H100, 36\n"
        "Unable to determine the device handle for GPU1: 0000:0A:00.0: GPU is lost.\n"
    )

    rows = parse_gpu_rows(text, ("index", "name", "temperature.gpu"), is_sure=False)

    assert [row.whole("index") for row in rows] == [0]


def test_app_names_may_hold_commas() -> None:
    (app,) = nvidia_smi.parse_app_rows("GPU-a, 9001, /opt/run --a=1, b=2, 512\n")

    assert (app.pid, app.name, app.memory_mib) == (9001, "/opt/run --a=1, b=2", 512)


def test_app_of_a_dead_process_has_no_name() -> None:
    (app,) = nvidia_smi.parse_app_rows("GPU-a, 310771, [Not Found], 10151\n")

    assert (app.name, app.memory_mib) == (None, 10151)


def test_app_row_without_rights_is_left_out() -> None:
    denied = ", ".join(["[Insufficient Permissions]"] * len(APP_FIELDS))

    assert nvidia_smi.parse_app_rows(denied) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("device handle for GPU 0000:0B:00.0: GPU is lost", [(None, "0000:0b:00.0")]),
        ("device handle for GPU0000:07:00.0: Unknown Error", [(None, "0000:07:00.0")]),
        ("device handle for GPU1: 0000:84:00.0: Not Found", [(1, "0000:84:00.0")]),
        ("device handle for\ngpu 0000:08:00.0: Unknown Error", [(None, "0000:08:00.0")]),
        ("No devices were found", []),
    ],
)
def test_lost_gpus_are_found_in_every_spelling(
    text: str, expected: list[tuple[int | None, str]]
) -> None:
    assert nvidia_smi.parse_lost_gpus(text) == expected


def test_bus_ids_are_written_as_sysfs_does() -> None:
    assert nvidia_smi.normalize_bus_id("0000000F:01:00.0") == "000f:01:00.0"


@pytest.mark.parametrize(
    ("text", "driver", "cuda"),
    [
        ("DRIVER version      : 550.54.15\nCUDA Version        : 12.4\n", "550.54.15", "12.4"),
        ("| KMD Version: 610.43.02     CUDA UMD Version: 13.3     |", "610.43.02", "13.3"),
        ("Invalid combination of input arguments.\n", None, None),
    ],
)
def test_versions_are_read_from_old_and_new_labels(
    text: str, driver: str | None, cuda: str | None
) -> None:
    assert nvidia_smi.parse_driver_version(text) == driver
    assert nvidia_smi.parse_cuda_version(text) == cuda


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            9,
            "no-driver",
        ),
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
            12,
            "driver-library-missing",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch\n", 18, "driver-mismatch"),
        ("Failed to initialize NVML: Unknown Error\n", 255, "nvml-unknown"),
        ("Failed to initialize NVML: No supported GPUs were found\n", 255, "no-devices"),
        ("No devices were found\n", 6, "no-devices"),
        ("Failed to initialize NVML: Insufficient Permissions\n", 4, "smi-denied"),
        ("", 4, "smi-denied"),
        ("", -11, "smi-crashed"),
        ("Segmentation fault\n", 139, "smi-crashed"),
        ("something new\n", 99, "smi-failed"),
    ],
)
def test_each_failure_has_its_code(text: str, code: int, expected: str) -> None:
    fault = smi_faults.explain_failure(text, code)

    assert fault is not None
    assert fault.code == expected
    assert fault.hint


def test_no_devices_is_no_fault_where_pci_lists_none() -> None:
    assert smi_faults.explain_failure("No devices were found\n", 6, []) is None


def test_no_devices_is_a_fault_where_pci_lists_one() -> None:
    fault = smi_faults.explain_failure("No devices were found\n", 6, ["0000:3b:00.0"])

    assert fault is not None
    assert "0000:3b:00.0" in fault.message


def test_what_nvidia_smi_says_cannot_drive_the_terminal() -> None:
    fault = smi_faults.explain_failure("\x1b[2Jboom", 99)

    assert fault is not None
    assert fault.message.isprintable()


TOKENS = st.sampled_from(
    [
        "[N/A]",
        "N/A",
        "[Unknown Error]",
        "ERR!",
        "[GPU requires reset]",
        "",
        "Enabled",
        "nan",
        "٣",
        "-5",
    ]
)
LINES = st.lists(st.one_of(TOKENS, st.text(max_size=8), st.integers().map(str))).map(", ".join)


@given(st.one_of(st.binary().map(lambda raw: raw.decode("utf-8", "replace")), st.text(), LINES))
def test_no_text_breaks_a_parser(text: str) -> None:
    rows = parse_gpu_rows(text, FIELDS)
    lost = nvidia_smi.parse_lost_gpus(text)
    apps = nvidia_smi.parse_app_rows(text)
    nvidia_smi.parse_cuda_version(text)
    nvidia_smi.parse_driver_version(text)
    smi_faults.explain_failure(text, 1)

    assess_gpus(GpuReading(rows=tuple(rows), apps=tuple(apps), lost=tuple(lost)), {}, {})


@given(
    st.lists(
        TOKENS | st.text(alphabet="[]/ abcNA!", max_size=12),
        min_size=len(FIELDS),
        max_size=len(FIELDS),
    )
)
def test_no_zero_is_invented(cells: list[str]) -> None:
    cells = [cell.replace(",", "") for cell in cells]
    rows = parse_gpu_rows(", ".join(["7", *cells[1:]]), FIELDS)

    (gpu,) = assess_gpus(GpuReading(rows=tuple(rows)), {}, {})

    assert gpu.index == 7
    assert 0 not in (
        gpu.memory_total_mib,
        gpu.memory_used_mib,
        gpu.utilization_percent,
        gpu.temperature_celsius,
        gpu.power_watts,
        gpu.power_limit_watts,
        gpu.ecc_uncorrected,
    )
