"""`llmgw`: owns stdout, stderr and exit statuses. Each verb loads what it needs, no more; `--help` argparse alone."""

from __future__ import annotations

import io
import os
import sys

from llmgw_core import __version__
from llmgw_core.cli.parser import build_parser, split_engine_args, strip_demo

TYPE_CHECKING = False  # typing itself is not loaded for --help
if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Sequence

    Verb = Callable[[argparse.Namespace], Awaitable[int]]

EXIT_INTERRUPTED = 130


def run() -> None:
    """The `llmgw` command."""
    # A terminal of another encoding shall see a question mark, not an error.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Do the command. Returns the exit status; no exception leaves it but SystemExit of the parser."""
    try:
        status = _dispatch(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has had enough, e.g. `| head`. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    # The edge: whatever else comes ends in words and an exit status.
    except Exception as error:
        if os.environ.get("LLMGW_DEBUG"):
            raise
        return _tell_error(error)
    return status


def _tell_error(error: Exception) -> int:
    """Say it on stderr. Returns the exit status."""
    from llmgw_core.cli.output import print_error, print_note
    from llmgw_core.errors import LlmgwError

    if isinstance(error, LlmgwError):
        print_error(error)
        return error.exit_code
    print_note(f"llmgw: an error of llmgw itself: {type(error).__name__}: {error}")
    print_note("  → set LLMGW_DEBUG=1 to see where, and report it")
    return LlmgwError.exit_code


def _dispatch(argv: Sequence[str]) -> int:
    demo = strip_demo(argv)
    if demo is not None:
        from llmgw_core.demo.main import main as run_demo

        return run_demo(list(demo))
    words, engine_args = split_engine_args(argv)
    parser = build_parser(__version__, words)
    args = parser.parse_args(words)
    if engine_args:
        if args.verb not in ("plan", "preflight", "launch"):
            parser.error(f"-- ARGUMENTS go with plan, preflight and launch, not with {args.verb}")
        args.args = [*(args.args or ()), *engine_args]
    if args.verb == "version":
        sys.stdout.write(f"{__version__}\n")
        return 0
    if args.verb == "agent":
        from llmgw_core.cli.agent import main_agent

        return main_agent(as_json=args.json)
    if args.verb == "inventory":
        from llmgw_core.cli.inventory import run_inventory

        return run_inventory(
            cluster=args.cluster,
            nodes=args.nodes,
            timeout_s=args.timeout,
            as_json=args.json,
            saved=args.inventory,
        )
    if args.verb == "schema":
        from llmgw_core.cli.schema import run_schema

        return run_schema(args.document)
    if args.verb == "gateway":
        from llmgw_core.cli.gateway import run_gateway

        return run_gateway(args, argv)
    import asyncio

    return asyncio.run(_run(_find_verb(args.verb), args))


async def _run(verb: Verb, args: argparse.Namespace) -> int:
    return await verb(args)


def _find_verb(name: str) -> Verb:
    from llmgw_core.cli import diagnose, engines, fabric, launch, logs, queue

    verbs: dict[str, Verb] = {
        "fabric": fabric.run_fabric,
        "plan": launch.run_plan,
        "preflight": launch.run_preflight,
        "launch": launch.run_launch,
        "status": engines.run_status,
        "stop": engines.run_stop,
        "forget": engines.run_forget,
        "key": engines.run_key,
        "logs": logs.run_logs,
        "diagnose": diagnose.run_diagnose,
        "queue": queue.run_queue,
    }
    return verbs[name]


if __name__ == "__main__":
    run()
