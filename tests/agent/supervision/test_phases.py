"""Phases and progress of a start, from lines as vLLM and SGLang print them."""

import pytest

from llmgw_core.agent.logtext import strip_prefix
from llmgw_core.agent.phases import PHASES, PhaseTracker
from llmgw_core.domain.engine import EngineKind

VLLM = (
    "INFO 12-01 02:30:01 [api_server.py:100] vLLM API server version 0.32.0",
    "(APIServer pid=11) INFO 12-01 02:30:02 [utils.py:1] non-default args: {'model': '/m'}",
    "(EngineCore pid=12) INFO 12-01 02:30:09 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: …",
    "model-00001-of-00002.safetensors:  25%|██▌       | 1.2G/4.9G [00:10<00:30, 120MB/s]",
    "(Worker_TP0 pid=13) INFO 12-01 02:30:20 [gpu_model_runner.py:1] Starting to load model /m...",
    "Loading safetensors checkpoint shards:  50% Completed | 8/16 [00:01<00:01,  8.00it/s]",
    "\x1b[1;36m(Worker_TP0 pid=13)\x1b[0;0m INFO 12-01 02:30:30 [x.py:1] Dynamo bytecode transform time: 4.1 s",
    "(EngineCore pid=12) INFO 12-01 02:30:40 [kv_cache_utils.py:1] GPU KV cache size: 524,288 tokens",
    "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|████      | 27/67 [00:01<00:02]",
    "(EngineCore pid=12) INFO 12-01 02:30:50 [core.py:1] init engine (profile, create kv cache, warmup model) took 9 s",
    "INFO:     Application startup complete.",
)
SGLANG = (
    "[2026-12-01 02:30:01] server_args=ServerArgs(model_path='/m')",
    "[2026-12-01 02:30:10 TP0] Init torch distributed begin.",
    "[2026-12-01 02:30:12 TP1] Load weight begin. avail mem=78.50 GB",
    "Multi-thread loading shards:  75% Completed | 3/4 [00:01<00:00]",
    "[2026-12-01 02:30:22 TP0] KV Cache is allocated. #tokens: 1000, K size: 1.0 GB, V size: 1.0 GB",
    "[2026-12-01 02:30:23 TP0] Capture decode CUDA graph begin. backend=full num_tokens/bs=[1, 2]",
    "[2026-12-01 02:30:40] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    "[2026-12-01 02:30:45] The server is fired up and ready to roll!",
)


def walk(kind: EngineKind, lines: tuple[str, ...]) -> list[tuple[str | None, float | None]]:
    tracker = PhaseTracker(kind)
    seen = []
    for line in lines:
        tracker.feed([line])
        seen.append((tracker.phase, tracker.progress))
    return seen


def test_vllm_walks_through_its_phases() -> None:
    assert walk(EngineKind.VLLM, VLLM) == [
        ("imports", None),
        ("config", None),
        ("distributed", None),
        ("download", 0.25),
        ("weights", None),
        ("weights", 0.5),
        ("compile", None),
        ("kv-cache", None),
        ("graphs", 0.4),
        ("warmup", None),
        ("serving", None),
    ]


def test_sglang_walks_through_its_phases() -> None:
    assert walk(EngineKind.SGLANG, SGLANG) == [
        ("config", None),
        ("distributed", None),
        ("weights", None),
        ("weights", 0.75),
        ("kv-cache", None),
        ("graphs", None),
        ("warmup", None),
        ("serving", None),
    ]


def test_late_rank_does_not_move_it_back() -> None:
    tracker = PhaseTracker(EngineKind.VLLM)

    tracker.feed([VLLM[7], VLLM[5]])

    assert tracker.phase == "kv-cache"


def test_noise_before_the_first_word_is_no_loading() -> None:
    tracker = PhaseTracker(EngineKind.VLLM)

    tracker.feed(["[W1201 02:30:45.9 socket.cpp:68] Warning: something"])

    assert (tracker.phase, tracker.is_loading) == (PHASES[0], False)


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore_DP0 pid=4102) ERROR 12-01 02:30:45 [core.py:1510] ValueError: no",
        "\x1b[1;36m(Worker_DP0_PP1_TP3_EP3 pid=7)\x1b[0;0m ERROR 12-01 02:30:45 [a.py:1] ValueError: no",
        "(RayWorkerWrapper pid=41, ip=10.0.0.2) ValueError: no",
        "[2026-12-01 02:30:45 DP0 PP0 TP3 EP3] ValueError: no",
        "[2026-12-01 02:30:45.123] ValueError: no",
        "ValueError: no",
    ],
)
def test_prefixes_are_taken_off(line: str) -> None:
    assert strip_prefix(line) == "ValueError: no"
