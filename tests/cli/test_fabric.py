"""`llmgw fabric` over real agents whose RoCE ports have addresses of the loopback: who reaches whom, and why."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import AgentHome, agent_home
from tests.support.hardware import ib_port, roce_port, write_sysfs

PORTS = {
    "n1": (roce_port(ip="127.0.0.2", netdev="lo"),),
    "n2": (roce_port(ip="127.0.0.3", netdev="lo"),),
    # An address of that network which this machine does not have: listening there fails.
    "n3": (roce_port(ip="127.0.0.77", netdev="gone0"), ib_port("mlx5_9", state="1: DOWN")),
    "n4": (),
}
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cluster.toml of four nodes on this machine."""
    root = tmp_path_factory.mktemp("fabric")
    text = ""
    with ExitStack() as stack:
        for name, ports in PORTS.items():
            home = stack.enter_context(agent_home(root / name))
            write_sysfs(root / name / "sys", ports)
            text += _node_of(name, home)
        path = root / "cluster.toml"
        path.write_text(text, encoding="utf-8")
        yield path


def _node_of(name: str, home: AgentHome) -> str:
    pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in home.env.items())
    return f'[[nodes]]\nname = "{name}"\ntransport = "local"\nenv = {{ {pairs} }}\n\n'


def run(*words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llmgw_core.cli.main", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if status == 0 else done.stderr


def verdicts(*words: str) -> dict[str, Any]:
    document = json.loads(run("fabric", "--json", *words))
    return {"-".join(pair["nodes"]): pair for pair in document["pairs"]}


@pytest.mark.slow
def test_what_is_read_never_proves(cluster: Path) -> None:
    found = verdicts("--cluster", str(cluster))

    assert {name: pair["verdict"] for name, pair in found.items()} == {
        "n1-n2": "possible",
        "n1-n3": "possible",
        "n1-n4": "different",
        "n2-n3": "possible",
        "n2-n4": "different",
        "n3-n4": "different",
    }
    assert found["n1-n4"]["reason"] == "n4 has no InfiniBand or RoCE adapter"


@pytest.mark.slow
def test_a_probe_settles_what_it_can(cluster: Path) -> None:
    found = verdicts("--cluster", str(cluster), "--probe")

    assert found["n1-n2"]["verdict"] == "proven"
    assert [link["connected"] for link in found["n1-n2"]["links"]] == [True]


@pytest.mark.slow
def test_two_nodes_are_shown_with_their_ports(cluster: Path) -> None:
    text = run("fabric", "n1", "n3", "--cluster", str(cluster))

    assert "not-active: DOWN" in text
    assert "n2" not in text.split("VERDICT")[1]


@pytest.mark.slow
def test_saved_inventory_answers_as_the_nodes_did(cluster: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(run("inventory", "--json", "--cluster", str(cluster)), encoding="utf-8")

    by_file = verdicts("--inventory", str(saved))

    assert by_file == verdicts("--cluster", str(cluster))
    assert json.loads(run("inventory", "--json", "--inventory", str(saved))) == json.loads(
        saved.read_text("utf-8")
    )


def test_saved_inventory_cannot_be_probed(tmp_path: Path) -> None:
    words = run("fabric", "--probe", "--inventory", str(tmp_path / "x"), status=2)

    assert "cannot be probed" in words


@pytest.mark.slow
def test_env_of_two_nodes_lists_each_ones_ports_with_reasons(cluster: Path) -> None:
    text = run("fabric", "n1", "n2", "--env", "--cluster", str(cluster))

    blocks = text.split("\n\n")
    assert [block.splitlines()[0] for block in blocks[1:]] == ["# n1", "# n2"]
    assert all("export NCCL_IB_HCA='=mlx5_0:1'" in block for block in blocks[1:])


@pytest.mark.slow
def test_env_of_nodes_without_a_common_fabric_is_refused(cluster: Path) -> None:
    words = ("fabric", "n1", "n4", "--env", "--json", "--cluster", str(cluster))

    refused = run(*words, status=5)
    by_name = json.loads(run(*words, "--tcp"))

    assert "no-common-fabric" in refused
    assert by_name["findings"] == []
    assert {item["name"] for item in by_name["nodes"]["n4"]} == {"NCCL_IB_DISABLE", "NCCL_NET"}
