"""`llmgw fabric --env`: what each node must export for NCCL to use the fabric that all of them share."""

import argparse
import re
from collections.abc import Sequence

from llmgw_core.cli.output import clean, print_note, print_result, render_finding
from llmgw_core.domain.findings import has_errors
from llmgw_core.domain.inventory import Fabric, Node
from llmgw_core.domain.wire import dump_json, to_jsonable
from llmgw_core.errors import PlanRefused, UsageError
from llmgw_core.planning.network_env import NetworkEnv, plan_network_env

ENV_SCHEMA = "llmgw.fabric-env/1"
_VERSION = re.compile(r"\d+(?:\.\d+){1,3}")
_INTERFACES = "llmgw: set NCCL_SOCKET_IFNAME==IF and GLOO_SOCKET_IFNAME=IF yourself, IF being each node's interface towards its peers"


def print_network_env(
    args: argparse.Namespace, nodes: Sequence[Node], fabrics: Sequence[Fabric]
) -> int:
    """Print each node's exports with their reasons. Returns 0, or 5 with an error among the findings.

    Raises:
        UsageError: the version cannot be read, or a node has not answered.
    """
    silent = [node.name for node in nodes if not node.reachable]
    if silent:
        raise UsageError(
            f"{silent[0]} did not answer: its adapters are not known",
            "a list for the others alone could hang them",
            "leave it out with --nodes, or bring it back",
        )
    planned = plan_network_env(nodes, fabrics, parse_version(args.nccl), wants_tcp=args.tcp)
    print_result(_to_json(planned) if args.json else render_network_env(planned))
    for finding in planned.findings:
        print_note(render_finding(finding))
    if len(nodes) > 1:
        print_note(_INTERFACES)
    return PlanRefused.exit_code if has_errors(planned.findings) else 0


def parse_version(text: str | None) -> tuple[int, ...] | None:
    """`2.27.3` → (2, 27, 3); None stays None.

    Raises:
        UsageError: it is no version.
    """
    if text is None:
        return None
    if not _VERSION.fullmatch(text):
        raise UsageError(f"{text} is no NCCL version", "", "write it as 2.27.3")
    return tuple(int(part) for part in text.split("."))


def render_network_env(planned: NetworkEnv) -> str:
    """A block of shell lines for each node: the reason as a comment, then the export."""
    blocks = [f"# all nodes: {planned.fabric or 'no fabric is used'}"]
    for name, settings in planned.settings.items():
        lines = [f"# {name}" + ("" if settings else ": nothing to set, one node needs no network")]
        for item in settings:
            lines += [
                f"# {item.reason}",
                f"export {item.name}={_quote(item.value)}",
            ]
        blocks.append("\n".join(clean(line) for line in lines))
    return "\n\n".join(blocks)


def _quote(value: str) -> str:
    """Always in quotes: zsh expands a word that begins with `=`."""
    return "'" + value.replace("'", "'\\''") + "'"


def _to_json(planned: NetworkEnv) -> str:
    nodes = {
        name: [{"name": item.name, "value": item.value, "reason": item.reason} for item in settings]
        for name, settings in planned.settings.items()
    }
    document = {"fabric": planned.fabric, "nodes": nodes, "findings": to_jsonable(planned.findings)}
    return dump_json({"schema": ENV_SCHEMA, **document}, indent=2)
