"""MIG: the slices of a GPU, from `nvidia-smi -L`. Pure."""

import re
from typing import Dict, List, NamedTuple, Optional

from llmgw_core.agent.probes.gpu_classes import name_model

_GPU = re.compile(r"\s*GPU\s+(\d{1,4}):\s.*\(UUID:\s*(GPU-[0-9A-Za-z-]{1,80})\)\s*")
_SLICE = re.compile(
    r"\s*MIG\s+(?P<profile>\S{1,40})\s+Device\s+(?P<number>\d{1,4}):"
    r"\s*\(UUID:\s*(?P<uuid>MIG-[0-9A-Za-z/-]{1,120})\)\s*"
)
_OLD_UUID = re.compile(r"MIG-(GPU-[0-9A-Za-z-]{1,80})/(\d{1,4})/(\d{1,4})")


class MigSlice(NamedTuple):
    """One MIG device as the driver lists it."""

    gpu_uuid: Optional[str]
    gpu_index: Optional[int]
    profile: str  # "3g.20gb"
    number: int
    uuid: str
    gpu_instance: Optional[int] = None  # of old uuids, which say so
    compute_instance: Optional[int] = None


def parse_mig_slices(text: str) -> List[MigSlice]:
    """The MIG devices that `nvidia-smi -L` lists, in order.

    Lines: `GPU 0: NVIDIA H200 (UUID: GPU-6c1f…)` and below it `  MIG 1g.18gb     Device  0: (UUID: MIG-ab12…)`; drivers
    before 470 write `MIG-GPU-6c1f…/1/0`: the GPU's uuid, GPU instance, compute instance.
    """
    found: List[MigSlice] = []
    index: Optional[int] = None
    gpu_uuid: Optional[str] = None
    for line in text.split("\n"):
        gpu = _GPU.fullmatch(line)
        if gpu is not None:
            index, gpu_uuid = int(gpu.group(1)), gpu.group(2)
            continue
        match = _SLICE.fullmatch(line)
        if match is not None:
            found.append(_build_slice(match.groupdict(), index, gpu_uuid))
        elif line.strip():
            index = gpu_uuid = None  # a line of another kind: what follows may be another GPU's
    return found


def _build_slice(words: Dict[str, str], index: Optional[int], gpu_uuid: Optional[str]) -> MigSlice:
    profile, number, uuid = words["profile"], int(words["number"]), words["uuid"]
    old = _OLD_UUID.fullmatch(uuid)
    if old is None:
        return MigSlice(gpu_uuid, index, profile, number, uuid)
    parent, instance, compute = old.groups()
    return MigSlice(
        parent,
        index if parent == gpu_uuid else None,
        profile,
        number,
        uuid,
        int(instance),
        int(compute),
    )


def name_slice_class(gpu_name: Optional[str], profile: str) -> Optional[str]:
    """The class of a slice, e.g. `h200-mig-1g.18gb`: by its profile, never by the memory of the whole GPU."""
    slug = re.sub(r"[^a-z0-9.]+", "-", profile.lower()).strip("-.")
    return f"{name_model(gpu_name)}-mig-{slug}" if gpu_name and slug else None
