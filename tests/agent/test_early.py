"""A reading begun before the rest is loaded: asked once, and not where a daemon runs."""

import os
from pathlib import Path

from llmgw_core.agent.early import begin_node_reading
from llmgw_core.agent.local import read_node_here
from llmgw_core.agent.paths import resolve_instance
from tests.support.hardware import smi_gpu, write_nvidia_smi


def make_env(tmp_path: Path) -> dict[str, str]:
    real = write_nvidia_smi(tmp_path / "smi", [smi_gpu()])
    counting = tmp_path / "counting"
    counting.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\nexec {real} "$@"\n')
    counting.chmod(0o755)
    return {
        "PATH": os.environ.get("PATH", ""),
        "LLMGW_HOME": str(tmp_path / "home"),
        "LLMGW_SYSFS_ROOT": str(tmp_path / "sys"),
        "LLMGW_NVIDIA_SMI": str(counting),
    }


def test_begun_reading_is_ended_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    env = make_env(tmp_path)

    node = read_node_here(env, started=begin_node_reading(env))

    calls = [line.split("=")[0] for line in (tmp_path / "calls").read_text().splitlines()]
    assert [gpu.available for gpu in node.gpus] == [True]
    assert sorted(calls) == [
        "--help-query-gpu",
        "--query-compute-apps",
        "--query-gpu",
        "--query-gpu",
        "--version",
        "nvlink",
    ]


def test_nothing_is_begun_where_a_daemon_may_answer(tmp_path: Path) -> None:
    env = make_env(tmp_path)
    resolve_instance(env).socket.touch()

    assert begin_node_reading(env) is None
    assert not (tmp_path / "calls").exists()


def test_nothing_is_begun_without_nvidia_smi(tmp_path: Path) -> None:
    env = {**make_env(tmp_path), "LLMGW_NVIDIA_SMI": str(tmp_path / "none")}

    assert begin_node_reading(env) is None
