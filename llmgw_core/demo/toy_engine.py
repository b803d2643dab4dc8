"""Entry of the toy engine: `python -I -S toy_engine.py vllm serve MODEL …` or `… sglang --model-path MODEL …`.

docs/demo.md says what it does and how to make it fail.
"""

import sys
from pathlib import Path


def main() -> None:
    """Run the toy engine with this process's arguments; ends the process."""
    package = str(Path(__file__).resolve().parents[2])
    if package not in sys.path:
        sys.path.insert(0, package)
    from llmgw_core.demo.toy.run import run

    run(sys.argv[1:])


if __name__ == "__main__":
    main()
