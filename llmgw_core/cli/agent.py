"""`llmgw agent inventory`: this node as a scheduler would see it, one element of `nodes`."""

import os
import sys

from llmgw_core.agent.early import begin_node_reading


def main_agent(*, as_json: bool) -> int:
    """Print it, as JSON or in lines for a person. Returns the exit status."""
    started = begin_node_reading(os.environ)
    # Loaded while nvidia-smi runs.
    from llmgw_core.agent.local import read_node_here
    from llmgw_core.agent.summary import summarize_node
    from llmgw_core.domain.wire import dump_json

    node = read_node_here(os.environ, started=started)
    sys.stdout.write((dump_json(node, indent=2) if as_json else summarize_node(node)) + "\n")
    return 0
