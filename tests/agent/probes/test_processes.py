"""Whose a process on a GPU is: command without secrets, container, and what is dead."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes.processes import (
    ProcessFacts,
    has_process_named,
    parse_container_id,
    read_processes,
)

ID = "6c1f00aa11bb" + "0" * 52


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of the host's own PID namespace."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    return tmp_path


def add_process(
    proc: Path, pid: int, command: bytes = b"python3\0", *, state: str = "S", cgroup: str = "0::/"
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "comm").write_text("python3\n")
    (folder / "cmdline").write_bytes(command)
    (folder / "stat").write_text(f"{pid} (a) R b) {state} 1 1\n")
    (folder / "cgroup").write_text(cgroup + "\n")


def read_one(proc: Path, pid: int = 7) -> ProcessFacts:
    return read_processes([(pid, "python3")], str(proc))[pid]


def test_command_is_shown_without_secrets(proc: Path) -> None:
    add_process(proc, 7, b"vllm\0serve\0m\0--api-key\0sk-1\0--port=80\0")

    assert read_one(proc).command == "vllm serve m --api-key (hidden) --port=80"


def test_long_command_is_cut(proc: Path) -> None:
    add_process(proc, 7, b"x" * 5000)

    assert len(read_one(proc).command or "") == 200


def test_process_that_ended_and_is_not_reaped_is_gone(proc: Path) -> None:
    add_process(proc, 7, state="Z")

    assert read_one(proc) == ProcessFacts(is_gone=True)


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (f"0::/system.slice/docker-{ID}.scope", ID[:12]),
        (f"12:cpu:/docker/{ID}", ID[:12]),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", ID[:12]),
        (f"0::/machine.slice/libpod-{ID}.scope/container", ID[:12]),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        (f"0::/home/{ID}", None),
    ],
)
def test_container_is_known_by_its_cgroup(cgroup: str, expected: str | None) -> None:
    assert parse_container_id(cgroup) == expected


def test_container_of_a_process_is_told(proc: Path) -> None:
    add_process(proc, 7, cgroup=f"0::/system.slice/docker-{ID}.scope")

    assert read_one(proc).container == ID[:12]


def test_names_longer_than_the_kernel_keeps_are_found(proc: Path) -> None:
    add_process(proc, 7)
    (proc / "7/comm").write_text("nv-fabricmanage\n")

    assert has_process_named("nv-fabricmanager", str(proc)) is True
    assert has_process_named("sshd", str(proc)) is False


@given(st.text())
def test_no_cgroup_breaks_the_parser(text: str) -> None:
    parse_container_id(text)
    parse_container_id(f"0::/docker/{text}")
