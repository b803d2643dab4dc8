"""MIG: slices are units of their own, with a class by profile."""

from collections.abc import Mapping
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes.gpus import GpuReading, assess_gpus
from llmgw_core.agent.probes.mig import MigSlice, name_slice_class, parse_mig_slices
from llmgw_core.agent.probes.nvidia_smi import AppRow, GpuRow, parse_cell
from llmgw_core.domain.hardware import Gpu
from tests.support.hardware import gpu_uuid, smi_gpu

LISTED = f"""GPU 0: NVIDIA H200 (UUID: {gpu_uuid(0)})
  MIG 1g.18gb     Device  0: (UUID: MIG-11111111-aaaa-5bbb-8ccc-dddddddddddd)
  MIG 1c.3g.71gb  Device  1: (UUID: MIG-22222222-aaaa-5bbb-8ccc-dddddddddddd)
GPU 1: NVIDIA H200 (UUID: {gpu_uuid(1)})
"""


def assess_mig(
    *,
    apps: tuple[AppRow, ...] = (),
    listed: str = LISTED,
    owners: Mapping[int, str] = MappingProxyType({}),
    taken: Mapping[int | str, str] = MappingProxyType({}),
    **cells: str,
) -> Gpu:
    raw = smi_gpu(0, name="NVIDIA H200", total=143771, **{"mig__mode__current": "Enabled", **cells})
    row = GpuRow({name: parse_cell(text) for name, text in raw.items()})
    reading = GpuReading(rows=(row,), apps=apps, slices=tuple(parse_mig_slices(listed)))
    (gpu,) = assess_gpus(reading, owners, taken)
    return gpu


def test_slices_belong_to_the_gpu_above_them() -> None:
    slices = parse_mig_slices(LISTED)

    assert [(item.gpu_index, item.profile, item.number) for item in slices] == [
        (0, "1g.18gb", 0),
        (0, "1c.3g.71gb", 1),
    ]


def test_old_uuid_says_gpu_and_instances() -> None:
    text = "GPU 0: A100 (UUID: GPU-1-a)\n  MIG 3g.20gb Device 0: (UUID: MIG-GPU-1-a/1/0)\n"

    assert parse_mig_slices(text) == [
        MigSlice("GPU-1-a", 0, "3g.20gb", 0, "MIG-GPU-1-a/1/0", 1, 0),
    ]


def test_slice_behind_a_message_is_not_given_to_the_gpu_before() -> None:
    message = "Unable to determine the device handle for gpu 0000:08:00.0: Unknown Error\n"
    lines = LISTED.split("\n", 1)

    assert parse_mig_slices(f"{lines[0]}\n{message}{lines[1]}")[0].gpu_uuid is None


def test_class_of_a_slice_is_by_profile() -> None:
    assert name_slice_class("NVIDIA H200", "1g.18gb") == "h200-mig-1g.18gb"
    assert name_slice_class("NVIDIA A100-SXM4-40GB", "1g.10gb+me") == "a100-mig-1g.10gb-me"
    assert name_slice_class(None, "1g.18gb") is None


def test_slices_of_a_healthy_gpu_are_available_and_the_gpu_is_not() -> None:
    gpu = assess_mig()

    assert gpu.available is False
    assert [(s.gpu_class, s.available) for s in gpu.mig_instances] == [
        ("h200-mig-1g.18gb", True),
        ("h200-mig-1c.3g.71gb", True),
    ]


def test_process_on_a_slice_holds_them_all_because_nobody_tells_which() -> None:
    gpu = assess_mig(apps=(AppRow(gpu_uuid(0), 4711, "python3", 2048),))

    assert [item.available for item in gpu.mig_instances] == [False, False]


def test_an_engine_of_ours_holds_its_own_slice_alone() -> None:
    slices = parse_mig_slices(LISTED)
    gpu = assess_mig(
        apps=(AppRow(gpu_uuid(0), 4711, "python3", 2048),),
        owners={4711: "small-00000001"},
        taken={slices[0].uuid: "small-00000001"},
    )

    assert [(item.available, item.engine) for item in gpu.mig_instances] == [
        (False, "small-00000001"),
        (True, None),
    ]


def test_a_stranger_beside_an_engine_of_ours_holds_all_slices() -> None:
    slices = parse_mig_slices(LISTED)
    apps = (
        AppRow(gpu_uuid(0), 4711, "python3", 2048),
        AppRow(gpu_uuid(0), 4712, "python3", 2048),
    )
    gpu = assess_mig(
        apps=apps, owners={4711: "small-00000001"}, taken={slices[0].uuid: "small-00000001"}
    )

    assert [item.available for item in gpu.mig_instances] == [False, False]


def test_slices_of_a_gpu_that_needs_a_reset_are_not_available() -> None:
    gpu = assess_mig(gpu_recovery_action="Reset")

    assert [item.available for item in gpu.mig_instances] == [False, False]


def test_mode_without_a_slice_is_told() -> None:
    gpu = assess_mig(listed="")

    (flag,) = (flag for flag in gpu.health if flag.code == "mig-enabled")
    assert "no instance" in flag.message


@given(st.one_of(st.binary().map(lambda raw: raw.decode("utf-8", "replace")), st.text()))
def test_no_text_breaks_the_parser(text: str) -> None:
    parse_mig_slices(text)
    parse_mig_slices(LISTED + text)
    name_slice_class(text, text)
