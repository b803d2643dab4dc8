"""A simulated cluster on this machine: real agents, each with its own state, adapters, GPUs and engines to start.

make_cluster(root) writes files alone and starts nothing; consoles start the agents as they would on real nodes, without SSH.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmgw_core.demo.fake_sysfs import FakePort, infiniband_ports, roce_ports, write_sysfs
from llmgw_core.demo.toy.options import FAILURES
from llmgw_core.errors import UsageError

PARTS = ("cluster.toml", "nodes", "models", "cache")  # everything below a demo's root
SCENARIOS = ("mixed", "small", "trouble")
# Models that the simulated nodes have: two that work, and one for each way to fail (docs/demo.md).
MODELS = ("llama-3.1-8b", "qwen3-32b", *(f"llama-{failure}" for failure in FAILURES))
_SUBNET = 0xFEC0_0000_0000_00A1  # not the default prefix, which every unplanned subnet has
_YOUNG_FIELDS = (
    "compute_cap",
    "addressing_mode",
    "fabric.state",
    "fabric.status",
    "gpu_recovery_action",
)
_CLOSED_PORT = 1  # tcpmux: nothing has listened there for decades
_DEMO = Path(__file__).resolve().parent


@dataclass(frozen=True)
class FakeNode:
    """One simulated node."""

    name: str
    gpus: tuple[dict[str, Any], ...] = ()
    ports: tuple[FakePort, ...] = ()
    smi: dict[str, Any] = field(default_factory=dict)  # how its nvidia-smi misbehaves
    is_unreachable: bool = False


def make_cluster(root: Path, scenario: str = "mixed", load_s: float | None = None) -> Path:
    """Write the nodes' files below `root` and return the path of the cluster's `cluster.toml`.

    Args:
        scenario: "mixed" (six nodes, one of each kind), "small" (two healthy ones), "trouble" (nvidia-smi that hangs,
            fails, or lost a GPU).
        load_s: how long the toy engine loads; None: its default.

    Raises:
        UsageError: no such scenario.
    """
    if scenario not in SCENARIOS:
        raise UsageError(
            f"no demo scenario {scenario!r}", f"there are {', '.join(SCENARIOS)}", "choose one"
        )
    nodes = {"mixed": _mixed, "small": _small, "trouble": _trouble}[scenario]()
    return write_cluster(root, nodes, load_s)


def write_cluster(root: Path, nodes: Sequence[FakeNode], load_s: float | None = None) -> Path:
    """Write these nodes' files below `root` and return the path of the cluster's `cluster.toml`."""
    root = root.absolute()
    for model in MODELS:
        _write_model(root / "models" / model)
    for node in nodes:
        if not node.is_unreachable:
            _write_node(root, node, load_s)
    path = root / "cluster.toml"
    path.write_text("\n".join([_HEAD, *(_format_node(root, node) for node in nodes)]), "utf-8")
    return path


def node_folder(root: Path, name: str) -> Path:
    """Return the folder of a simulated node's files."""
    return root.absolute() / "nodes" / name


def find_state_dirs(root: Path) -> tuple[Path, ...]:
    """Return the LLMGW_STATE_DIR of each simulated node."""
    return tuple(sorted(root.absolute().glob("nodes/*/state")))


def h100s(node: int, count: int = 8) -> tuple[dict[str, Any], ...]:
    """Return the GPUs of an HGX H100 node."""
    return tuple(
        _gpu(node, index, "NVIDIA H100 80GB HBM3", 81559, 700, "9.0") for index in range(count)
    )


def l40s(node: int, count: int = 4) -> tuple[dict[str, Any], ...]:
    """Return the GPUs of an L40S node."""
    return tuple(_gpu(node, index, "NVIDIA L40S", 46068, 350, "8.9") for index in range(count))


def write_nvidia_smi(folder: Path, gpus: Sequence[dict[str, Any]], **smi: Any) -> Path:
    """Make a folder of simulated GPUs and return an executable for LLMGW_NVIDIA_SMI that answers about them.

    Args:
        smi: `hang=True`, `delay_s=0.2`, `fail={"code": 9, "stdout": "…"}`, `unknown_fields=["compute_cap"]`, `driver_version="…"`,
            `cuda_version="…"`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = json.dumps({"gpus": list(gpus), **smi}, indent=1)
    (folder / "gpus.json").write_text(state, "utf-8")
    arguments = [
        sys.executable,
        "-I",
        "-S",
        str(_DEMO / "fake_nvidia_smi.py"),
        str(folder),
    ]
    return _write_script(folder / "nvidia-smi", f'exec {shlex.join(arguments)} "$@"')


def write_toy_venv(venv: Path, gpus: Path | None = None, load_s: float | None = None) -> Path:
    """Write `bin/vllm` and `bin/python` that start the toy engine where the real ones would start, and return the venv.

    Args:
        gpus: folder of the simulated GPUs that it holds memory on.
    """
    lines = []
    if gpus is not None:
        lines.append(f"export LLMGW_DEMO_GPUS={shlex.quote(str(gpus))}")
    if load_s is not None:
        lines.append(f'export LLMGW_TOY_LOAD_S="${{LLMGW_TOY_LOAD_S:-{load_s:g}}}"')
    python = shlex.quote(sys.executable)
    toy = shlex.join([sys.executable, "-I", "-S", str(_DEMO / "toy_engine.py")])
    head = "\n".join(lines)
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    _write_script(venv / "bin/vllm", f'{head}\nexec {toy} vllm "$@"')
    sglang = (
        f'{head}\nif [ "$1" = -m ] && [ "$2" = sglang.launch_server ]; then\n'
        f'  shift 2\n  exec {toy} sglang "$@"\nfi\nexec {python} "$@"'
    )
    for name in ("python", "python3"):
        _write_script(venv / "bin" / name, sglang)
    return venv


def _mixed() -> tuple[FakeNode, ...]:
    sick = list(h100s(3))
    sick[2]["cells"] = {"ecc.errors.uncorrected.volatile.total": "3"}
    sick[5]["held_mib"] = 30720
    return (
        FakeNode("h100-1", h100s(1), infiniband_ports(8, 1, _SUBNET)),
        FakeNode("h100-2", h100s(2), infiniband_ports(8, 2, _SUBNET)),
        FakeNode("h100-3", tuple(sick), infiniband_ports(8, 3, _SUBNET)),
        FakeNode("h100-4", is_unreachable=True),
        FakeNode("l40s-1", l40s(5), roce_ports(("10.20.0.5", "10.20.0.69"))),
        FakeNode("store-1"),
    )


def _small() -> tuple[FakeNode, ...]:
    return (
        FakeNode("n1", h100s(1, 2), infiniband_ports(2, 1, _SUBNET)),
        FakeNode("n2", l40s(2, 2), roce_ports(("10.20.0.2",))),
    )


def _trouble() -> tuple[FakeNode, ...]:
    no_driver = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.\n\n"
    )
    return (
        FakeNode("hung-1", h100s(1), infiniband_ports(8, 1, _SUBNET), {"hang": True}),
        FakeNode("nodriver-1", h100s(2), smi={"fail": {"code": 9, "stdout": no_driver}}),
        FakeNode("old-1", l40s(3), smi={"unknown_fields": list(_YOUNG_FIELDS)}),
        FakeNode("well-1", l40s(4)),
    )


def _gpu(  # noqa: PLR0917 - a table's row
    node: int, index: int, name: str, total_mib: int, watts: int, capability: str
) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{node:04x}{index:04x}-6c1f-4d2b-9a3e-{0xD0D0 + 256 * node + index:012x}",
        "name": name,
        "bus_id": f"00000000:{0x18 + 0x10 * index:02X}:00.0",
        "memory_total_mib": total_mib,
        "power_limit_watts": watts,
        "compute_capability": capability,
    }


def _write_node(root: Path, node: FakeNode, load_s: float | None) -> None:
    folder = node_folder(root, node.name)
    addresses = [str(gpu["bus_id"])[4:].lower() for gpu in node.gpus]
    write_sysfs(folder / "sys", node.ports, addresses)
    (folder / "state").mkdir(parents=True, exist_ok=True, mode=0o700)
    if node.gpus:
        write_nvidia_smi(folder / "gpus", node.gpus, **node.smi)
    write_toy_venv(folder / "venv", folder / "gpus" if node.gpus else None, load_s)


def _format_node(root: Path, node: FakeNode) -> str:
    lines = ["[[nodes]]", f"name = {json.dumps(node.name)}"]
    if node.is_unreachable:
        lines += ['address = "127.0.0.1"', f"port = {_CLOSED_PORT}"]
        return "\n".join([*lines, ""])
    folder = node_folder(root, node.name)
    env = {
        "LLMGW_STATE_DIR": folder / "state",
        "LLMGW_CACHE_DIR": root / "cache",
        "LLMGW_SYSFS_ROOT": folder / "sys",
        "LLMGW_KERNEL_LOG": "/dev/null",  # this machine's own says nothing of simulated GPUs
        "LLMGW_NVIDIA_SMI": folder / "gpus/nvidia-smi",
    }
    pairs = ", ".join(f"{name} = {json.dumps(str(value))}" for name, value in env.items())
    lines += [
        'transport = "local"',
        f"venv = {json.dumps(str(folder / 'venv'))}",
        f"env = {{ {pairs} }}",
    ]
    return "\n".join([*lines, ""])


def _write_model(folder: Path) -> None:
    """A model's description; the toy engine needs no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")


def _write_script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    fresh.chmod(0o755)
    fresh.replace(path)
    return path


_HEAD = """# A simulated cluster: every node is this machine, with an agent of its own.
"""
