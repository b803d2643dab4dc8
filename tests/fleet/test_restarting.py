"""An engine that is started again, with a real agent; a link that is told to hurry."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.inventory import Contact
from llmgw_core.errors import ConnectRefused, SpecError
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.restarting import plan_again, restart_engine
from llmgw_core.fleet.transport import Channel
from tests.support.agents import agent_home, make_rank

LAUNCH_ID = "cafe0001" + "0" * 24
DEADLINE_S = 40.0


@pytest.mark.slow
async def test_an_engine_comes_back_under_a_new_id_and_the_old_one_is_over(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        async with Fleet([Target("n1", env=home.env)]) as fleet, asyncio.timeout(DEADLINE_S):
            await fleet.settle(DEADLINE_S)
            old = await fleet.client("n1").launch("k1", make_rank(), {})
            (new,) = await restart_engine(fleet, [("n1", old.id)], LAUNCH_ID, os.environ)
            states = {item.id: item.state for item in await fleet.client("n1").engines()}
            again = await fleet.client("n1").read_plan(new.id)
            await fleet.client("n1").stop("k9", new.id, 0.0)

    assert new.id == "counter-cafe0001"
    assert states[old.id] is EngineState.STOPPED
    assert not states[new.id].is_over
    assert again.argv == make_rank().argv


@pytest.mark.slow
async def test_a_secret_that_is_not_set_here_stops_nothing(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        async with Fleet([Target("n1", env=home.env)]) as fleet, asyncio.timeout(DEADLINE_S):
            await fleet.settle(DEADLINE_S)
            rank = make_rank(env_from=("LLMGW_TEST_TOKEN",))
            old = await fleet.client("n1").launch("k1", rank, {"LLMGW_TEST_TOKEN": "x"})
            with pytest.raises(SpecError):
                await restart_engine(fleet, [("n1", old.id)], LAUNCH_ID, {})
            (status,) = await fleet.client("n1").engines()
            await fleet.client("n1").stop("k9", old.id, 0.0)

    assert not status.state.is_over
    assert status.state is not EngineState.STOPPING


def test_ranks_of_a_gang_keep_their_order_and_number() -> None:
    plans = [make_rank(name="big", rank=rank, ranks=2) for rank in (1, 0)]

    again = plan_again(plans, [("n2", "b"), ("n1", "a")], LAUNCH_ID)

    assert [(rank.node, rank.engine_id) for rank in again.ranks] == [
        ("n1", "big-cafe0001-r0"),
        ("n2", "big-cafe0001-r1"),
    ]


class Refusing:
    """A way to a node that is refused, and counts how often it was tried."""

    tries = 0

    async def open_shell(self) -> Channel:
        Refusing.tries += 1
        raise ConnectRefused("nobody listens")

    async def close(self) -> None:
        pass


async def test_a_node_in_its_pause_is_tried_at_once_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llmgw_core.fleet.links.RETRY_MIN_S", 3600.0)
    fleet = Fleet([Target("n1", address="n1")], connect=lambda _: Refusing(), rng=random.Random(1))  # noqa: S311 - pauses
    async with fleet, asyncio.timeout(DEADLINE_S):
        snapshot = await fleet.settle(DEADLINE_S)
        first = Refusing.tries
        fleet.retry_now("n1")
        async for _ in fleet.snapshots():
            if Refusing.tries > first:
                break

    assert snapshot.nodes[0].contact is Contact.UNREACHABLE
    assert (first, Refusing.tries) == (1, 2)
