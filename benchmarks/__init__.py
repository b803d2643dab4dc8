"""Measurements with a budget each: `python -m benchmarks.run`."""
