"""What is installed on the node for communication: verbs, their providers, and plugins of NCCL."""

import re
from typing import List, Mapping, Set, Tuple

from llmgw_core.agent.probes.files import exists, list_names

_FOLDERS = (
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/amazon/aws-ofi-nccl/lib",
    "/opt/aws-ofi-nccl/lib",
)
_PROVIDER = re.compile(r"lib([a-z0-9_]{1,20}?)(?:-rdmav\d{1,3})?\.so")
_PLUGIN = re.compile(r"libnccl-net[a-z0-9_-]{0,40}\.so")


def list_library_folders(env: Mapping[str, str], root: str = "/") -> List[str]:
    """Where the loader would look: LD_LIBRARY_PATH, the usual places, and those of each machine type."""
    own = [folder for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder]
    usual = [root.rstrip("/") + folder for folder in _FOLDERS]
    triplets = [
        f"{usual[0]}/{name}"
        for name in sorted(list_names(usual[0]) or ())
        if name.endswith(("-linux-gnu", "-linux-gnueabihf"))
    ]
    return [*own, *triplets, *usual]


def has_verbs_library(folders: List[str]) -> bool:
    """Whether `libibverbs.so.1` is there, which NCCL loads by that name."""
    return any(exists(f"{folder}/libibverbs.so.1") for folder in folders)


def find_verbs_providers(folders: List[str]) -> Tuple[str, ...]:
    """Drivers of libibverbs: ("bnxt_re", "mlx5") of `libibverbs/libmlx5-rdmav34.so`."""
    names = [name for folder in folders for name in list_names(f"{folder}/libibverbs") or ()]
    found = {match.group(1) for match in map(_PROVIDER.fullmatch, names) if match}
    return tuple(sorted(found))


def find_net_plugins(folders: List[str]) -> Tuple[str, ...]:
    """Plugins that NCCL may load for its network: ("libnccl-net-ofi.so",)."""
    found: Set[str] = set()
    for folder in folders:
        found.update(name for name in list_names(folder) or () if _PLUGIN.fullmatch(name))
    return tuple(sorted(found))
