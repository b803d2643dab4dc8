"""The node read again and again: what is cached, what a hung nvidia-smi does, and Python 3.9."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmgw_core.agent import inventory
from llmgw_core.agent.inventory import NodeProbe, read_node
from llmgw_core.domain.inventory import Node
from tests.support.hardware import ib_port, smi_app, smi_gpu, write_nvidia_smi, write_sysfs

ROOT = Path(__file__).parents[3]
DEADLINE_S = 20.0


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    return write_nvidia_smi(tmp_path / "nvidia-smi", [smi_gpu()])


@pytest.fixture
def env(tmp_path: Path, smi: Path) -> dict[str, str]:
    sysfs = write_sysfs(tmp_path / "sys", [ib_port()])
    return {"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(sysfs), **only_path()}


def only_path() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", "")}


@pytest.fixture
def make_probe(env: dict[str, str]) -> Iterator[Callable[..., NodeProbe]]:
    made = []

    def make(smi_timeout_s: float | None = None) -> NodeProbe:
        made.append(NodeProbe(env, smi_timeout_s))
        return made[-1]

    yield make
    for probe in made:
        probe.close()


def read_until(probe: NodeProbe, is_met: Callable[[Node], bool]) -> Node:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        node = probe.read(max_age_s=0)
        if is_met(node):
            return node
        threading.Event().wait(0.05)
    pytest.fail(f"not met within {DEADLINE_S} s")


def test_node_has_host_gpus_ports_and_an_island_of_its_own(env: dict[str, str]) -> None:
    node = read_node(env)

    assert (node.name, node.island) == (os.uname().nodename, os.uname().nodename)
    assert [gpu.available for gpu in node.gpus] == [True]
    assert [port.hca for port in node.ports] == ["mlx5_0"]
    assert (node.driver_version, node.cuda_version) == ("550.54.15", "12.4")


def test_owners_and_taken_gpus_are_judged_anew_on_a_cached_reading(
    make_probe: Callable[..., NodeProbe],
) -> None:
    probe = make_probe()
    before = probe.read(max_age_s=60)

    after = probe.read(taken_gpus={0: "llama-0a1b2c3d"}, max_age_s=60)

    assert [gpu.engine for gpu in before.gpus] == [None]
    assert [(gpu.engine, gpu.available) for gpu in after.gpus] == [("llama-0a1b2c3d", False)]


def test_reading_young_enough_is_not_taken_again(
    make_probe: Callable[..., NodeProbe], smi: Path
) -> None:
    probe = make_probe()
    probe.read()
    smi.unlink()

    node = probe.read(max_age_s=60)

    assert len(node.gpus) == 1


@pytest.mark.slow
def test_old_reading_is_taken_again(
    make_probe: Callable[..., NodeProbe], smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "MIN_GPU_AGE_S", 0.0)
    probe = make_probe()
    probe.read()
    write_nvidia_smi(smi, [smi_gpu(used=9000)], apps=[smi_app(0, 4711)])

    node = probe.read(max_age_s=0)

    assert [gpu.memory_used_mib for gpu in node.gpus] == [9000]


@pytest.mark.slow
def test_hung_nvidia_smi_slows_the_first_reading_only_and_recovers(
    make_probe: Callable[..., NodeProbe], smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "MIN_GPU_AGE_S", 0.0)
    monkeypatch.setattr(inventory, "RETRY_SILENT_S", 0.0)
    probe = make_probe(1.0)
    probe.read()
    write_nvidia_smi(smi, hang=True)
    silent = probe.read(max_age_s=0)

    started = time.monotonic()
    again = probe.read(max_age_s=0)
    took_s = time.monotonic() - started

    assert took_s < 0.5
    for node in (silent, again):
        assert (node.reachable, node.error and node.error.code) == (True, "smi-timeout")
        assert [(gpu.uuid, gpu.memory_used_mib, gpu.available) for gpu in node.gpus] == [
            (smi_gpu()["uuid"], None, False)
        ]
        assert [port.hca for port in node.ports] == ["mlx5_0"]
    write_nvidia_smi(smi, [smi_gpu()])
    assert read_until(probe, lambda node: node.error is None).gpus[0].available is True


@pytest.mark.slow
def test_readers_at_the_same_time_share_one_nvidia_smi(
    make_probe: Callable[..., NodeProbe], smi: Path
) -> None:
    write_nvidia_smi(smi, [smi_gpu()], delay_s=0.5)
    probe = make_probe()
    nodes: list[Node] = []
    threads = [threading.Thread(target=lambda: nodes.append(probe.read())) for _ in range(5)]

    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - started

    assert [len(node.gpus) for node in nodes] == [1] * 5
    assert took_s < 0.5 * 2


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.13"])
def test_node_side_runs_on_python(version: str, env: dict[str, str]) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import os;"
        "from llmgw_core.agent.inventory import read_node;"
        "from llmgw_core.domain.wire import dump_json; print(dump_json(read_node(os.environ)))"
    )

    done = subprocess.run(
        [python, "-IWerror", "-c", program], env=env, capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    node = json.loads(done.stdout)
    assert [gpu["class"] for gpu in node["gpus"]] == ["h100-80g"]
    assert [port["fabric"] for port in node["ports"]] == ["ib-fe80000000000000"]


def find_python(version: str) -> str | None:
    if sys.version_info[:2] == tuple(int(part) for part in version.split(".")):
        return sys.executable
    installed = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    if installed:
        return str(installed[-1])
    found = shutil.which(f"python{version}")
    works = found and subprocess.run([found, "-c", ""], capture_output=True, check=False)
    return found if works and works.returncode == 0 else None
