"""The client against agents that answer wrongly, too much, or not at all: one clear error, no hang, no growth."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from llmgw_core.agent.protocol import PROTOCOL_MAX, PROTOCOL_MIN, Hello
from llmgw_core.agent.rpc import make_error, make_notification, make_result
from llmgw_core.domain.engine import LogChunk
from llmgw_core.domain.hardware import Gpu, Host
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.errors import (
    AgentTimeout,
    ConnectionDropped,
    LlmgwError,
    NodeError,
    PortTaken,
    ProtocolError,
)
from llmgw_core.fleet.client import AgentClient
from tests.support.agents import make_rank
from tests.support.channels import ScriptedChannel

HELLO = Hello((1, 1), "0.1.0", "", "h", "", "b", "p", 0, "root", "3.11.7", "/s", 1, "t")
Answer = Callable[[dict[str, Any]], Any]


def answering(method: str, result: object, hello: Hello = HELLO) -> Answer:
    """An agent that greets, and gives that result to that method."""

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] == "hello":
            return make_result(request["id"], to_jsonable(hello))
        if request["method"] in (method, "watch", "unwatch"):
            return make_result(request["id"], result if request["method"] == method else {})
        return None

    return answer


@asynccontextmanager
async def connected(
    answer: Answer, timeout_s: float = 5.0
) -> AsyncIterator[tuple[AgentClient, ScriptedChannel]]:
    channel = ScriptedChannel(answer)
    client = AgentClient(channel, "n07", timeout_s=timeout_s)
    await client.start()
    try:
        yield client, channel
    finally:
        await client.close()


async def test_start_returns_the_greeting() -> None:
    async with connected(answering("", None)) as (client, channel):
        assert client.hello == HELLO
        assert channel.requests[0]["params"]["protocol"] == [PROTOCOL_MIN, PROTOCOL_MAX]


async def test_agent_of_another_protocol_is_named_with_both_ranges() -> None:
    later = dataclasses.replace(HELLO, protocol=(7, 9), version="9.0")
    channel = ScriptedChannel(lambda m: make_result(m["id"], to_jsonable(later)))
    client = AgentClient(channel, "n07")

    with pytest.raises(ProtocolError, match=r"protocol 7 to 9, this llmgw 1 to 2.*llmgw 9"):
        await client.start()

    await client.close()


@pytest.mark.parametrize(
    ("result", "path"),
    [
        ({"name": "x", "gpus": [{"index": "0"}]}, "gpus.0.index"),
        ({"name": "x", "gpus": [{"index": 0, "memory_total_mib": True}]}, "memory_total_mib"),
        ({"name": "x", "host": {"load_1m": float("nan")}}, "JSON"),
        ({"name": "\ud800"}, "JSON"),
        (None, "the whole"),
        ([], "the whole"),
    ],
)
async def test_answer_that_does_not_fit_names_method_node_and_path(
    result: object, path: str
) -> None:
    async with connected(answering("inventory", result)) as (client, channel):
        with pytest.raises(ProtocolError) as caught:
            await client.inventory()

        assert caught.value.node == "n07"
        assert "inventory" in caught.value.what
        assert path in caught.value.why
        assert isinstance(client.failure, ProtocolError)
        assert channel.requests[-1]["method"] == "inventory"


async def test_what_a_newer_agent_tells_besides_is_left_out() -> None:
    told = {"name": "x", "aura": 1, "gpus": [{"index": 0, "soul": {"deep": []}}]}
    async with connected(answering("inventory", told)) as (client, _):
        assert await client.inventory() == Node(name="x", gpus=(Gpu(0),))


async def test_a_plan_with_something_unknown_is_refused_for_it_would_be_launched_without() -> None:
    rank = {**to_jsonable(make_rank()), "aura": 1}
    async with connected(answering("engine.plan", rank)) as (client, _):
        with pytest.raises(ProtocolError, match="aura"):
            await client.read_plan("chat")


@pytest.mark.parametrize(
    "rubbish",
    [
        pytest.param(b"Welcome to Ubuntu 24.04 LTS\n", id="a banner"),
        pytest.param(b"\xff\xff\xff\xff", id="a frame of 4 GiB"),
        pytest.param(b"\0\0\0\x04nope", id="no JSON"),
        pytest.param(b"\0\0\0\x04null", id="no object"),
        pytest.param(b"\0\0\0\x02{}", id="no JSON-RPC"),
        pytest.param(
            b'\0\0\0\x22{"jsonrpc":"2.0","id":1,"nope":{}}', id="neither result nor error"
        ),
    ],
)
@pytest.mark.faults
async def test_rubbish_fails_whoever_waits_and_whoever_comes(rubbish: bytes) -> None:
    channel = ScriptedChannel(lambda _: rubbish)
    client = AgentClient(channel, "n07")

    with pytest.raises(ProtocolError) as caught:
        await client.start()
    with pytest.raises(ProtocolError):
        await client.engines()

    assert caught.value.node == "n07"
    assert channel.is_closed
    await client.close()


@pytest.mark.parametrize("identifier", [99, -1, 0, "1", 1.5, [1]])
async def test_answer_to_something_not_asked_ends_the_connection(identifier: object) -> None:
    async with connected(answering("", None)) as (client, channel):
        channel.say({"jsonrpc": "2.0", "id": identifier, "result": {}})

        with pytest.raises(ProtocolError, match="not asked"):
            await client.engines()


async def test_answer_that_comes_too_late_is_let_go() -> None:
    async with connected(answering("engine.list", []), timeout_s=0.05) as (client, channel):
        with pytest.raises(AgentTimeout) as caught:
            await client.inventory()
        late = next(item for item in channel.requests if item["method"] == "inventory")
        channel.say(make_result(late["id"], {"name": "late"}))

        assert await client.engines() == ()
        assert caught.value.message.startswith("the agent did not answer inventory in 0.05 s")


async def test_agent_that_never_greets_is_a_timeout() -> None:
    client = AgentClient(ScriptedChannel(), "n07", timeout_s=0.05)

    with pytest.raises(AgentTimeout, match="hello"):
        await client.start()

    await client.close()


@pytest.mark.faults
async def test_flood_of_states_leaves_one() -> None:
    async with connected(answering("", None)) as (client, channel):
        states = client.watch(1.0)
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0)
        for number in range(3000):
            node = to_jsonable(Node(name=f"n{number}"))
            channel.say(make_notification("state", {"seq": number, "node": node}))
        first = await waiting
        await asyncio.sleep(0.05)

        last = first
        while last.name != "n2999":
            last = await anext(states)

        assert channel._inbox.empty()
        await states.aclose()  # type: ignore[attr-defined]  # an async generator behind the iterator
        assert channel.requests[-1]["method"] == "unwatch"


async def test_watch_ends_with_the_reason_when_the_connection_goes() -> None:
    async with connected(answering("", None)) as (client, channel):
        channel.stderr = b"packet_write_wait: Broken pipe"
        states = client.watch(1.0)
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0.01)
        channel.say(b"")

        with pytest.raises(ConnectionDropped, match="it ended; stderr: 'packet_write_wait"):
            await waiting


async def test_state_that_does_not_fit_is_an_error_of_that_node() -> None:
    async with connected(answering("", None)) as (client, channel):
        states = client.watch(1.0)
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0.01)
        channel.say(make_notification("state", {"seq": 1, "node": {"name": 5}}))

        with pytest.raises(ProtocolError, match="watch does not fit: name"):
            await waiting


def tell(number: int, **state: object) -> dict[str, Any]:
    return make_notification("state", {"seq": number, **state})


async def test_an_agent_that_can_is_asked_for_changes_and_these_are_put_on_what_is_known() -> None:
    able = dataclasses.replace(HELLO, protocol=(1, 2))
    async with connected(answering("", None, able)) as (client, channel):
        states = client.watch(1.0)
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0)
        channel.say(
            tell(1, node=to_jsonable(Node("n", driver_version="1", host=Host(cpu_count=8))))
        )
        channel.say(tell(2, changes={"host": {"load_1m": 2.5}}))
        channel.say(tell(3, changes={"driver_version": "2"}))
        state = await waiting
        while state.driver_version != "2":
            state = await anext(states)

        assert channel.requests[-1]["params"] == {"interval_s": 1.0, "deltas": True}
        assert state == Node("n", driver_version="2", host=Host(cpu_count=8, load_1m=2.5))


@pytest.mark.parametrize(
    ("number", "changes", "said"),
    [
        (3, {}, "changes of state 3, and 1 is known"),
        (None, {}, "changes of state None"),
        (2, {"host": 5}, "Node.host: expected an object of changes"),
        (2, {"driver_version": "\ud800"}, "Node.driver_version: it is no text"),
    ],
    ids=["one is missing", "no number", "no changes", "no text"],
)
async def test_changes_that_do_not_fit_end_the_connection(
    number: int | None, changes: object, said: str
) -> None:
    async with connected(answering("", None)) as (client, channel):
        states = client.watch(1.0)
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0)
        channel.say(tell(1, node=to_jsonable(Node("n"))))
        await waiting
        channel.say(make_notification("state", {"seq": number, "changes": changes}))

        with pytest.raises(ProtocolError, match=said):
            await anext(states)


async def test_error_of_the_node_arrives_as_what_it_was_with_our_name_for_the_node() -> None:
    error = PortTaken("port 8000 is taken", "pid 7", "choose another", node="somebody-else")

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["method"] == "hello":
            return make_result(request["id"], to_jsonable(HELLO))
        return make_error(request["id"], error)

    async with connected(answer) as (client, _):
        with pytest.raises(PortTaken) as caught:
            await client.stop("k", "e", None)

        assert (caught.value.why, caught.value.node) == ("pid 7", "n07")
        assert client.failure is None


async def test_error_about_the_connection_reaches_everybody() -> None:
    refused = make_error(None, NodeError("the state directory is full", "", "free some space"))
    channel = ScriptedChannel(lambda _: refused)
    client = AgentClient(channel, "n07")

    with pytest.raises(NodeError, match="n07: the state directory is full"):
        await client.start()

    await client.close()


async def test_error_without_data_is_still_an_error() -> None:
    channel = ScriptedChannel(
        lambda m: {"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32000, "message": "x"}}
    )
    client = AgentClient(channel, "n07")

    with pytest.raises(ProtocolError, match="an error without data"):
        await client.start()

    await client.close()


async def test_log_bytes_of_every_value_come_through() -> None:
    raw = bytes(range(256))
    chunk = LogChunk("e", 0, raw.decode("utf-8", "surrogateescape"), 256, 0, 256)

    async with connected(answering("log.read", to_jsonable(chunk))) as (client, _):
        read = await client.read_log("e", 0, 1000)

    assert read.data.encode("utf-8", "surrogateescape") == raw
    assert read == chunk


async def test_closing_tells_those_who_wait() -> None:
    channel = ScriptedChannel(answering("", None))
    client = AgentClient(channel, "n07")
    await client.start()
    waiting = asyncio.ensure_future(client.engines())
    await asyncio.sleep(0.01)

    await client.close()
    await client.close()

    with pytest.raises(ConnectionDropped, match="the console closed"):
        await waiting
    assert channel.is_closed


async def test_one_error_object_is_not_raised_twice() -> None:
    async with connected(answering("", None)) as (client, channel):
        channel.say(b"")
        errors: list[LlmgwError] = []
        for _ in range(2):
            with pytest.raises(ConnectionDropped) as caught:
                await client.engines()
            errors.append(caught.value)

        assert errors[0] is not errors[1]


async def test_agent_of_an_earlier_version_has_no_network_facts() -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] == "network.facts":
            return make_error(request["id"], ProtocolError("no method", "", ""))
        listed: dict[str, Any] | None = answering("engine.list", [])(request)
        return listed

    async with connected(answer) as (client, _):
        assert await client.network_facts() is None
        assert await client.engines() == ()


async def test_network_facts_that_do_not_fit_are_no_earlier_version() -> None:
    async with connected(answering("network.facts", {"interfaces": "eth0"})) as (client, _):
        with pytest.raises(ProtocolError, match=r"network\.facts"):
            await client.network_facts()
