"""The files that fill every variable of NCCL that a process lacks, and variables of its kind.

Source: NCCL src/misc/param.cc (initEnvFunc, setEnvFile): NCCL_CONF_FILE, else ~/.nccl.conf, then /etc/nccl.conf; the
first to name a variable wins.
"""

import errno
from pathlib import Path
from typing import Dict, Mapping, Optional, Tuple

from llmgw_core.domain.network import NcclConf
from llmgw_core.domain.secret_names import hide_secret_env

MAX_BYTES = 64 << 10
_MOST_SETTINGS = 200
_MOST_CHARS = 1000
_PREFIXES = ("NCCL_", "GLOO_", "UCX_", "NVSHMEM_", "FI_", "MC_")
_NAMES = ("VLLM_HOST_IP", "SGLANG_HOST_IP", "HOST_IP")


def pick_environment(env: Mapping[str, str]) -> Dict[str, str]:
    """The variables that tell communication libraries what to do."""
    found = {name: env[name] for name in sorted(env) if name.startswith(_PREFIXES)}
    found.update({name: env[name] for name in _NAMES if name in env})
    return _bound(found)


def parse_nccl_conf(text: str) -> Dict[str, str]:
    """Lines: `NCCL_IB_GID_INDEX=3`, `# comment`. Of a name that stands twice the first counts: nothing is overwritten."""
    found: Dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name and not line.startswith("#"):
            found.setdefault(name, value)
    return _bound(found)


def read_nccl_confs(
    home: Optional[str], conf_file: Optional[str], etc: str = "/etc"
) -> Tuple[NcclConf, ...]:
    """The files that are there, the one that wins first."""
    own = conf_file or (f"{home}/.nccl.conf" if home else None)
    read = [_read(path) for path in (own, f"{etc}/nccl.conf") if path]
    return tuple(conf for conf in read if conf is not None)


def _read(path: str) -> Optional[NcclConf]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
        return NcclConf(path, {}, errno.errorcode.get(number, "EIO"))
    return NcclConf(path, parse_nccl_conf(text))


def _bound(found: Mapping[str, str]) -> Dict[str, str]:
    kept = list(hide_secret_env(found).items())[:_MOST_SETTINGS]
    return {
        name[:_MOST_CHARS]: value[:_MOST_CHARS].encode("utf-8", "replace").decode()
        for name, value in kept
    }
