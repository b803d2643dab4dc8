"""The feed without a screen: what it asks of a fleet, and what it says of the answers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from textual.message import Message

from llmgw_core.domain.engine import EngineKind, LogChunk
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.errors import EngineNotFound, PlanRefused, PortTaken, Unreachable
from llmgw_tui import feed as feed_module
from llmgw_tui.feed import LOG_CHUNK_BYTES, LOG_START_BYTES, Feed
from llmgw_tui.messages import (
    ActAccepted,
    ActionFailed,
    LaunchFailed,
    LaunchSucceeded,
    LogArrived,
    LogInterrupted,
    PlanArrived,
    SnapshotArrived,
)
from tests.support.fleets import FakeClient, FakeFleet, make_cluster, make_plan

REQUEST = LaunchRequest("demo", EngineKind.VLLM, "/models/demo")
DEADLINE_SECONDS = 5.0


class Inbox:
    """Collects what the feed posts, and lets a test wait for it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._news = asyncio.Event()

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self._news.set()

    async def wait_for(self, kind: type[Message], count: int = 1) -> list[Message]:
        """All messages so far, once there are `count` of this kind."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while sum(isinstance(item, kind) for item in self.messages) < count:
                self._news.clear()
                await self._news.wait()
        return self.messages


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for the pauses an operator would not notice."""
    for name in ("RETRY_SECONDS", "LOG_IDLE_SECONDS", "LOG_BREATH_SECONDS"):
        monkeypatch.setattr(feed_module, name, 0.001)


async def run_until(fleet: FakeFleet, kind: type[Message], count: int, inbox: Inbox) -> None:
    """Follow the log of engine e on n1 until so many messages of a kind have come."""
    task = asyncio.create_task(Feed(fleet, fleet).follow_log("n1", "e", None, inbox))
    await inbox.wait_for(kind, count)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def log_of(inbox: Inbox) -> bytes:
    chunks = [item.chunk for item in inbox.messages if isinstance(item, LogArrived)]
    return b"".join(chunk.data.encode("utf-8", "surrogateescape") for chunk in chunks)


async def test_every_picture_is_posted() -> None:
    fleet, inbox = FakeFleet(make_cluster()), Inbox()

    task = asyncio.create_task(Feed(fleet, fleet).watch(inbox))
    await inbox.wait_for(SnapshotArrived)
    fleet.push(FleetSnapshot(1.0))
    messages = await inbox.wait_for(SnapshotArrived, 2)
    task.cancel()

    assert isinstance(messages[-1], SnapshotArrived)
    assert messages[-1].snapshot.taken_at == 1.0


async def test_a_stream_that_breaks_is_said_so_and_taken_up_again() -> None:
    class Broken(FakeFleet):
        async def snapshots(self) -> AsyncIterator[FleetSnapshot]:
            self._fail_once()
            async for snapshot in super().snapshots():
                yield snapshot

    fleet, inbox = Broken(make_cluster()), Inbox()
    fleet.error = Unreachable("broken")

    task = asyncio.create_task(Feed(fleet, fleet).watch(inbox))
    messages = await inbox.wait_for(SnapshotArrived)
    task.cancel()

    assert isinstance(messages[0], ActionFailed)


def test_a_later_picture_replaces_one_still_waiting() -> None:
    assert SnapshotArrived(FleetSnapshot(2.0)).can_replace(SnapshotArrived(FleetSnapshot(1.0)))


async def test_each_plan_has_a_launch_id_of_its_own() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    feed = Feed(fleet, fleet)

    await feed.plan(1, REQUEST, inbox)
    await feed.plan(2, REQUEST, inbox)
    ids = {
        item.plan.launch_id
        for item in inbox.messages
        if isinstance(item, PlanArrived) and item.plan
    }

    assert len(ids) == 2
    assert all(len(text) == 32 for text in ids)


async def test_a_plan_that_cannot_be_made_comes_back_as_its_error() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    fleet.error = PlanRefused("no node fits")

    await Feed(fleet, fleet).plan(7, REQUEST, inbox)

    answer = inbox.messages[0]
    assert isinstance(answer, PlanArrived)
    assert (answer.number, answer.plan, answer.error.code if answer.error else "") == (
        7,
        None,
        "plan-refused",
    )


async def test_the_plan_that_was_shown_is_the_one_that_is_launched() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    plan = make_plan(REQUEST, "a" * 32)

    await Feed(fleet, fleet).launch(plan, inbox)

    assert fleet.launched == [plan]
    assert isinstance(inbox.messages[0], LaunchSucceeded)


async def test_a_launch_that_is_refused_comes_back_as_its_error() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    fleet.error = PortTaken("port 8000 is bound")

    await Feed(fleet, fleet).launch(make_plan(REQUEST, "a" * 32), inbox)

    assert isinstance(inbox.messages[0], LaunchFailed)


async def test_a_stop_names_node_and_engine() -> None:
    fleet, inbox = FakeFleet(), Inbox()

    await Feed(fleet, fleet).act("stop", [("n1", "e-1")], inbox)

    assert fleet.stopped == [("n1", "e-1", None)]
    assert isinstance(inbox.messages[0], ActAccepted)


async def test_a_stop_that_fails_comes_back_as_its_error() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    fleet.error = EngineNotFound("no engine e-1")

    await Feed(fleet, fleet).act("stop", [("n1", "e-1")], inbox)

    failed = inbox.messages[0]
    assert isinstance(failed, ActionFailed)
    assert failed.action == "stop e-1 on n1"


async def test_of_several_stops_one_that_fails_keeps_no_other() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    fleet.error = EngineNotFound("no engine e-1")

    await Feed(fleet, fleet).act("stop", [("n1", "e-1"), ("n2", "e-2")], inbox)

    assert [name for _, name, _ in fleet.stopped] == ["e-1", "e-2"]
    assert {type(item) for item in inbox.messages} == {ActionFailed, ActAccepted}


async def test_a_log_is_read_from_near_its_end_in_pieces() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    fleet.logs["n1", "e"] = bytes(range(256)) * 2048

    await run_until(fleet, LogArrived, LOG_START_BYTES // LOG_CHUNK_BYTES, inbox)

    assert fleet.log_reads[0] == ("n1", "e", -LOG_START_BYTES)
    assert log_of(inbox) == fleet.logs["n1", "e"][-LOG_START_BYTES:]


async def test_a_lost_connection_loses_and_repeats_nothing_of_a_log() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    fleet.logs["n1", "e"] = b"one\n"
    task = asyncio.create_task(Feed(fleet, fleet).follow_log("n1", "e", None, inbox))
    await inbox.wait_for(LogArrived)

    fleet.error = Unreachable("dropped")
    await inbox.wait_for(LogInterrupted)
    fleet.logs["n1", "e"] += b"two\n"
    while log_of(inbox) != b"one\ntwo\n":
        await inbox.wait_for(LogArrived, 1 + sum(isinstance(m, LogArrived) for m in inbox.messages))
    task.cancel()

    assert log_of(inbox) == b"one\ntwo\n"


async def test_following_goes_on_from_the_offset_asked_for() -> None:
    fleet, inbox = FakeFleet(), Inbox()
    fleet.logs["n1", "e"] = b"one\ntwo\n"

    task = asyncio.create_task(Feed(fleet, fleet).follow_log("n1", "e", 4, inbox))
    await inbox.wait_for(LogArrived)
    task.cancel()

    assert log_of(inbox) == b"two\n"


async def test_an_engine_that_is_gone_ends_the_following() -> None:
    fleet, inbox = FakeFleet(), Inbox()

    await asyncio.wait_for(Feed(fleet, fleet).follow_log("n1", "e", None, inbox), DEADLINE_SECONDS)

    assert isinstance(inbox.messages[0], LogInterrupted)


async def test_the_end_of_a_log_ends_the_following(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, inbox = FakeFleet(), Inbox()
    end = LogChunk("e", 0, "bye\n", 4, 0, 4, ended=True)

    async def read_log(self: FakeClient, engine: str, offset: int, max_bytes: int) -> LogChunk:
        return end

    monkeypatch.setattr(FakeClient, "read_log", read_log)
    await asyncio.wait_for(Feed(fleet, fleet).follow_log("n1", "e", None, inbox), DEADLINE_SECONDS)

    assert [type(item) for item in inbox.messages] == [LogArrived]
