"""Who this agent is: the code it runs from, how to start more of it, and its greeting."""

import os
import re
import socket
import sys
from pathlib import Path
from typing import List

import llmgw_core
from llmgw_core.agent.paths import InstancePaths
from llmgw_core.agent.procfs import read_boot_id, read_namespace
from llmgw_core.agent.protocol import PROTOCOL_MAX, PROTOCOL_MIN, Hello

_BUNDLE_NAME = re.compile(r"[0-9a-f]{16}\Z")
# Reads the path from argv, so that nothing of it needs quoting.
_START_FROM_CHECKOUT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from llmgw_core.agent.__main__ import main; sys.exit(main(sys.argv[1:]))"
)


def code_root() -> Path:
    """The directory that holds the package: a bundle's, or a checkout's."""
    return Path(llmgw_core.__file__).absolute().parent.parent


def bundle_hash() -> str:
    """The content hash of the bundle this runs from; "" when it is a checkout or an installed package."""
    root = code_root()
    in_cache = root.parent.name == "agent" and _BUNDLE_NAME.match(root.name) is not None
    return root.name if in_cache and (root / "__main__.py").is_file() else ""


def agent_command(*args: str) -> List[str]:
    """The command that starts this same code on this same Python, e.g. `python -I -S DIR daemon`.

    `-I -S`: the node's environment and site-packages can break nothing and cost no time."""
    root = str(code_root())
    if bundle_hash():
        return [sys.executable, "-I", "-S", root, *args]
    return [sys.executable, "-I", "-S", "-c", _START_FROM_CHECKOUT, root, *args]


def make_hello(instance: InstancePaths, started_at: str) -> Hello:
    """The agent's greeting; `started_at` is RFC 3339."""
    return Hello(
        protocol=(PROTOCOL_MIN, PROTOCOL_MAX),
        version=llmgw_core.__version__,
        bundle=bundle_hash(),
        hostname=socket.gethostname(),
        machine_id=_read_machine_id(),
        boot_id=read_boot_id(),
        pid_namespace=read_namespace("pid"),
        uid=os.getuid(),
        user=_user_name(),
        python=".".join(str(part) for part in sys.version_info[:3]),
        state_dir=str(instance.root),
        pid=os.getpid(),
        started_at=started_at,
    )


def _read_machine_id() -> str:
    """Source: machine-id(5). Containers often have none: ""."""
    try:
        return Path("/etc/machine-id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a passwd entry: KeyError until 3.12, OSError since
        return str(os.getuid())
