"""Two nodes in network namespaces of their own, each with an sshd, a sysfs tree and an nvidia-smi."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.demo.cluster import h100s, l40s, write_nvidia_smi, write_toy_venv
from llmgw_core.demo.fake_sysfs import infiniband_ports, write_sysfs
from tests.support.jobs import Operator, Remains, ask_chat, end_engines
from tests.support.real_vllm import (
    READY_DEADLINE_S,
    VLLM_ARGUMENTS,
    VLLM_ENV,
)
from tests.support.sshd import MakeSshd, Namespaces, Sshd, wait_until

TOY_DEADLINE_S = 60.0
FAILS_WITHIN_S = 5.0  # with the time that asking takes
GANG_ENV = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
SUBNET = 0xFE80_0000_0000_0000


@dataclass(frozen=True)
class TwoNodes:
    """The two, and somebody who reaches both by `ssh`."""

    spaces: Namespaces
    sshds: tuple[Sshd, Sshd]
    operator: Operator
    root: Path


@pytest.fixture
def two_nodes(
    make_namespaces: Callable[[], Namespaces], make_sshd: MakeSshd, tmp_path: Path
) -> Iterator[TwoNodes]:
    """gpu1 has two H100 and two InfiniBand ports, gpu2 two L40S and no adapter."""
    spaces = make_namespaces()
    hardware = ((h100s(1, 2), infiniband_ports(2, 1, SUBNET)), (l40s(2, 2), ()))
    sshds = []
    for number, (gpus, ports) in enumerate(hardware, 1):
        folder = tmp_path / f"gpu{number}"
        smi = write_nvidia_smi(folder / "gpus", gpus)
        write_sysfs(folder / "sys", ports, ())
        sshd = make_sshd(
            alias=f"gpu{number}",
            address=spaces.addresses[number - 1],
            netns=spaces.names[number - 1],
            env={"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(folder / "sys")},
        )
        sshds.append(sshd)
    config = tmp_path / "ssh_config"
    config.write_text("".join(sshd.ssh_config.read_text("utf-8") for sshd in sshds), "utf-8")
    operator = Operator({"LLMGW_SSH_CONFIG": str(config)}, "gpu[1-2]")
    yield TwoNodes(spaces, (sshds[0], sshds[1]), operator, tmp_path)
    for sshd in sshds:
        end_engines(sshd.root / "state")


@pytest.mark.slow
def test_inventory_shows_what_each_node_has(two_nodes: TwoNodes) -> None:
    first, second = two_nodes.operator.read_inventory()["nodes"]

    assert [(node["name"], node["reachable"]) for node in (first, second)] == [
        ("gpu1", True),
        ("gpu2", True),
    ]
    assert [gpu["class"] for gpu in first["gpus"]] == ["h100-80g"] * 2
    assert [gpu["class"] for gpu in second["gpus"]] == ["l40s-45g"] * 2
    assert [(port["hca"], port["rate_gbps"]) for port in first["ports"]] == [
        ("mlx5_0", 400.0),
        ("mlx5_1", 400.0),
    ]
    assert second["ports"] == []
    assert second["island"] == "gpu2"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_toy_engine_outlives_connection_daemon_and_shim(two_nodes: TwoNodes) -> None:
    venv = write_toy_venv(two_nodes.root / "venv", two_nodes.root / "gpu1/gpus", load_s=1.5)

    live_through_losses(two_nodes, ("--model", "demo/toy", "--venv", str(venv)), TOY_DEADLINE_S)


@pytest.mark.real
@pytest.mark.timeout(480)
def test_real_vllm_outlives_connection_daemon_and_shim(
    two_nodes: TwoNodes, vllm_venv: Path, tiny_model: Path
) -> None:
    words = ["--model", str(tiny_model), "--venv", str(vllm_venv), "--gpu-count", "0"]
    words += ["--dtype", "float32", "--max-model-len", "256"]
    words += [f"--arg={word}" for word in VLLM_ARGUMENTS]
    for name, value in VLLM_ENV.items():
        words += ["--env", f"{name}={value}"]

    live_through_losses(two_nodes, tuple(words), READY_DEADLINE_S)


def live_through_losses(nodes: TwoNodes, words: tuple[str, ...], deadline_s: float) -> None:
    """Launch on gpu1 with an address that others reach; cut, kill, kill; it answers throughout; stop leaves nothing."""
    operator, sshd = nodes.operator, nodes.sshds[0]
    address = nodes.spaces.addresses[0]
    launch = ("launch", "--no-wait", "--name", "chat", "--engine", "vllm", "--node", "gpu1")
    operator.run(*launch, "--host", address, *words)
    engine = operator.await_engine("chat", deadline_s, ready=True)[-1]
    remains = Remains(sshd.root / "state", engine["id"])

    for lose in (sshd.drop_connections, remains.kill_daemon, remains.kill_shim):
        lose()
        assert ask_chat(operator, engine["url"], "chat")
        now = operator.await_engine("chat", 30, ready=True)[-1]
        assert now["pid"] == engine["pid"]

    assert operator.find_engine("chat")["adopted"]

    assert remains.find_members()
    operator.run("stop", "chat")
    assert remains.find_members() == set()


GANG_WORDS = ("launch", "--yes", "--name", "pair", "--engine", "vllm", "--node", "gpu1,gpu2")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_toy_gang_lives_and_dies_as_one(two_nodes: TwoNodes) -> None:
    venv = write_toy_venv(two_nodes.root / "venv", two_nodes.root / "gpu1/gpus", load_s=1.5)
    words = ("--model", "demo/toy", "--venv", str(venv), "--gpu-count", "0")

    live_and_die_as_one(two_nodes, words, TOY_DEADLINE_S, cut_s=5.0)


@pytest.mark.real
@pytest.mark.timeout(480)
def test_real_vllm_gang_lives_and_dies_as_one(
    two_nodes: TwoNodes, vllm_venv: Path, tiny_model: Path
) -> None:
    words = ["--model", str(tiny_model), "--venv", str(vllm_venv), "--gpu-count", "0"]
    words += ["--dtype", "float32", "--max-model-len", "256"]
    words += [f"--arg={word}" for word in VLLM_ARGUMENTS]
    for name, value in {**VLLM_ENV, **GANG_ENV}.items():
        words += ["--env", f"{name}={value}"]

    live_and_die_as_one(two_nodes, tuple(words), READY_DEADLINE_S, cut_s=60.0)


def live_and_die_as_one(
    nodes: TwoNodes, words: tuple[str, ...], deadline_s: float, *, cut_s: float
) -> None:
    """TP 2 over both nodes: ready and answering; a cut network ends nothing; rank 1 killed fails the whole in 5 s; stop
    leaves nothing.
    """
    operator = nodes.operator
    address = nodes.spaces.addresses[0]
    operator.run(*GANG_WORDS, "--tp", "2", "--host", address, *words, deadline_s=deadline_s)
    whole = find_whole(operator)
    assert (whole["state"], whole["ready"], whole["nodes"]) == ("ready", True, ["gpu1", "gpu2"])
    assert ask_chat(operator, whole["url"], "pair")

    outlive_cut(nodes, cut_s)

    head, follower = find_ranks(operator)
    remains = [
        Remains(sshd.root / "state", rank["id"])
        for sshd, rank in zip(nodes.sshds, (head, follower), strict=True)
    ]
    os.kill(follower["pid"], signal.SIGKILL)
    end = time.monotonic() + FAILS_WITHIN_S
    while find_whole(operator)["state"] != "failed":
        assert time.monotonic() < end, find_whole(operator)
    assert not find_whole(operator)["ready"]

    operator.run("stop", "pair", "--yes")
    assert [item.find_members() for item in remains] == [set(), set()]
    head, follower = find_ranks(operator)
    assert head["diagnosis"]["code"] == "gang-rank-lost"


def outlive_cut(nodes: TwoNodes, cut_s: float) -> None:
    """The follower's node without network: unreachable and not dead; with it again: ready, and the same processes."""
    operator = nodes.operator
    before = [rank["pid"] for rank in find_ranks(operator)]
    nodes.spaces.set_link(1, "down")
    cut_at = time.monotonic()
    try:
        wait_until(lambda: misses_the_other(operator, before[0]), "the head is unready", 60.0)
        assert find_whole(operator)["state"] == "unreachable"
        assert not find_whole(operator)["ready"]
        time.sleep(max(0.0, cut_at + cut_s - time.monotonic()))  # the time is what is tried
    finally:
        nodes.spaces.set_link(1, "up")
    wait_until(lambda: find_whole(operator)["ready"], "the whole is ready again", 60.0)
    assert [rank["pid"] for rank in find_ranks(operator)] == before
    assert ask_chat(operator, find_whole(operator)["url"], "pair")


def misses_the_other(operator: Operator, pid: int) -> bool:
    """Whether rank 0 says so; the other's node does not answer, which is exit status 3."""
    asked = operator.run("status", "--json", "--timeout", "4", status=3)
    (head,) = json.loads(asked.stdout)["engines"]
    told = head["diagnosis"] or {}
    assert head["pid"] == pid
    return head["state"] == "unready" and told.get("code") == "gang-rank-silent"


def find_whole(operator: Operator) -> dict[str, Any]:
    done = operator.run("status", "--json", "--timeout", "4", status=None)
    (whole,) = json.loads(done.stdout)["deployments"]
    return dict(whole)


def find_ranks(operator: Operator) -> list[dict[str, Any]]:
    document = json.loads(operator.run("status", "pair", "--json").stdout)
    return sorted(document["engines"], key=lambda engine: int(engine["rank"]))
