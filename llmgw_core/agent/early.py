"""This node's reading begun before most of llmgw is loaded: nvidia-smi takes longer than Python's imports do."""

import os
from typing import Mapping, Optional

from llmgw_core.agent.paths import resolve_instance
from llmgw_core.agent.probes.smi_start import StartedReading, begin_reading
from llmgw_core.errors import DiskFull, HomeUnwritable


def begin_node_reading(env: Mapping[str, str]) -> Optional[StartedReading]:
    """nvidia-smi under way, for `read_node_here`; None where there is none, or a daemon may have read it already."""
    try:
        if os.path.lexists(resolve_instance(env).socket):
            return None
    except (HomeUnwritable, DiskFull):
        pass  # nothing can be written, and so no daemon runs
    return begin_reading(env)
