"""vLLM's command line. Pure.

Source: vllm/entrypoints/cli and vllm/engine/arg_utils.py of 0.10.2 to 0.32.
"""

from types import MappingProxyType
from typing import Dict, Iterator, Mapping

from llmgw_core.domain.findings import Finding
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.planning.engines.base import (
    Command,
    above_one,
    build_env,
    check_owned,
    list_flags,
    served_name,
    whole_seconds,
)
from llmgw_core.planning.placement import Placement

_LOOPBACK = "127.0.0.1"

OWNED_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "--model": "model",
        "--host": "host",
        "--port": "port",
        "--uds": "host and port",
        "--served-model-name": "served_model_name",
        "--tensor-parallel-size": "tensor_parallel",
        "-tp": "tensor_parallel",
        "--pipeline-parallel-size": "pipeline_parallel",
        "-pp": "pipeline_parallel",
        "--data-parallel-size": "data_parallel",
        "-dp": "data_parallel",
        "--quantization": "quantization",
        "-q": "quantization",
        "--dtype": "dtype",
        "--kv-cache-dtype": "kv_cache_dtype",
        "--max-model-len": "max_model_len",
        "--gpu-memory-utilization": "gpu_memory_fraction",
        "--device-memory-utilization": "gpu_memory_fraction",
        "--device-ids": "gpus",
        "--nnodes": "node",
        "-n": "node",
        "--node-rank": "node",
        "-r": "node",
        "--master-addr": "node",
        "--master-port": "node",
        "--headless": "node",
    }
)


def check_arguments(request: LaunchRequest) -> Iterator[Finding]:
    """Arguments that llmgw sets itself."""
    return check_owned(request, OWNED_FLAGS)


def build_command(request: LaunchRequest, placement: Placement, venv: str) -> Command:
    """`vllm serve MODEL …`: full flag names, and those alone that were asked for.

    Args:
        venv: directory of vLLM's virtual environment on the node; empty: the node's PATH.
    """
    program = f"{venv.rstrip('/')}/bin/vllm" if venv else "vllm"
    asked = list_flags(
        [
            ("--host", request.host),
            ("--port", placement.port),
            ("--served-model-name", served_name(request)),
            ("--tensor-parallel-size", above_one(request.tensor_parallel)),
            ("--pipeline-parallel-size", above_one(request.pipeline_parallel)),
            ("--data-parallel-size", above_one(request.data_parallel)),
            ("--quantization", request.quantization),
            ("--dtype", request.dtype),
            ("--kv-cache-dtype", request.kv_cache_dtype),
            ("--max-model-len", request.max_model_len),
            ("--gpu-memory-utilization", request.gpu_memory_fraction),
        ]
    )
    argv = (program, "serve", request.model, *asked, *request.args)
    return Command(argv, build_env(request, placement, _own_env(request)))


def _own_env(request: LaunchRequest) -> Dict[str, str]:
    """No usage reports; as long to load as the operator gives; on one node, itself by loopback.

    Ray refuses a loopback address, so with it VLLM_HOST_IP is left to vLLM.
    """
    env = {
        "VLLM_ENGINE_READY_TIMEOUT_S": whole_seconds(request.load_deadline_seconds),
        "VLLM_NO_USAGE_STATS": "1",
    }
    if "ray" not in {word.rpartition("=")[2] for word in request.args}:
        env["VLLM_HOST_IP"] = _LOOPBACK
    return env
