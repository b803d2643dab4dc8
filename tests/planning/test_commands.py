"""The command lines and environments of the engines, word for word."""

from llmgw_core.domain.engine import EngineKind
from llmgw_core.planning.shell_script import render_script
from tests.support.plans import codes, four, gpu, node, planned, request


def test_vllm_says_only_what_was_asked_for() -> None:
    rank = planned(request()).ranks[0]

    assert rank.argv == (
        "vllm", "serve", "org/model",
        "--host", "127.0.0.1", "--port", "8000", "--served-model-name", "chat",
    )  # fmt: skip
    assert rank.env == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
    }


FULL = {
    "model": "/models/llama",
    "gpus": (1, 3),
    "tensor_parallel": 2,
    "served_model_name": "llama",
    "host": "10.0.0.1",
    "port": 9000,
    "quantization": "awq",
    "dtype": "half",
    "kv_cache_dtype": "auto",
    "max_model_len": 4096,
    "gpu_memory_fraction": 0.85,
    "venv": "/opt/engine/",
    "args": ("--enforce-eager",),
    "env": {"OMP_NUM_THREADS": "8"},
    "load_deadline_seconds": 90.5,
    "workdir": "/srv",
}


def test_vllm_says_everything_by_full_names() -> None:
    rank = planned(request(**FULL)).ranks[0]

    assert rank.argv == (
        "/opt/engine/bin/vllm", "serve", "/models/llama",
        "--host", "10.0.0.1", "--port", "9000", "--served-model-name", "llama",
        "--tensor-parallel-size", "2", "--quantization", "awq", "--dtype", "half",
        "--kv-cache-dtype", "auto", "--max-model-len", "4096",
        "--gpu-memory-utilization", "0.85", "--enforce-eager",
    )  # fmt: skip
    assert rank.env == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1,3",
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "8",
        "PYTHONUNBUFFERED": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": "91",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def test_sglang_says_everything_by_full_names() -> None:
    rank = planned(request(**FULL, engine=EngineKind.SGLANG)).ranks[0]

    assert rank.argv == (
        "/opt/engine/bin/python", "-m", "sglang.launch_server", "--model-path", "/models/llama",
        "--host", "10.0.0.1", "--port", "9000", "--served-model-name", "llama", "--tp-size", "2",
        "--quantization", "awq", "--dtype", "half", "--kv-cache-dtype", "auto",
        "--context-length", "4096", "--mem-fraction-static", "0.85", "--enforce-eager",
    )  # fmt: skip
    assert rank.env == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1,3",
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "8",
        "PYTHONUNBUFFERED": "1",
    }


def test_parallel_degrees_are_words_of_their_own() -> None:
    asked = request(tensor_parallel=1, pipeline_parallel=2, data_parallel=2)

    vllm = planned(asked).ranks[0].argv
    sglang = (
        planned(request(pipeline_parallel=2, data_parallel=2, engine=EngineKind.SGLANG))
        .ranks[0]
        .argv
    )

    assert vllm[-4:] == ("--pipeline-parallel-size", "2", "--data-parallel-size", "2")
    assert sglang[-4:] == ("--pp-size", "2", "--dp-size", "2")


def test_without_a_venv_the_engine_comes_from_path() -> None:
    assert planned(request(engine=EngineKind.SGLANG)).ranks[0].argv[0] == "python3"


def test_the_nodes_own_venv_is_taken_and_the_requests_wins() -> None:
    venvs = {"n1": "/opt/node"}

    assert planned(request(), venvs=venvs).ranks[0].argv[0] == "/opt/node/bin/vllm"
    assert planned(request(venv="/v"), venvs=venvs).ranks[0].argv[0] == "/v/bin/vllm"


def test_cpu_engine_on_a_node_without_gpus_is_told_of_none() -> None:
    rank = planned(request(gpu_count=0), node("n1")).ranks[0]

    assert rank.gpus == ()
    assert not [name for name in rank.env if name.startswith("CUDA")]


def test_cpu_engine_on_a_node_with_gpus_sees_none_of_them() -> None:
    assert planned(request(gpu_count=0)).ranks[0].env["CUDA_VISIBLE_DEVICES"] == ""


def test_amd_gpus_are_counted_as_their_own_runtime_counts_them() -> None:
    nvidia = (gpu(0), gpu(1))
    amd = tuple(gpu(index, "mi300x-192g", vendor="amd") for index in (2, 3))

    env = planned(request(gpus=(3,)), node("n1", *nvidia, *amd)).ranks[0].env

    assert env["HIP_VISIBLE_DEVICES"] == "1"
    assert not [name for name in env if name.startswith("CUDA")]


def test_sglang_on_the_cpu_is_told_so() -> None:
    argv = planned(request(gpu_count=0, engine=EngineKind.SGLANG), node("n1")).ranks[0].argv

    assert argv[-2:] == ("--device", "cpu")


def test_users_environment_wins_over_defaults() -> None:
    assert planned(request(env={"NO_COLOR": "0"})).ranks[0].env["NO_COLOR"] == "0"


def test_users_environment_does_not_win_over_the_placement() -> None:
    made = planned(request(env={"CUDA_VISIBLE_DEVICES": "7"}))

    assert codes(made) == {"env-owned": "error"}
    assert made.ranks[0].env["CUDA_VISIBLE_DEVICES"] == "0"


def test_ray_is_not_given_a_loopback_address() -> None:
    made = planned(request(args=("--distributed-executor-backend", "ray")))

    assert "VLLM_HOST_IP" not in made.ranks[0].env


def test_engine_is_named_by_launch() -> None:
    assert planned(request()).ranks[0].engine_id == "chat-01234567"


def test_script_runs_what_the_plan_says_and_asks_for_secrets() -> None:
    asked = request(
        model="/models/it's", env={"A": "b c"}, env_from=("HF_TOKEN",), workdir="/srv/x y"
    )

    text = render_script(planned(asked, four("n1")))

    assert text.splitlines()[0] == "#!/bin/sh"
    assert ': "${HF_TOKEN:?set it first}"; export HF_TOKEN' in text
    assert "export A='b c'" in text
    assert "cd '/srv/x y' || exit 1" in text
    assert "exec vllm serve '/models/it'\"'\"'s' --host 127.0.0.1" in text
