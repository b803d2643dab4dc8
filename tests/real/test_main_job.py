"""The main job over a real sshd: launch, watch, lose the console, the daemon and the shim, stop. Toy engine and real vLLM."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmgw_core.demo.cluster import h100s, write_nvidia_smi, write_toy_venv
from tests.support.jobs import Operator, Remains, ask_chat, end_engines
from tests.support.real_vllm import READY_DEADLINE_S, VLLM_ARGUMENTS, VLLM_ENV
from tests.support.sshd import MakeSshd, Sshd

TOY_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Job:
    """What to launch, and how long it may take."""

    words: tuple[str, ...]
    phases: frozenset[str]  # some of these are seen while it loads
    ready_deadline_s: float


@pytest.fixture
def sshd(make_sshd: MakeSshd, tmp_path: Path) -> Iterator[Sshd]:
    """A node with two simulated GPUs and no adapters."""
    smi = write_nvidia_smi(tmp_path / "gpus", h100s(1, 2))
    (tmp_path / "sys").mkdir()
    node = make_sshd(env={"LLMGW_NVIDIA_SMI": str(smi), "LLMGW_SYSFS_ROOT": str(tmp_path / "sys")})
    yield node
    end_engines(node.root / "state")


@pytest.fixture
def toy_job(tmp_path: Path) -> Job:
    """The toy engine on both GPUs."""
    venv = write_toy_venv(tmp_path / "venv", tmp_path / "gpus", load_s=4.0)
    words = ("--model", "demo/toy", "--venv", str(venv), "--tensor-parallel", "2")
    return Job(words, frozenset({"weights", "graphs"}), TOY_DEADLINE_S)


@pytest.fixture
def real_job(vllm_venv: Path, tiny_model: Path) -> Job:
    """A real vLLM on the CPU."""
    words = ["--model", str(tiny_model), "--venv", str(vllm_venv), "--gpu-count", "0"]
    words += ["--dtype", "float32", "--max-model-len", "256"]
    words += [f"--arg={word}" for word in VLLM_ARGUMENTS]
    for name, value in VLLM_ENV.items():
        words += ["--env", f"{name}={value}"]
    return Job(
        tuple(words), frozenset({"distributed", "weights", "kv-cache", "warmup"}), READY_DEADLINE_S
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_toy_engine_lives_through_loss_of_console_daemon_and_shim(sshd: Sshd, toy_job: Job) -> None:
    do_main_job(sshd, toy_job)


@pytest.mark.real
@pytest.mark.timeout(480)
def test_real_vllm_lives_through_loss_of_console_daemon_and_shim(sshd: Sshd, real_job: Job) -> None:
    do_main_job(sshd, real_job)


def do_main_job(sshd: Sshd, job: Job) -> None:
    """One story in the order in which an operator lives it; each step rests on the one before."""
    operator = Operator({"LLMGW_SSH_CONFIG": str(sshd.ssh_config)}, sshd.alias)
    launch_and_lose_console(operator, job)

    seen = operator.await_engine("chat", job.ready_deadline_s, ready=True)
    engine = seen[-1]
    assert job.phases & {step["phase"] for step in seen[:-1]}, [step["phase"] for step in seen]
    assert ask_chat(operator, engine["url"], "chat")

    remains = Remains(sshd.root / "state", engine["id"])
    sshd.drop_connections()
    remains.kill_daemon()
    adopted = operator.await_engine("chat", 30, ready=True)[-1]
    assert adopted["adopted"]
    assert adopted["pid"] == engine["pid"]

    remains.kill_shim()
    assert ask_chat(operator, engine["url"], "chat")
    after = operator.await_engine("chat", 30, ready=True)[-1]
    assert after["pid"] == engine["pid"]
    assert "Application startup complete." in operator.run("logs", "chat", "-n", "all").stdout

    members = remains.find_members()
    assert members
    operator.run("stop", "chat")
    assert operator.find_engine("chat")["state"] == "stopped"
    assert remains.find_members() == set()
    operator.run("forget", "chat")


def launch_and_lose_console(operator: Operator, job: Job) -> None:
    """Launch with a console that waits, and kill it as soon as the engine runs."""
    console = operator.start("launch", "--name", "chat", "--engine", "vllm", *job.words)
    assert console.stdout is not None
    with console.stdout as output:
        said = []
        for line in output:
            said.append(line)
            if line.startswith("started "):
                break
        else:
            pytest.fail("".join(said))
        console.send_signal(signal.SIGKILL)
    console.wait()
