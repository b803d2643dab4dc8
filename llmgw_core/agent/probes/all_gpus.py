"""The node's GPUs of every make: each maker's tools asked on their own, so that none hides what another says."""

import threading
from dataclasses import dataclass, field
from typing import List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.probes.amd import AmdReader, AmdReading, assess_amd_gpus, find_amd_smi
from llmgw_core.agent.probes.gpus import assess_gpus
from llmgw_core.agent.probes.smi_reader import TIMEOUT_S, GpuReading, SmiReader
from llmgw_core.agent.probes.smi_start import StartedReading
from llmgw_core.domain.hardware import Gpu, Unit


@dataclass(frozen=True)
class Readings:
    """What the tools said at one time."""

    nvidia: GpuReading = field(default_factory=GpuReading)
    amd: AmdReading = field(default_factory=AmdReading)


class AllGpusReader:
    """Asks all tools there are, at once. One reading at a time."""

    def __init__(
        self,
        env: Mapping[str, str],
        smi_timeout_s: Optional[float] = None,
        started: Optional[StartedReading] = None,
    ) -> None:
        self._env = env
        self.smi = SmiReader(env, TIMEOUT_S if smi_timeout_s is None else smi_timeout_s, started)
        self._amd = AmdReader(env)

    def read(self) -> Readings:
        """The GPUs now. Never fails; takes as long as the slowest tool."""
        if find_amd_smi(self._env) is None:
            return Readings(self.smi.read(), self._amd.read())
        found: List[AmdReading] = []
        thread = threading.Thread(target=lambda: found.append(self._amd.read()), daemon=True)
        thread.start()
        nvidia = self.smi.read()
        thread.join()
        return Readings(nvidia, found[0] if found else AmdReading())

    def close(self) -> None:
        """Ask what hangs to end, once more."""
        self.smi.close()
        self._amd.close()


def assess_all_gpus(
    readings: Readings,
    owners: Mapping[int, str],
    taken: Mapping[Unit, str],
    known: Sequence[Gpu] = (),
) -> Tuple[Gpu, ...]:
    """Each GPU, judged, NVIDIA's first; arguments as of `assess_gpus`. Pure."""
    nvidia = assess_gpus(
        readings.nvidia, owners, taken, [gpu for gpu in known if gpu.vendor == "nvidia"]
    )
    first = 1 + max((gpu.index for gpu in nvidia), default=-1)
    return nvidia + assess_amd_gpus(readings.amd, owners, taken, first)
