"""Prints the requirements of a dependency group of pyproject.toml, one a line; older pips do not know --group."""

import sys
import tomllib
from pathlib import Path
from typing import Any


def expand_group(groups: dict[str, list[Any]], name: str) -> list[str]:
    """Return the group's requirements, those of the groups it includes among them."""
    found: list[str] = []
    for item in groups[name]:
        found += [item] if isinstance(item, str) else expand_group(groups, item["include-group"])
    return found


def main() -> None:
    """Print the group that is the first argument."""
    text = Path(__file__).parent.parent.joinpath("pyproject.toml").read_text("utf-8")
    sys.stdout.write(
        "\n".join(expand_group(tomllib.loads(text)["dependency-groups"], sys.argv[1])) + "\n"
    )


if __name__ == "__main__":
    main()
