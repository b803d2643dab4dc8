"""llmgw's core: what exists, what runs on a node, what to do, and how to reach it."""

__version__ = "0.1.0"
