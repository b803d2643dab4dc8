"""Xid errors in the kernel log: found, none, or not known; and what each calls for."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes.gpus import GpuReading, assess_gpus
from llmgw_core.agent.probes.kernel_log import KernelLog, KernelLogReading, read_kmsg
from llmgw_core.agent.probes.nvidia_smi import GpuRow, parse_cell
from llmgw_core.agent.probes.xids import judge_xid, parse_kernel_log
from llmgw_core.domain.hardware import Gpu
from tests.support.hardware import smi_gpu

NOW = 1_800_000_000.0
OFF = "GPU has fallen off the bus."


def kmsg(code: int, seconds_ago: float = 60, bus: str = "0000:18:00", rest: str = OFF) -> str:
    stamp = int((NOW - seconds_ago) * 1e6)
    return (
        f"3,2381,{stamp},-;NVRM: Xid (PCI:{bus}): {code}, pid='<unknown>', name=<unknown>, {rest}"
    )


def assess(*lines: str) -> Gpu:
    log = KernelLog(parse_kernel_log("\n".join(lines), 0.0), is_readable=True)
    row = GpuRow({name: parse_cell(text) for name, text in smi_gpu(0).items()})
    (gpu,) = assess_gpus(GpuReading(rows=(row,), log=log, at=NOW), {}, {})
    return gpu


@pytest.mark.parametrize(
    ("line", "bus", "code", "at"),
    [
        ("3,9,5000000,-;NVRM: Xid (PCI:0000:05:00): 79, pid=1, x", "0000:05:00", 79, 1005.0),
        ("[    7.500000] NVRM: Xid (0000:03:00): 14, Channel 2", "0000:03:00", 14, 1007.5),
        (
            "1800000000.25 n1 kernel: NVRM: Xid (PCI:0009:01:00): 13, x",
            "0009:01:00",
            13,
            NOW + 0.25,
        ),
        (
            "2026-01-01T00:00:00+0000 node kernel: NVRM: Xid (PCI:0000:04:00): 48, x",
            "0000:04:00",
            48,
            1767225600.0,
        ),
        ("NVRM: Xid (PCI:00000000:04:00): 48, x", "0000:04:00", 48, None),
    ],
)
def test_every_form_of_line_is_read(line: str, bus: str, code: int, at: float | None) -> None:
    (event,) = parse_kernel_log(line, 1000.0).xids

    assert (event.bus, event.code, event.at) == (bus, code, at)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (79, "", ("fatal", "reboot")),
        (119, "", ("fatal", "reset")),
        (13, "", ("application", "restart-application")),
        (45, "", ("application", "restart-application")),
        (63, "", ("info", "none")),
        (109, "", ("warning", "check")),
        (145, "RLW_REMAP Nonfatal XC0 i0", ("warning", "check")),
        (145, "RLW_REMAP Fatal XC0 i0", ("fatal", "reset")),
        (154, "changed from 0x0 (None) to 0x1 (GPU Reset Required)", ("fatal", "reset")),
        (154, "changed from 0x1 (GPU Reset Required) to 0x0 (None)", ("info", "none")),
        (999, "", ("warning", "check")),
    ],
)
def test_verdict(code: int, message: str, expected: tuple[str, str]) -> None:
    assert judge_xid(code, message) == expected


def test_fallen_off_without_an_xid_is_found_over_three_lines() -> None:
    text = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.\n"
        "NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x24:0xffff:1220)"
    )

    events = parse_kernel_log(text)

    assert (events.off_bus, events.init_failed) == (("0000:b3:00",), ("0000:18:00",))


def test_recent_fatal_error_makes_the_gpu_unavailable() -> None:
    gpu = assess(kmsg(119))

    assert [flag.code for flag in gpu.health] == ["xid-fatal"]
    assert gpu.available is False


def test_old_fatal_error_of_a_gpu_that_answers_is_a_warning() -> None:
    gpu = assess(kmsg(119, seconds_ago=3 * 3600))

    assert [flag.code for flag in gpu.health] == ["xid-past"]
    assert gpu.available is True


def test_errors_of_programs_are_counted_and_no_flaw() -> None:
    gpu = assess(kmsg(45), kmsg(45), kmsg(13))

    assert gpu.health == ()
    assert [(xid.code, xid.verdict, xid.count) for xid in gpu.xids or ()] == [
        (13, "application", 1),
        (45, "application", 2),
    ]


def test_error_of_another_gpu_is_not_this_ones() -> None:
    gpu = assess(kmsg(79, bus="0000:38:00"))

    assert (gpu.health, gpu.xids) == ((), ())


def test_log_that_may_not_be_read_is_unknown_and_not_clean(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "LLMGW_SYSFS_ROOT": str(tmp_path)}
    for name in ("dmesg", "journalctl"):
        (tmp_path / name).write_text("#!/bin/sh\necho '-- No entries --'\n")
        (tmp_path / name).chmod(0o755)

    assert KernelLogReading(env).finish().is_readable is False


def test_journal_is_read_where_kmsg_is_not_this_machines(tmp_path: Path) -> None:
    (tmp_path / "journalctl").write_text(f'#!/bin/sh\necho "{kmsg(79)}"\n')
    (tmp_path / "journalctl").chmod(0o755)

    log = KernelLogReading({"PATH": str(tmp_path), "LLMGW_SYSFS_ROOT": str(tmp_path)}).finish()

    assert (log.is_readable, [event.code for event in log.events.xids]) == (True, [79])


def test_file_named_by_the_environment_is_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(kmsg(62) + "\n")

    log = KernelLogReading({"LLMGW_KERNEL_LOG": str(tmp_path / "log")}).finish()

    assert [event.code for event in log.events.xids] == [62]


def test_kmsg_that_cannot_be_opened_is_none(tmp_path: Path) -> None:
    assert read_kmsg(str(tmp_path / "kmsg")) is None


LINES = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.builds(lambda code, rest: kmsg(code, rest=rest), st.integers(0, 10**6), st.text()),
    )
).map("\n".join)


@given(st.one_of(LINES, st.binary().map(lambda raw: "NVRM: Xid " + raw.decode("utf-8", "replace"))))
def test_no_log_breaks_the_parser(text: str) -> None:
    for event in parse_kernel_log(text, time.time()).xids:
        assert event.verdict in ("fatal", "warning", "application", "info")
