"""The toy engine does what real engines were seen to do. Source: vLLM 0.32 and SGLang 0.5, observed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.agent.diagnosis import diagnose
from llmgw_core.agent.phases import PhaseTracker
from llmgw_core.demo.toy.options import BadCommand, parse_command
from llmgw_core.domain.engine import EngineExit, EngineKind
from tests.support.engines import wait_until
from tests.support.toys import ToyBox, open_toy_box, wait_member

CORE = "VLLM::EngineCor"  # 15 characters are kept
WORKER = "VLLM::Worker"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ToyBox]:
    with open_toy_box(tmp_path) as opened:
        yield opened


@pytest.mark.slow
def test_port_is_bound_from_the_start_and_listens_only_when_ready(box: ToyBox) -> None:
    toy = box.start(load_s=1.5)

    toy.wait_says("Starting to load model")
    refused = toy.status("/health")
    toy.wait_ready()

    assert refused is None
    assert toy.status("/v1/models") == 200


@pytest.mark.slow
def test_vllm_answers_completions_under_the_served_name(box: ToyBox) -> None:
    toy = box.start("--served-model-name", "chat")
    toy.wait_ready()

    plain = toy.ask("/v1/completions", {"model": "chat", "prompt": "Hi", "max_tokens": 2})
    chat = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    streamed = toy.ask("/v1/chat/completions", {**chat, "stream": True})
    stranger = toy.ask("/v1/completions", {"model": "other", "prompt": "Hi"})

    assert (plain[0], streamed[0], stranger[0]) == (200, 200, 404)
    assert streamed[1].rstrip().endswith(b"data: [DONE]")


@pytest.mark.slow
def test_api_key_guards_v1_alone(box: ToyBox) -> None:
    toy = box.start(VLLM_API_KEY="sesame")
    toy.wait_ready()

    assert (toy.status("/v1/models"), toy.status("/metrics")) == (401, 200)


@pytest.mark.slow
def test_log_of_a_start_is_read_up_to_serving(box: ToyBox) -> None:
    toy = box.start()
    toy.wait_ready()
    tracker = PhaseTracker(EngineKind.VLLM)

    tracker.feed(toy.text.replace("\r", "\n").split("\n"))

    assert tracker.phase == "serving"
    assert "\rLoading safetensors checkpoint shards:" in toy.log.read_bytes().decode()


@pytest.mark.slow
def test_children_share_the_leaders_group_and_hide_command_and_environment(box: ToyBox) -> None:
    toy = box.start()
    toy.wait_ready()

    worker = wait_member(toy, WORKER)

    assert worker.pgid == worker.sid == toy.process.pid
    assert Path(f"/proc/{worker.pid}/cmdline").read_bytes().strip(b"\0") == b"VLLM::Worker"
    assert Path(f"/proc/{worker.pid}/environ").read_bytes().strip(b"\0") == b""


@pytest.mark.slow
def test_children_keep_their_environment_with_spt_noenv(box: ToyBox) -> None:
    toy = box.start(SPT_NOENV="1", LLMGW_ENGINE="toy-1")
    toy.wait_ready()

    environ = Path(f"/proc/{wait_member(toy, WORKER).pid}/environ").read_bytes()

    assert b"LLMGW_ENGINE=toy-1" in environ.split(b"\0")


@pytest.mark.slow
def test_core_and_workers_outlive_a_killed_leader(box: ToyBox) -> None:
    toy = box.start("--tensor-parallel-size", "2")
    toy.wait_ready()

    toy.process.kill()
    toy.wait_exit()

    assert {CORE, "VLLM::Worker_TP"} <= set(toy.members())


@pytest.mark.slow
def test_first_sigterm_is_swallowed_between_core_and_handshake(box: ToyBox) -> None:
    toy = box.start(load_s=4.0)
    toy.wait_says("Initializing a V1 LLM engine")

    os.killpg(toy.process.pid, signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        toy.process.wait(0.8)
    os.killpg(toy.process.pid, signal.SIGTERM)

    assert toy.wait_exit() == 0
    wait_until(lambda: not toy.members(), "all gone")


@pytest.mark.slow
def test_sigterm_ends_a_serving_engine_whole(box: ToyBox) -> None:
    toy = box.start()
    toy.wait_ready()

    os.killpg(toy.process.pid, signal.SIGTERM)

    assert toy.wait_exit() == 0
    wait_until(lambda: not toy.members(), "all gone")


@pytest.mark.slow
def test_leader_says_503_and_ends_with_zero_once_its_core_is_dead(box: ToyBox) -> None:
    toy = box.start()
    toy.wait_ready()

    os.kill(wait_member(toy, CORE).pid, signal.SIGKILL)
    wait_until(lambda: toy.status("/health") == 503, "503", 2.0)

    assert toy.status("/v1/models") == 200
    assert toy.process.wait(6) == 0


@pytest.mark.slow
def test_memory_is_held_on_each_visible_gpu_while_the_process_lives(box: ToyBox) -> None:
    toy = box.start("--tensor-parallel-size", "2", CUDA_VISIBLE_DEVICES="0,1")
    toy.wait_ready()

    assert [mib > 70_000 for mib in read_used_mib(box)] == [True, True]
    box.sweep()
    assert read_used_mib(box) == [0, 0]


def read_used_mib(box: ToyBox) -> list[int]:
    command = [str(box.gpus / "nvidia-smi"), "--query-gpu=memory.used"]
    out = subprocess.run(
        [*command, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True
    )
    return [int(line) for line in out.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code", "diagnosis"),
    [
        ("oom", 1, "cuda-oom"),
        ("no-kv", 1, "kv-cache-none"),
        ("bad-model", 1, "architecture-unknown"),
        ("exit0", 0, None),
    ],
)
def test_failures_while_loading_end_and_read_as_the_real_ones(
    box: ToyBox, ending: str, code: int, diagnosis: str | None
) -> None:
    toy = box.start(model=f"/m/llama-{ending}")

    ended = toy.wait_exit()
    found = diagnose(toy.text, EngineExit(ended, None, "exited"), False)

    assert ended == code
    assert diagnosis is None or found.code == diagnosis


@pytest.mark.slow
def test_die_after_ready_is_ready_first(box: ToyBox) -> None:
    toy = box.start(model="/m/llama-die-after-ready")

    toy.wait_ready()

    wait_until(lambda: toy.status("/health") == 503, "its core is dead")


@pytest.mark.slow
def test_hang_stops_in_the_middle_of_the_weights(box: ToyBox) -> None:
    toy = box.start(model="/m/llama-hang")

    toy.wait_says("50% Completed")

    with pytest.raises(subprocess.TimeoutExpired):
        toy.process.wait(1.5)
    assert "Loading weights took" not in toy.text


@pytest.mark.slow
def test_ignore_term_ends_by_sigkill_alone(box: ToyBox) -> None:
    toy = box.start(model="/m/llama-ignore-term")
    toy.wait_ready()

    os.killpg(toy.process.pid, signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        toy.process.wait(0.6)
    os.killpg(toy.process.pid, signal.SIGKILL)

    assert toy.wait_exit() == -signal.SIGKILL


@pytest.mark.slow
def test_sglang_lists_its_model_before_it_is_healthy(box: ToyBox) -> None:
    toy = box.start_sglang(load_s=3.0)

    wait_until(lambda: toy.status("/v1/models") == 200, "the model is listed")
    early = toy.status("/health")
    toy.wait_ready()

    assert early == 503
    assert "The server is fired up and ready to roll!" in toy.text


@pytest.mark.slow
def test_sglang_schedulers_die_with_their_leader(box: ToyBox) -> None:
    toy = box.start_sglang()
    toy.wait_ready()
    assert any(name.startswith("sglang::") for name in toy.members())

    toy.process.kill()

    toy.wait_exit()
    wait_until(lambda: not toy.members(), "all gone")


def test_sglang_has_metrics_only_when_asked_for() -> None:
    command = ["sglang", "--model-path", "m"]

    quiet, loud = parse_command(command, {}), parse_command([*command, "--enable-metrics"], {})

    assert (quiet.has_metrics, loud.has_metrics) == (False, True)


def test_unknown_arguments_are_ignored() -> None:
    options = parse_command(["vllm", "serve", "m", "--brand-new", "7", "--port", "9"], {})

    assert (options.model, options.port) == ("m", 9)


def test_arguments_real_engines_refuse_are_refused() -> None:
    with pytest.raises(BadCommand, match="unrecognized arguments: --tp"):
        parse_command(["vllm", "serve", "m", "--tp", "2"], {})
