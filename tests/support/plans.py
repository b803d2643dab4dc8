"""Nodes and requests as the planner sees them."""

from dataclasses import replace
from typing import Any

from llmgw_core.domain.engine import EngineKind, EngineState, EngineStatus
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest
from llmgw_core.domain.model import LaunchFacts
from llmgw_core.planning.launch import plan

LAUNCH_ID = "0123456789abcdef0123456789abcdef"


def gpu(
    index: int, gpu_class: str = "h100-80g", capability: str | None = "9.0", **more: Any
) -> Gpu:
    """A free GPU."""
    values: dict[str, Any] = {"uuid": f"GPU-{index}", "available": True, **more}
    return Gpu(index=index, gpu_class=gpu_class, compute_capability=capability, **values)


def node(name: str, *gpus: Gpu, **more: Any) -> Node:
    """A node that answers."""
    return Node(name=name, gpus=gpus, **more)


def four(name: str, **more: Any) -> Node:
    """A node with four free GPUs of a class."""
    return node(name, *(gpu(index, **more) for index in range(4)))


def engine(name: str, state: EngineState = EngineState.READY, port: int = 8000) -> EngineStatus:
    """An engine of a node."""
    url = f"http://127.0.0.1:{port}"
    return EngineStatus(f"{name}-00000001", name, EngineKind.VLLM, "m", name, state, url=url)


def request(**changes: Any) -> LaunchRequest:
    """One GPU for vLLM, unless said otherwise."""
    return replace(LaunchRequest("chat", EngineKind.VLLM, "org/model"), **changes)


def planned(
    asked: LaunchRequest,
    *nodes: Node,
    venvs: dict[str, str] | None = None,
    facts: dict[str, LaunchFacts] | None = None,
) -> LaunchPlan:
    """The plan of a request on these nodes; without any, on one with four H100."""
    return plan(asked, nodes or (four("n1"),), LAUNCH_ID, venvs or {}, facts=facts or {})


def codes(made: LaunchPlan) -> dict[str, str]:
    """Severity by code of what was found, but for what is only told."""
    return {
        finding.code: finding.severity.value
        for finding in made.findings
        if finding.severity.value != "info"
    }
