"""Watchers: the latest state for each, one reading for all, and no harm from one that does not read."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.agent import connection as module
from llmgw_core.agent import sampler as sampling
from llmgw_core.agent.connection import Connection
from llmgw_core.agent.event_log import EventLog
from llmgw_core.agent.rpc import Request
from llmgw_core.agent.sampler import Sampler, Watcher, clamp_interval
from llmgw_core.domain.hardware import Host
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.wire import to_jsonable
from tests.support.agents import AgentHome, RawClient, agent_home, hello_params, make_rank


class Reader:
    """A node that the test changes, and a count of how often it was read."""

    def __init__(self) -> None:
        self.node = Node(name="n")
        self.reads = 0

    async def read(self, max_age_s: float) -> Node:
        self.reads += 1
        return self.node


class DaemonStandIn:
    """What a connection needs of its daemon."""

    def __init__(self, sampler: Sampler, log: EventLog) -> None:
        self.sampler = sampler
        self.log = log

    async def answer(self, request: Request) -> Any:
        return "x" * int(request.params.get("length", 0))

    def end(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MIN_INTERVAL_S", 0.02)
    monkeypatch.setattr(sampling, "QUIET_INTERVAL_S", 0.02)
    monkeypatch.setattr(sampling, "HEARTBEAT_S", 0.3)


@asynccontextmanager
async def running(sampler: Sampler) -> AsyncIterator[None]:
    task = asyncio.ensure_future(sampler.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def collect(watcher: Watcher, seconds: float) -> None:
    task = asyncio.ensure_future(watcher.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_watcher_of_changes_is_told_the_node_once_and_then_what_differs() -> None:
    states: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(message: dict[str, Any]) -> None:
        states.put_nowait(message["params"])

    watcher = Watcher(0.0, send, deltas=True)
    watcher.interval_s = 0.0
    task = asyncio.ensure_future(watcher.run())
    node = Node("n", host=Host(cpu_count=8))
    async with asyncio.timeout(10):
        watcher.offer(node, has_changed=True)
        first = await states.get()
        watcher.offer(dataclasses.replace(node, host=Host(cpu_count=9)), has_changed=True)
        second = await states.get()
        watcher.offer(node, has_changed=True)
        third = await states.get()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert first == {"seq": 1, "node": to_jsonable(node)}
    assert second == {"seq": 2, "changes": {"host": {"cpu_count": 9}}}
    assert third == {"seq": 3, "changes": {"host": {"cpu_count": 8}}}


@pytest.mark.slow
async def test_unchanged_node_is_told_as_a_heartbeat_only(tmp_path: Path, quick: None) -> None:
    reader, states = Reader(), []
    sampler = Sampler(reader.read, EventLog(tmp_path / "log"))

    async def send(message: dict[str, Any]) -> None:
        states.append(message["params"]["seq"])
        reader.node = dataclasses.replace(reader.node, host=Host(uptime_seconds=len(states)))

    watcher = Watcher(0.0, send)
    async with running(sampler):
        sampler.add(watcher)
        await collect(watcher, 0.8)

    assert 2 <= len(states) <= 4
    assert reader.reads > 5


@pytest.mark.slow
async def test_change_is_told_at_once_and_one_reading_serves_all(
    tmp_path: Path, quick: None
) -> None:
    reader = Reader()
    sampler = Sampler(reader.read, EventLog(tmp_path / "log"))
    seen: dict[int, list[str]] = {0: [], 1: []}

    def sender(number: int) -> Any:
        async def send(message: dict[str, Any]) -> None:
            seen[number].append(message["params"]["node"]["name"])
            reader.node = Node(name="changed")

        return send

    watchers = [Watcher(0.0, sender(number)) for number in seen]
    async with running(sampler):
        for watcher in watchers:
            sampler.add(watcher)
        await asyncio.gather(*(collect(watcher, 0.2) for watcher in watchers))

    assert seen == {0: ["n", "changed"], 1: ["n", "changed"]}
    assert reader.reads <= 12


async def test_watcher_that_is_slow_gets_the_latest_and_no_queue(quick: None) -> None:
    seen: list[str] = []
    gate = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        seen.append(message["params"]["node"]["name"])
        await gate.wait()

    watcher = Watcher(0.0, send)
    task = asyncio.ensure_future(watcher.run())
    for number in range(100):
        watcher.offer(Node(name=f"n{number}"), has_changed=True)
        await asyncio.sleep(0)
    gate.set()
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert seen in (["n0", "n99"], ["n1", "n99"])


async def test_reading_that_fails_is_logged_and_tried_again(tmp_path: Path, quick: None) -> None:
    calls = []

    async def read(max_age_s: float) -> Node:
        calls.append(max_age_s)
        if len(calls) == 1:
            raise RuntimeError("driver on fire")
        return Node(name="n")

    seen = []

    async def send(message: dict[str, Any]) -> None:
        seen.append(message)

    sampler = Sampler(read, EventLog(tmp_path / "log"))
    watcher = Watcher(0.0, send)
    async with running(sampler):
        sampler.add(watcher)
        await collect(watcher, 0.15)

    assert len(seen) == 1
    assert (
        'sample-failed kind=RuntimeError error="driver on fire"' in (tmp_path / "log").read_text()
    )


@pytest.mark.parametrize(("asked", "given"), [(0.0, 1.0), (-5.0, 1.0), (2.0, 2.0), (1e9, 3600.0)])
def test_interval_has_bounds(asked: float, given: float) -> None:
    assert clamp_interval(asked) == given


@pytest.mark.slow
@pytest.mark.faults
async def test_client_that_takes_nothing_is_dropped_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DRAIN_TIMEOUT_S", 0.3)
    log = EventLog(tmp_path / "log")
    host = DaemonStandIn(Sampler(Reader().read, log), log)
    ended = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Connection(host, reader, writer, 1).serve()
        ended.set()

    server = await asyncio.start_unix_server(accept, str(tmp_path / "s"))
    _, greedy = await asyncio.open_unix_connection(str(tmp_path / "s"))
    body = b'{"jsonrpc":"2.0","id":%d,"method":"x","params":{"length":900000}}'
    for number in range(1, 70):
        frame = body % number
        greedy.write(len(frame).to_bytes(4, "big") + frame)

    await asyncio.wait_for(ended.wait(), 10)

    assert "client-went" in (tmp_path / "log").read_text("utf-8")
    greedy.close()
    server.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AgentHome]:
    with agent_home(tmp_path) as made:
        yield made


def next_state(client: RawClient) -> dict[str, Any]:
    while True:
        message = client.receive()
        assert message is not None
        if message.get("method") == "state":
            params = message["params"]
            assert isinstance(params, dict)
            return params


@pytest.mark.slow
def test_watcher_sees_an_engine_come(home: AgentHome) -> None:
    home.start_daemon()
    watching, other = home.connect(), home.connect()
    watching.result("watch", interval_s=1.0)

    first = next_state(watching)
    other.result("engine.launch", key="k", rank=to_jsonable(make_rank()), secrets={})
    state = next_state(watching)
    while not state["node"]["engines"]:
        state = next_state(watching)

    assert (first["seq"], first["node"]["engines"]) == (1, [])
    assert state["node"]["engines"][0]["name"] == "counter"
    assert watching.result("unwatch") == {}
    assert watching.result("hello", **hello_params())["uid"] >= 0
    watching.close()
    other.close()
