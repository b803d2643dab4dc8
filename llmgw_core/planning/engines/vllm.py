"""vLLM's command line. Pure.

Source: vllm/entrypoints/cli and vllm/engine/arg_utils.py of 0.10.2 to 0.32.
"""

from types import MappingProxyType
from typing import Dict, Iterator, Mapping, Optional, Tuple

from llmgw_core.domain.findings import Finding, Severity
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
from llmgw_core.planning.seats import DATA_PARALLEL, Seat

_LOOPBACK = "127.0.0.1"
_BACKEND = "--distributed-executor-backend"

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
# On one node they are the operator's to give; among several they are another for each rank.
_GANG_FLAGS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        (
            "--data-parallel-address",
            "-dpa",
            "--data-parallel-rpc-port",
            "-dpp",
            "--data-parallel-size-local",
            "-dpl",
            "--data-parallel-start-rank",
            "-dpr",
        ),
        "nodes and data_parallel",
    )
)


def check_arguments(request: LaunchRequest) -> Iterator[Finding]:
    """Arguments that llmgw sets itself."""
    return check_owned(request, OWNED_FLAGS)


def build_command(
    request: LaunchRequest, placement: Placement, venv: str, seat: Optional[Seat] = None
) -> Command:
    """`vllm serve MODEL …`: full flag names, and those alone that were asked for.

    Args:
        venv: directory of vLLM's virtual environment on the node; empty: the node's PATH.
        seat: the rank among several; None: it is the only one.
    """
    program = f"{venv.rstrip('/')}/bin/vllm" if venv else "vllm"
    asked = list_flags(
        [
            ("--host", request.host if placement.port is not None else None),
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
    if request.expert_parallel:
        asked += ("--enable-expert-parallel",)
    if seat is not None:
        asked += _join(request, len(placement.gpus), seat)
    argv = (program, "serve", request.model, *asked, *request.args)
    return Command(argv, build_env(request, placement, _own_env(request, seat)))


def list_ports(seat: Seat) -> Tuple[int, ...]:
    """TCP ports that the rank listens on besides its API's. The others that vLLM takes are the kernel's choice."""
    return (seat.head_port, seat.block + DATA_PARALLEL) if seat.is_head else ()


def check_gang(request: LaunchRequest, count: int) -> Iterator[Finding]:
    """Ray has a placement of its own, which would contradict the plan's."""
    yield from check_owned(request, _GANG_FLAGS)
    if count > 1 and _uses_ray(request):
        what = "Ray chooses the nodes of its workers itself"
        fix = "launch on the head of the Ray cluster alone (--node), or leave Ray out"
        yield Finding("ray-nodes", Severity.ERROR, "args", what, fix)


def _uses_ray(request: LaunchRequest) -> bool:
    return "ray" in {word.rpartition("=")[2] for word in request.args}


def _join(request: LaunchRequest, gpus: int, seat: Seat) -> Tuple[str, ...]:
    """Whole replicas on each node meet by the data-parallel address; else one world spans the nodes (from 0.11.1 on)."""
    each = request.tensor_parallel * request.pipeline_parallel
    headless = () if seat.is_head else ("--headless",)
    if request.data_parallel > 1 and gpus and gpus % each == 0:
        local = gpus // each
        start = seat.rank * local
        flags = list_flags(
            [
                ("--data-parallel-size-local", local),
                ("--data-parallel-address", seat.head),
                ("--data-parallel-rpc-port", seat.block + DATA_PARALLEL),
                ("--data-parallel-start-rank", start or None),
            ]
        )
        return (*flags, *headless)
    flags = list_flags(
        [
            ("--nnodes", seat.ranks),
            ("--node-rank", seat.rank),
            ("--master-addr", seat.head),
            ("--master-port", seat.head_port),
            (_BACKEND, None if _names_backend(request) else "mp"),
        ]
    )
    return (*flags, *headless)


def _names_backend(request: LaunchRequest) -> bool:
    return any(word.partition("=")[0] == _BACKEND for word in request.args)


def _own_env(request: LaunchRequest, seat: Optional[Seat]) -> Dict[str, str]:
    """No usage reports; as long to load as the operator gives; on one node, itself by loopback.

    Ray refuses a loopback address, so with it VLLM_HOST_IP is left to vLLM.
    """
    env = {
        "VLLM_ENGINE_READY_TIMEOUT_S": whole_seconds(request.load_deadline_seconds),
        "VLLM_NO_USAGE_STATS": "1",
    }
    if seat is not None:
        env["VLLM_HOST_IP"] = seat.address
    elif not _uses_ray(request):
        env["VLLM_HOST_IP"] = _LOOPBACK
    return env
