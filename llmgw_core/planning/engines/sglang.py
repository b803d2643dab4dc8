"""SGLang's command line. Pure.

Source: sglang/srt/server_args.py of 0.4.6 and 0.5.4, sglang/srt/arg_groups of 0.5.23.
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
)
from llmgw_core.planning.placement import Placement
from llmgw_core.planning.seats import FOLLOWER_HTTP, NCCL, SGLANG_DERIVED, Seat, join_address

_LOOPBACK = "127.0.0.1"

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


def build_command(
    request: LaunchRequest, placement: Placement, venv: str, seat: Optional[Seat] = None
) -> Command:
    """`python -m sglang.launch_server …`: full flag names, as shortened ones are ambiguous in some versions (`--pp`).

    Args:
        venv: directory of SGLang's virtual environment on the node; empty: the node's python3.
    """
    is_follower = seat is not None and not seat.is_head
    python = f"{venv.rstrip('/')}/bin/python" if venv else "python3"
    asked = list_flags(
        [
            ("--model-path", request.model),
            ("--host", _LOOPBACK if is_follower else request.host),
            ("--port", placement.port if seat is None or seat.is_head else _follower_port(seat)),
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
    own: Dict[str, str] = {}
    if seat is not None:
        asked += _join(seat)
        own["SGLANG_HOST_IP"] = seat.address
    argv = (python, "-m", "sglang.launch_server", *asked, *request.args)
    return Command(argv, build_env(request, placement, own))


def list_ports(seat: Seat) -> Tuple[int, ...]:
    """TCP ports that the rank listens on besides its API's: the meeting point and what is derived from it."""
    if not seat.is_head:
        return (_follower_port(seat),)
    meeting = range(seat.head_port, seat.head_port + SGLANG_DERIVED + 1)
    return (*meeting, seat.block + NCCL)


def check_gang(request: LaunchRequest, count: int) -> Iterator[Finding]:
    """Replicas over several nodes are possible with attention's own data parallelism alone."""
    if count > 1 and request.data_parallel > 1 and "--enable-dp-attention" not in request.args:
        what = f"SGLang runs {request.data_parallel} replicas over {count} nodes with DP attention alone"
        fix = (
            "add --arg=--enable-dp-attention, or launch one engine per node and route between them"
        )
        yield Finding("sglang-dp-nodes", Severity.ERROR, "data_parallel", what, fix)


def _follower_port(seat: Seat) -> int:
    """A follower answers on a port of its own, 200 whatever happens: nobody must take it for the engine's."""
    return seat.block + FOLLOWER_HTTP


def _join(seat: Seat) -> Tuple[str, ...]:
    return list_flags(
        [
            ("--nnodes", seat.ranks),
            ("--node-rank", seat.rank),
            ("--dist-init-addr", join_address(seat.head, seat.head_port)),
            ("--nccl-port", seat.block + NCCL),
        ]
    )
