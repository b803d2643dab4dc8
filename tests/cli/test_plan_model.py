"""`llmgw plan` of a model that lies on the node, by a real agent over simulated cards."""

import json
from pathlib import Path

import pytest

from llmgw_core.demo.cluster import h100s, write_nvidia_smi
from tests.support.models import LLAMA, write_model
from tests.support.operator_here import OperatorHere

pytestmark = pytest.mark.slow


@pytest.fixture
def words(operator: OperatorHere, tmp_path: Path) -> list[str]:
    """A plan of a 70B model for a vLLM 0.32 of this node, with two cards of 80 GB."""
    site = operator.venv / "lib" / "python3.12" / "site-packages" / "vllm-0.32.0.dist-info"
    site.mkdir(parents=True)
    model = write_model(tmp_path / "llama", LLAMA, said=141_107_412_992)
    asked = ("--engine", "vllm", "--name", "chat", "--model", str(model), "--tensor-parallel", "2")
    return ["plan", *asked, "--venv", str(operator.venv)]


@pytest.fixture
def smi(tmp_path: Path) -> str:
    return str(write_nvidia_smi(tmp_path / "gpus", h100s(1, 2)))


def test_what_does_not_fit_is_refused_with_what_would(
    operator: OperatorHere, words: list[str], smi: str
) -> None:
    refused = operator.run(*words, status=5, LLMGW_NVIDIA_SMI=smi)

    text = refused.stdout.decode()
    assert "error   model-fit" in text
    assert "weights 65.7 GiB + KV cache 20.0 GiB for one sequence of 131072 tokens" in text
    tokens = text.partition("at most ")[2].split()[0]
    fits = operator.run(*words, "--max-model-len", tokens, LLMGW_NVIDIA_SMI=smi)
    assert b"model-memory" in fits.stdout


def test_document_has_the_figures_and_the_version(
    operator: OperatorHere, words: list[str], smi: str
) -> None:
    done = operator.run(*words, "--max-model-len", "8192", "--json", LLMGW_NVIDIA_SMI=smi)

    document = json.loads(done.stdout)
    (split,) = document["memory"]
    assert split["weights_bytes"] == 141_107_412_992 // 2
    assert split["kv_bytes_per_token"] == 80 * 2 * 4 * 128 * 2
    assert split["fraction"] == 0.92
    assert list(document["versions"].values()) == ["0.32.0"]


def test_flag_that_this_version_lost_is_refused(
    operator: OperatorHere, words: list[str], smi: str
) -> None:
    asked = [*words, "--max-model-len", "8192", "--", "--swap-space", "4"]

    refused = operator.run(*asked, status=5, LLMGW_NVIDIA_SMI=smi)

    assert b"--swap-space is no flag of vLLM 0.32.0" in refused.stdout
