"""The agent's commands: `inventory [--json]`, `proxy`, `daemon`, `shim DIR [--pump]`, `version`.

Each imports what it needs and no more: a shim must stay small, a proxy must start fast.
"""

import os
import sys
from typing import List, Optional

_USAGE = "usage: agent inventory [--json] | proxy | daemon | shim DIR [--pump] | version\n"
_USAGE_EXIT = 2


def main(argv: List[str]) -> int:
    """Do the command. Returns the exit status."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command == "shim" and rest:
        from llmgw_core.agent.shim import main as run_shim

        return run_shim(rest[0], "--pump" in rest[1:])
    if command == "proxy" and not rest:
        from llmgw_core.agent.proxy import run_proxy

        return run_proxy(os.environ)
    if command == "daemon":
        return _run_daemon(rest)
    if command == "inventory" and rest in ([], ["--json"]):
        return _print_inventory(as_json=bool(rest))
    if command == "version" and not rest:
        from llmgw_core import __version__

        sys.stdout.write(f"{__version__}\n")
        return 0
    sys.stderr.write(_USAGE)
    return _USAGE_EXIT


def _run_daemon(rest: List[str]) -> int:
    from llmgw_core.agent.daemon import DaemonSettings, run_daemon

    lock = _take_option(rest, "--lock-fd")
    idle = _take_option(rest, "--idle-exit-s")
    reign = _take_option(rest, "--min-reign-s")
    if rest:
        sys.stderr.write(_USAGE)
        return _USAGE_EXIT
    usual = DaemonSettings()
    settings = DaemonSettings(
        idle_exit_s=usual.idle_exit_s if idle is None else float(idle),
        min_reign_s=usual.min_reign_s if reign is None else float(reign),
    )
    status = run_daemon(os.environ, None if lock is None else int(lock), settings)
    if status:
        sys.stderr.write("llmgw agent: a daemon runs already; `agent proxy` connects to it\n")
    return status


def _take_option(rest: List[str], name: str) -> Optional[str]:
    if name not in rest[:-1]:
        return None
    place = rest.index(name)
    value = rest[place + 1]
    del rest[place : place + 2]
    return value


def _print_inventory(as_json: bool) -> int:
    from llmgw_core.agent.early import begin_node_reading

    started = begin_node_reading(os.environ)
    # Loaded while nvidia-smi runs.
    from llmgw_core.agent.local import read_node_here
    from llmgw_core.agent.summary import summarize_node
    from llmgw_core.domain.wire import dump_json
    from llmgw_core.errors import LlmgwError

    try:
        node = read_node_here(os.environ, started=started)
    except LlmgwError as error:
        sys.stderr.write(f"llmgw agent: {error}\n")
        return error.exit_code
    sys.stdout.write((dump_json(node, indent=2) if as_json else summarize_node(node)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
