"""Runs the toy engine: which engine it plays is its first argument."""

import os
import sys
from collections.abc import Sequence

from llmgw_core.demo.toy import sglang, speech, vllm
from llmgw_core.demo.toy.options import BadCommand, parse_command

EXIT_USAGE = 2


def run(argv: Sequence[str]) -> None:
    """Run until it ends; ends the process."""
    if not argv or argv[0] not in ("vllm", "sglang"):
        speech.write_err("usage: toy_engine.py vllm serve MODEL … | sglang --model-path MODEL …\n")
        sys.exit(EXIT_USAGE)
    if list(argv[1:]) in (["--version"], ["-v"]):
        speech.write_out(f"{speech.VERSION}\n")
        sys.exit(0)
    try:
        options = parse_command(argv, os.environ)
    except BadCommand as error:
        speech.write_err(f"usage: {argv[0]} [-h] [options]\n{error}\n")
        sys.exit(EXIT_USAGE)
    leader = vllm.Leader(options) if options.kind == "vllm" else sglang.Leader(options)
    try:
        status = leader.run()
    except OSError as error:
        speech.write_err(
            f"Traceback (most recent call last):\nOSError: [Errno {error.errno}] {error.strerror}\n"
        )
        status = 1
    # Threads of the HTTP server are not waited for.
    os._exit(status)
