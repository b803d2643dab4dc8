"""One node in some lines of plain text, for a person on the node itself."""

from typing import List, Optional

from llmgw_core.domain.engine import EngineStatus
from llmgw_core.domain.hardware import Gpu, Port
from llmgw_core.domain.inventory import Node


def summarize_node(node: Node) -> str:
    """The node, its GPUs, ports and engines, one line each. `?` stands for what is not known."""
    lines = [
        f"{node.name}  {_or(node.host.os)}  kernel {_or(node.host.kernel)}  driver {_or(node.driver_version)}"
    ]
    if node.error is not None:
        lines.append(f"  error {node.error.code}: {node.error.message} ({node.error.hint})")
    lines += [f"  {flag.severity.value} {flag.code}: {flag.message}" for flag in node.health]
    lines += _section("GPUs", [line for gpu in node.gpus for line in _gpu_lines(gpu)])
    lines += _section("RDMA ports", [_port_line(port) for port in node.ports])
    lines += _section("engines", [_engine_line(engine) for engine in node.engines])
    return "\n".join(lines)


def _section(title: str, lines: List[str]) -> List[str]:
    return [f"{title}:"] + [f"  {line}" for line in lines] if lines else [f"{title}: none"]


def _gpu_lines(gpu: Gpu) -> List[str]:
    state = "available" if gpu.available else f"engine {gpu.engine}" if gpu.engine else "not free"
    first = (
        f"{gpu.index}  {_or(gpu.gpu_class)}  {_or(gpu.memory_used_mib)}/{_or(gpu.memory_total_mib)} MiB"
        f"  {_or(gpu.utilization_percent)} %  {state}"
    )
    return [
        first,
        *(f"   {flag.severity.value} {flag.code}: {flag.message}" for flag in gpu.health),
    ]


def _port_line(port: Port) -> str:
    return (
        f"{port.hca}:{port.port}  {port.kind.value}  {_or(port.state)}  {_or(port.rate_gbps)} Gb/s"
        f"  {_or(port.netdev)}"
    )


def _engine_line(engine: EngineStatus) -> str:
    return f"{engine.id}  {engine.state.value}  {engine.model}  {_or(engine.url)}"


def _or(value: Optional[object]) -> str:
    return "?" if value is None else str(value)
