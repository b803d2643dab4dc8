"""All that decides whether ranks on this node reach others, read as the user who would start them. Each fact fails alone."""

import errno
import os
import pwd
import socket
import struct
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from llmgw_core.agent.launch_facts import find_packages
from llmgw_core.agent.probes import installed, own_limits, rdma_now
from llmgw_core.agent.probes.files import read_text
from llmgw_core.agent.probes.interfaces import read_network
from llmgw_core.agent.probes.nccl_conf import pick_environment, read_nccl_confs
from llmgw_core.domain.network import NodeNetwork

RESOLVE_TIMEOUT_S = 3.0
_SSH_FIELDS = 4
_SEVERAL = ("interfaces", "hostname", "memlock", "verbs_library")  # these readers tell more


def read_network_facts(
    env: Mapping[str, str], venv: Optional[str] = None, conf_file: Optional[str] = None
) -> NodeNetwork:
    """The facts now. Takes some 50 ms, and up to 3 s where names are slow to resolve. Never fails.

    Args:
        env: the agent's environment.
        venv: the engine's virtual environment, for the versions in it.
        conf_file: NCCL_CONF_FILE as the engine will have it.
    """
    is_real = not env.get("LLMGW_SYSFS_ROOT")
    sysfs = env.get("LLMGW_SYSFS_ROOT") or "/sys"
    dev_root = env.get("LLMGW_DEV_ROOT") or ("/dev" if is_real else None)
    readers: Dict[str, Callable[[], Any]] = {
        "interfaces": lambda: read_network()._asdict(),
        "hostname": lambda: _read_names(socket.gethostname()),
        "memlock": lambda: dict(zip(("memlock", "nofile"), own_limits.read_limits())),
        "may_lock_memory": lambda: own_limits.may_lock(read_text("/proc/self/status") or ""),
        "shared_memory": own_limits.read_shared_memory,
        "container": lambda: own_limits.find_container(env),
        "virtual_machine": lambda: own_limits.is_virtual_machine(read_text("/proc/cpuinfo") or ""),
        "verbs_library": lambda: _read_libraries(env, venv),
        "iommu_groups": lambda: rdma_now.count_iommu_groups(sysfs),
        "iommu_arguments": lambda: rdma_now.find_iommu_arguments(read_text("/proc/cmdline") or ""),
        "peer_memory": lambda: rdma_now.read_peer_memory(sysfs),
        "port_states": lambda: rdma_now.read_port_states(sysfs),
        "port_gids": lambda: rdma_now.read_port_gids(sysfs),
        "umad_access": lambda: rdma_now.try_umad(dev_root),
        "environment": lambda: pick_environment(env),
        "conf_files": lambda: read_nccl_confs(pwd.getpwuid(os.getuid()).pw_dir, conf_file),
        "packages": lambda: find_packages(f"{venv}/bin/python", "") if venv else None,
    }
    facts: Dict[str, Any] = {"ssh_address": find_ssh_address(env)}
    unread: List[str] = []
    for name, read in readers.items():
        try:
            found = read()
        except (OSError, ValueError, KeyError, struct.error) as error:
            unread.append(f"{name}: {_name(error)}")
            continue
        facts.update(found if name in _SEVERAL else {name: found})
    if facts.get("hostname") and facts.get("hostname_addresses") is None:
        unread.append("hostname_addresses: ETIMEDOUT")
    return NodeNetwork(**facts, unread=tuple(unread))


def find_ssh_address(env: Mapping[str, str]) -> Optional[str]:
    """This node's address of `SSH_CONNECTION`, `10.0.0.9 40022 10.0.0.1 22`; None when nobody came by SSH."""
    fields = env.get("SSH_CONNECTION", "").split()
    return fields[2].partition("%")[0] if len(fields) == _SSH_FIELDS else None


def resolve_name(name: str, timeout_s: float = RESOLVE_TIMEOUT_S) -> Optional[Tuple[str, ...]]:
    """The addresses of a name as `getaddrinfo` finds them; () when it does not resolve, None when that takes longer."""
    found: List[Tuple[str, ...]] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            answers = []
        found.append(tuple(dict.fromkeys(str(item[4][0]) for item in answers)))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return found[0] if found else None


def _read_names(name: str) -> Dict[str, Any]:
    return {"hostname": name, "hostname_addresses": resolve_name(name)}


def _read_libraries(env: Mapping[str, str], venv: Optional[str]) -> Dict[str, Any]:
    folders = installed.list_library_folders(env)
    pattern = "lib/python3*/site-packages/*/lib"
    own = [str(path) for path in Path(venv).glob(pattern)] if venv else []
    return {
        "verbs_library": installed.has_verbs_library(folders),
        "verbs_providers": installed.find_verbs_providers(folders),
        "net_plugins": installed.find_net_plugins([*folders, *own]),
    }


def _name(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, "EIO") if number else type(error).__name__
