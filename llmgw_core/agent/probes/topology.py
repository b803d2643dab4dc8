"""`nvidia-smi topo -m`, for nodes whose sysfs does not show where the GPUs are."""

from pathlib import Path
from typing import Dict, Mapping, Optional

from llmgw_core.agent.probes.commands import Pending, start_together
from llmgw_core.agent.probes.files import list_names, read_text
from llmgw_core.agent.probes.nearness import Nearness, parse_topology, read_gpu_places
from llmgw_core.agent.probes.smi_start import find_nvidia_smi

TIMEOUT_S = 5.0
_MIN_ADAPTERS = 2  # with one there is nothing to choose


def is_topology_needed(sysfs_root: str) -> bool:
    """Whether there are adapters to choose among and sysfs shows no GPU. On bare metal it shows them all."""
    folder = Path(sysfs_root) / "class/infiniband"
    names = list_names(folder) or []
    active = [
        name
        for name in names
        if any(
            (read_text(folder / name / "ports" / port / "state") or "").startswith("4:")
            for port in list_names(folder / name / "ports") or []
        )
    ]
    return len(active) >= _MIN_ADAPTERS and not read_gpu_places(sysfs_root)


def ask_topology(env: Mapping[str, str], gpu_bus_ids: Mapping[int, str]) -> Dict[str, Nearness]:
    """Each adapter's nearest GPUs; empty where nvidia-smi is absent, fails, or does not answer within 5 s."""
    pending = start_topology(env)
    return {} if pending is None else finish_topology(pending, gpu_bus_ids)


def start_topology(env: Mapping[str, str]) -> Optional[Pending]:
    """The question under way, for `finish_topology`; None where there is no nvidia-smi."""
    program = find_nvidia_smi(env)
    return None if program is None else start_together([[program, "topo", "-m"]], env)


def finish_topology(
    pending: Pending, gpu_bus_ids: Mapping[int, str], timeout_s: float = TIMEOUT_S
) -> Dict[str, Nearness]:
    """Its answer; see `ask_topology`."""
    (result,) = pending.finish(timeout_s)
    return parse_topology(result.stdout, gpu_bus_ids) if result.code == 0 else {}
