"""Host facts and the owners of processes, from /proc and the standard library alone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes import host
from llmgw_core.agent.probes.processes import is_host_pid_namespace, read_processes
from llmgw_core.domain.hardware import Host

NO_PID = 2**31 - 2


def test_this_machine_answers_in_full() -> None:
    found = host.read_host()

    assert [name for name, value in vars(found).items() if value is None] == []


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    found = host.read_host(str(tmp_path), str(tmp_path))

    assert (found.memory_total_bytes, found.boot_id, found.os) == (None, None, None)
    assert (found.uptime_seconds, found.hostname) == (None, os.uname().nodename)


def test_memory_is_in_bytes() -> None:
    text = "MemTotal:       131841988 kB\nMemFree: 1 kB\nMemAvailable:   100 kB\n"

    assert host.parse_meminfo(text) == (131841988 * 1024, 102400)


def test_uptime_is_whole_seconds() -> None:
    assert host.parse_uptime("350735.47 234388.90\n") == 350735


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
            "Debian GNU/Linux 12 (bookworm)",
        ),
        ("PRETTY_NAME=Alpine\n", "Alpine"),
        ("PRETTY_NAME='One \\$'\n", "One $"),
        ('PRETTY_NAME=""\n', None),
        ("", None),
    ],
)
def test_system_is_named_for_people(text: str, expected: str | None) -> None:
    assert host.parse_os_release(text) == expected


@given(st.text())
def test_no_text_breaks_a_parser(text: str) -> None:
    host.parse_meminfo(text)
    host.parse_uptime(text)
    host.parse_os_release(text)


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-ISc", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def test_owner_of_a_process_that_looks_as_the_driver_says(
    child: "subprocess.Popen[bytes]",
) -> None:
    name = f"{sys.executable} -ISc input()"

    found = read_processes([(child.pid, name)])

    assert found[child.pid].user is not None
    assert found[child.pid].is_gone is False


def test_pid_without_a_process_is_gone_only_where_pids_are_the_hosts() -> None:
    found = read_processes([(NO_PID, "python3")])

    assert found[NO_PID].user is None
    assert found[NO_PID].is_gone is is_host_pid_namespace()


def test_in_a_container_a_pid_of_another_program_tells_nothing(tmp_path: Path) -> None:
    process = tmp_path / "4711"
    process.mkdir()
    (process / "comm").write_text("bash\n")
    (process / "cmdline").write_bytes(b"/bin/bash\0-l\0")

    found = read_processes([(4711, "/opt/app/serve")], str(tmp_path))

    assert (found[4711].user, found[4711].is_gone) == (None, False)


def test_host_without_readings_is_all_unknown() -> None:
    assert set(vars(Host()).values()) == {None}
