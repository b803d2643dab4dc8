"""SGLang's command line. Pure.

Source: sglang/srt/server_args.py of 0.4.6 and 0.5.4, sglang/srt/arg_groups of 0.5.23.
"""

from types import MappingProxyType
from typing import Iterator, Mapping

from llmgw_core.domain.findings import Finding
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.planning.engines.base import (
    Command,
    above_one,
    build_env,
    check_owned,
    list_flags,
    served_name,
)
from llmgw_core.planning.placement import Placement

OWNED_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "--model-path": "model",
        "--model": "model",
        "--host": "host",
        "--port": "port",
        "--served-model-name": "served_model_name",
        "--tp-size": "tensor_parallel",
        "--tensor-parallel-size": "tensor_parallel",
        "--pp-size": "pipeline_parallel",
        "--pipeline-parallel-size": "pipeline_parallel",
        "--dp-size": "data_parallel",
        "--data-parallel-size": "data_parallel",
        "--quantization": "quantization",
        "--dtype": "dtype",
        "--kv-cache-dtype": "kv_cache_dtype",
        "--context-length": "max_model_len",
        "--mem-fraction-static": "gpu_memory_fraction",
        "--device": "gpu_count",
        "--base-gpu-id": "gpus",
        "--gpu-id-step": "gpus",
        "--nnodes": "node",
        "--node-rank": "node",
        "--dist-init-addr": "node",
        "--nccl-init-addr": "node",
    }
)


def check_arguments(request: LaunchRequest) -> Iterator[Finding]:
    """Arguments that llmgw sets itself."""
    return check_owned(request, OWNED_FLAGS)


def build_command(request: LaunchRequest, placement: Placement, venv: str) -> Command:
    """`python -m sglang.launch_server …`: full flag names, as shortened ones are ambiguous in some versions (`--pp`).

    Args:
        venv: directory of SGLang's virtual environment on the node; empty: the node's python3.
    """
    python = f"{venv.rstrip('/')}/bin/python" if venv else "python3"
    asked = list_flags(
        [
            ("--model-path", request.model),
            ("--host", request.host),
            ("--port", placement.port),
            ("--served-model-name", served_name(request)),
            ("--tp-size", above_one(request.tensor_parallel)),
            ("--pp-size", above_one(request.pipeline_parallel)),
            ("--dp-size", above_one(request.data_parallel)),
            ("--device", None if placement.gpus else "cpu"),
            ("--quantization", request.quantization),
            ("--dtype", request.dtype),
            ("--kv-cache-dtype", request.kv_cache_dtype),
            ("--context-length", request.max_model_len),
            ("--mem-fraction-static", request.gpu_memory_fraction),
        ]
    )
    argv = (python, "-m", "sglang.launch_server", *asked, *request.args)
    return Command(argv, build_env(request, placement, {}))
