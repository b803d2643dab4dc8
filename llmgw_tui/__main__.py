"""`llmgw-tui`: the console; `--json` prints the inventory and needs no terminal."""

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw_core import __version__
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from llmgw_tui.widgets.filters import Look

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="llmgw-tui",
        description="A console for the engines and GPUs of a cluster reached over SSH.",
    )
    parser.add_argument("--nodes", metavar="SET", help="nodes by name, e.g. 'gpu[01-16],head'")
    parser.add_argument("--cluster", metavar="FILE", type=Path, help="a cluster.toml")
    parser.add_argument(
        "--inventory",
        metavar="FILE",
        type=Path,
        help="look at a saved document of llmgw inventory --json",
    )
    parser.add_argument("--json", action="store_true", help="print the inventory once, and end")
    parser.add_argument(
        "--read-only", action="store_true", help="look, but launch and stop nothing"
    )
    parser.add_argument(
        "--ascii",
        action=argparse.BooleanOptionalAction,
        help="draw with ASCII alone; as the locale and TERM say when not given",
    )
    parser.add_argument("--demo", action="store_true", help="a simulated cluster on this machine")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        default=None,
        help="seconds a node has for its first answer (with --json)",
    )
    parser.add_argument("--version", action="version", version=f"llmgw-tui {__version__}")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no time to wait: a number above 0")
    return value


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point: ends the process with the documented exit code."""
    sys.exit(main(sys.argv[1:] if argv is None else argv))


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    args = build_parser().parse_args(argv)
    try:
        if args.demo:
            return _run_demo(args)
        return _dispatch(args, args.cluster)
    except LlmgwError as error:
        print(f"llmgw-tui: {error}", file=sys.stderr)  # noqa: T201 - messages go to stderr
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run_demo(args: argparse.Namespace) -> int:
    from llmgw_core.demo.main import open_demo

    with open_demo() as cluster:
        return _dispatch(args, cluster)


def _dispatch(args: argparse.Namespace, cluster: Path | None) -> int:
    if args.json:
        from llmgw_core.cli.inventory import run_inventory

        return run_inventory(
            cluster=cluster,
            nodes=args.nodes,
            timeout_s=args.timeout,
            as_json=True,
            saved=args.inventory,
        )
    # Textual draws on stderr: sent to a file, the console would be in there.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        print(  # noqa: T201 - messages go to stderr
            "llmgw-tui: no terminal on stdin, stdout and stderr; `llmgw-tui --json` prints the inventory without one",
            file=sys.stderr,
        )
        return EXIT_USAGE
    if args.inventory is not None:
        return asyncio.run(_show_saved(args))
    return asyncio.run(_show(args, cluster))


async def _show(args: argparse.Namespace, cluster: Path | None) -> int:
    """Run the console over the cluster. The fleet is closed after it; engines go on."""
    from llmgw_core.fleet.config import select_targets
    from llmgw_core.fleet.fleet import Fleet
    from llmgw_core.fleet.gateways import GatewayWatch
    from llmgw_tui.app import LlmgwApp
    from llmgw_tui.feed import Feed, FleetOperations

    calm_collector()
    targets = select_targets(cluster, args.nodes, os.environ)
    async with Fleet(targets) as fleet:
        app = LlmgwApp(
            Feed(
                fleet,
                FleetOperations(fleet, os.environ),
                gateways=GatewayWatch(fleet, os.environ),
            ),
            _cluster_name(args, cluster),
            read_only=args.read_only,
            look=_look(args),
        )
        await app.run_async()
        return app.return_code or 0


def calm_collector() -> None:
    """Let Python look for unreachable cycles less often.

    It looks at every object each time that their number has grown by some, and a thousand nodes are half a million of them:
    a quarter of all that the console did. Readings have no cycles; they go when the next ones come.
    """
    gc.set_threshold(100_000, 20, 100)


async def _show_saved(args: argparse.Namespace) -> int:
    """Run the console over a saved document."""
    from llmgw_core.fleet.inventory_file import load_inventory
    from llmgw_core.fleet.saved_fleet import SavedFleet
    from llmgw_tui.app import LlmgwApp
    from llmgw_tui.feed import Feed

    fleet = SavedFleet(load_inventory(args.inventory))
    app = LlmgwApp(
        Feed(fleet, fleet),
        f"{args.inventory.name} (saved)",
        read_only=True,
        look=_look(args),
    )
    await app.run_async()
    return app.return_code or 0


def _look(args: argparse.Namespace) -> "Look":
    """How the terminal is to be drawn on."""
    from llmgw_tui.present.ascii import needs_ascii
    from llmgw_tui.widgets.filters import Look

    ascii_only = needs_ascii(os.environ) if args.ascii is None else args.ascii
    return Look(colors=not os.environ.get("NO_COLOR"), ascii_only=ascii_only)


def _cluster_name(args: argparse.Namespace, cluster: Path | None) -> str:
    """What the header calls the cluster."""
    from llmgw_core.fleet.config import find_cluster_file

    if args.demo:
        return "demo"
    if args.nodes:
        return str(args.nodes)
    path = find_cluster_file(cluster, os.environ)
    if path is None:
        return "this machine"
    return path.stem if path.stem != "cluster" else path.resolve().parent.name


if __name__ == "__main__":
    run()
