"""What newcomers and CI touch first: make targets, requirements, links between documents."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / ".ci/run"], ids=lambda path: path.name)
def test_make_targets_that_are_named_exist(path: Path) -> None:
    # Indented or after a word of .ci/run: commands, not prose.
    named = re.findall(
        r"(?:^ {4,}|`|step \"[^\"]*\" )make ([a-z-]+)", path.read_text("utf-8"), re.MULTILINE
    )

    assert set(named) - make_targets() == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text("utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_requirements_of_a_group_include_those_of_its_groups() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/list_requirements.py"), "dev"],
        capture_output=True,
        text=True,
        check=True,
    )

    names = {re.split(r"[<>=\[ ]", line)[0] for line in done.stdout.splitlines()}
    assert {"pytest", "ruff", "mypy", "build"} <= names
