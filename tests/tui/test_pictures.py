"""Pictures of the screens: layout only, facts are tested elsewhere."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_tui.app import LlmgwApp
from tests.support.console import make_app, shows, until
from tests.support.fleets import NOW, FakeFleet, make_cluster
from tests.support.queues import FakeGateways, make_gateways

pytestmark = [pytest.mark.snapshot, pytest.mark.slow]

LOG = (
    b"INFO 12-31 [core.py:77] Initializing\n"
    b"WARNING 12-31 odd\n\x1b[31mERROR 12-31 bad\x1b[0m\n\rshards: 10%\rshards: 42%"
)
Compare = Callable[..., bool]


def app_over(snapshot: FleetSnapshot, *, read_only: bool = False) -> LlmgwApp:
    fleet = FakeFleet(snapshot)
    fleet.logs["gpu1", "chat-0badcafe"] = LOG
    return make_app(fleet, read_only=read_only)


def steps(*pressed: tuple[str, str]) -> Callable[[Pilot[None]], Awaitable[None]]:
    """For each pair press the key, if any, and wait until the screen shows the text."""

    async def act(pilot: Pilot[None]) -> None:
        for key, text in pressed:
            if key:
                await pilot.press(key)
            await until(pilot, shows(pilot.app, text))

    return act


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (170, 40)], ids=["small", "normal", "wide"])
def test_cluster(snap_compare: Compare, size: tuple[int, int]) -> None:
    """One row a node, the away one grey; the detail hidden, below, beside."""
    assert snap_compare(
        app_over(make_cluster()), terminal_size=size, run_before=steps(("", "3/5 nodes"))
    )


def test_gpus(snap_compare: Compare) -> None:
    """States by glyph and word; bars of memory; greyed where the node is away."""
    assert snap_compare(
        app_over(make_cluster()), terminal_size=(120, 36), run_before=steps(("2", "HELD BY"))
    )


def test_fabric(snap_compare: Compare) -> None:
    """A node without adapters has a row; fabrics and islands stand below."""
    assert snap_compare(
        app_over(make_cluster()), terminal_size=(120, 36), run_before=steps(("3", "Islands"))
    )


def test_engines(snap_compare: Compare) -> None:
    """A bar for what loads, a diagnosis for what failed, the end of the log in the detail."""
    assert snap_compare(
        app_over(make_cluster()), terminal_size=(120, 36), run_before=steps(("4", "shards: 42%"))
    )


def test_log(snap_compare: Compare) -> None:
    """Escapes gone, levels toned, the bar at its last state, the status above."""
    act = steps(("4", "coder"), ("l", "shards: 42%"))

    assert snap_compare(app_over(make_cluster()), terminal_size=(80, 24), run_before=act)


def test_stop_of_a_serving_engine(snap_compare: Compare) -> None:
    """Names engine, node, pid, state and what is lost; asks for the name."""
    act = steps(("4", "coder"), ("X", "Type chat"))

    assert snap_compare(app_over(make_cluster()), terminal_size=(80, 24), run_before=act)


def test_read_only_and_empty(snap_compare: Compare) -> None:
    """No node at all: a sentence, a mark, and greyed keys."""
    assert snap_compare(
        app_over(FleetSnapshot(NOW), read_only=True),
        terminal_size=(80, 24),
        run_before=steps(("", "No nodes")),
    )


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["small", "normal", "wide"])
def test_queue(snap_compare: Compare, size: tuple[int, int]) -> None:
    """A tree of gateway, models, tenants and engines; counts to the right; a tenant that gets too little is marked."""
    app = make_app(FakeFleet(make_cluster()), gateways=FakeGateways(make_gateways()))

    assert snap_compare(app, terminal_size=size, run_before=steps(("8", "batch")))


def test_queue_without_a_gateway(snap_compare: Compare) -> None:
    """Sentences: where was looked, how to start one, who was not asked."""
    none = replace(make_gateways(away=("gpu10",)), gateways=())
    app = make_app(FakeFleet(make_cluster()), gateways=FakeGateways(none))

    assert snap_compare(app, terminal_size=(80, 24), run_before=steps(("8", "No gateway")))
