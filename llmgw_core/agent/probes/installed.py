"""What is installed on the node for communication: verbs, their providers, plugins of NCCL, and the engine's packages."""

import re
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Set, Tuple

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
_PACKAGE = re.compile(r"([A-Za-z0-9_.]{1,60})-([A-Za-z0-9.+!]{1,60})\.dist-info")
_WANTED = re.compile(
    r"(nvidia-)?(nccl|nvshmem)(-cu\d+)?|torch|vllm|sglang|ray|rccl|nixl(-cu\d+)?|deep-ep|mooncake-transfer-engine"
)


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


def read_package_versions(venv: Optional[str]) -> Optional[Dict[str, str]]:
    """Versions by name of what of a virtual environment matters here, by its folders' names alone.

    None: there is no such environment.
    """
    libraries = list_names(f"{venv}/lib") if venv else None
    if libraries is None:
        return None
    found: Dict[str, str] = {}
    for library in sorted(libraries):
        for name in list_names(Path(str(venv)) / "lib" / library / "site-packages") or ():
            match = _PACKAGE.fullmatch(name)
            package = re.sub(r"[-_.]+", "-", match.group(1)).lower() if match else ""
            if match and _WANTED.fullmatch(package):
                found[package] = match.group(2)
    return dict(sorted(found.items()))
