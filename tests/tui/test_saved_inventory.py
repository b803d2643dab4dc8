"""The console over a saved inventory."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmgw_core.domain import wire
from llmgw_core.domain.inventory import Contact, Node
from llmgw_core.errors import UsageError
from llmgw_core.fleet.inventory_file import load_inventory
from llmgw_core.fleet.saved_fleet import SavedFleet
from llmgw_core.planning.fabrics import build_inventory
from llmgw_tui.app import LlmgwApp
from llmgw_tui.feed import Feed
from tests.support.console import screen_text, until

SAVED = build_inventory(
    [Node(name="gpu07"), Node(name="gpu08", reachable=False)], "2026-01-01T00:00:00Z"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "monday.json"
    file.write_text(wire.dump_json(SAVED), encoding="utf-8")
    return file


@pytest.mark.slow
async def test_nodes_of_the_document_are_on_the_screen(path: Path) -> None:
    fleet = SavedFleet(load_inventory(path))
    app = LlmgwApp(Feed(fleet, fleet), "monday", read_only=True, clock=time.time)

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "gpu07" in screen_text(app))


def test_picture_is_of_when_it_was_written() -> None:
    snapshot = SavedFleet(SAVED).snapshot()

    assert snapshot.taken_at == 1767225600.0
    assert [view.contact for view in snapshot.nodes] == [Contact.CONNECTED, Contact.UNREACHABLE]
    assert [view.updated_at for view in snapshot.nodes] == [1767225600.0, None]


async def test_nothing_of_it_can_be_stopped() -> None:
    with pytest.raises(UsageError):
        await SavedFleet(SAVED).stop("gpu07", "e", None)


@pytest.mark.slow
def test_json_prints_the_document_again(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llmgw_tui", "--json", "--inventory", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert wire.dump_json(SAVED, indent=2) + "\n" == done.stdout
    assert done.returncode == 3
