"""Whether engines here may open an adapter: its character device, which a container or a cgroup may withhold."""

import errno
import os
from pathlib import Path
from typing import Dict

from llmgw_core.agent.probes.files import list_names, read_text

ACCESS_OK = "ok"


def read_uverbs_names(sysfs_root: str) -> Dict[str, str]:
    """The device under /dev/infiniband by adapter: {"mlx5_0": "uverbs0"}. Empty where sysfs does not say."""
    folder = Path(sysfs_root) / "class/infiniband_verbs"
    found = {}
    for name in sorted(list_names(folder) or []):
        hca = read_text(folder / name / "ibdev")
        if hca and name.startswith("uverbs"):
            found[hca] = name
    return found


def try_uverbs(dev_root: str, name: str) -> str:
    """ "ok", or the name of the errno that opening it ends in. Only opening tells: a cgroup denies what modes allow."""
    path = f"{dev_root}/infiniband/{name}"
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "EIO")
    return ACCESS_OK
