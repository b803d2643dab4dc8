"""Host facts and the owners of processes, from /proc and the standard library alone."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes import host, host_reader
from llmgw_core.agent.probes.host_reader import HostReader
from llmgw_core.agent.probes.model_cache import Room, read_room
from llmgw_core.agent.probes.processes import is_host_pid_namespace, read_processes
from llmgw_core.domain.hardware import Host
from tests.support.agents import wait_for

NO_PID = 2**31 - 2


def test_this_machine_answers_in_full() -> None:
    reader = HostReader(os.environ)
    first = reader.read()
    found = wait_for(
        lambda: next((host for host in [reader.read()] if host.cpu_percent is not None), None),
        "a tick of the clock",
    )

    assert first.cpu_percent is None
    assert [name for name, value in vars(found).items() if value is None] == []
    assert 0 <= found.cpu_percent <= 100
    assert 0 < found.model_cache_free_bytes <= found.model_cache_total_bytes


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    found = host.read_host(str(tmp_path), str(tmp_path))

    assert (found.memory_total_bytes, found.boot_id, found.os) == (None, None, None)
    assert (found.uptime_seconds, found.hostname) == (None, os.uname().nodename)


def test_memory_is_in_bytes() -> None:
    text = "MemTotal:       131841988 kB\nMemFree: 1 kB\nMemAvailable:   100 kB\n"

    assert host.parse_meminfo(text) == (131841988 * 1024, 102400)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu  1 2 3 40 5 6 7 8 9 10\ncpu0 1\n", (27, 72)),
        ("cpu  1 2 3 40 5 6 7 8\n", (27, 72)),
        ("cpu  1 2 3 40\n", None),
        ("cpu0 1 2 3 40 5 6 7 8\n", None),
        ("cpu  -1 2 3 40 5 6 7 8\n", None),
        ("", None),
    ],
)
def test_cpu_is_busy_without_idle_and_waiting(text: str, expected: object) -> None:
    assert host.parse_cpu_ticks(text) == expected


def test_use_since_long_ago_or_of_a_clock_that_went_back_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(["cpu  5 0 0 5 0 0 0 0", "cpu  1 0 0 1 0 0 0 0", "cpu  2 0 0 4 0 0 0 0"])
    monkeypatch.setattr(host_reader, "read_text", lambda path: next(ticks))
    reader = HostReader({})

    found = [reader.read().cpu_percent for _ in range(3)]
    monkeypatch.setattr(host_reader, "CPU_INTERVAL_S", -1.0)
    monkeypatch.setattr(host_reader, "read_text", lambda path: "cpu  9 0 0 9 0 0 0 0")

    assert found == [None, None, 25.0]
    assert reader.read().cpu_percent is None


def test_room_is_of_the_directory_or_of_where_it_would_be_made(tmp_path: Path) -> None:
    there = os.statvfs(tmp_path)

    room = read_room(str(tmp_path / "not/yet"))

    assert room.total_bytes == there.f_blocks * there.f_frsize
    assert read_room("not/there\0") == Room()
    assert read_room("nowhere") == Room()


def test_disk_that_hangs_is_unknown_and_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, asked = threading.Event(), []

    def hang(path: str) -> Room:
        asked.append(path)
        answer.wait(60)
        return Room(2, 1)

    monkeypatch.setattr(host_reader, "read_room", hang)
    monkeypatch.setattr(host_reader, "ROOM_WAIT_S", 0.01)
    reader = HostReader({"HF_HUB_CACHE": "/mnt/dead"})

    hung = [reader.read() for _ in range(5)]
    answer.set()

    assert [host.model_cache_free_bytes for host in hung] == [None] * 5
    assert asked == ["/mnt/dead"]
    wait_for(lambda: reader.read().model_cache_free_bytes == 1, "it answers again")


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
