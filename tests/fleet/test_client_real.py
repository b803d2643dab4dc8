"""The whole way by real parts: shell, bootstrap, daemon, shim, engine, and back."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw_core.agent.procfs import read_stat
from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.findings import has_errors
from llmgw_core.errors import ConnectionDropped, EngineNotFound, ExecutableMissing
from llmgw_core.fleet.bootstrap import bootstrap
from llmgw_core.fleet.bundle import build_bundle
from llmgw_core.fleet.client import AgentClient
from llmgw_core.fleet.local import LocalTransport
from tests.support.agents import AgentHome, agent_home, make_rank
from tests.support.models import LLAMA, write_model

pytestmark = pytest.mark.slow
DEADLINE_S = 20.0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AgentHome]:
    with agent_home(tmp_path) as made:
        yield made


@asynccontextmanager
async def console(home: AgentHome) -> AsyncIterator[AgentClient]:
    """A console that came and goes."""
    transport = LocalTransport(home.env)
    bundle = build_bundle()
    try:
        channel = await bootstrap(await transport.open_shell(), bundle, sys.executable, (), "here")
        client = AgentClient(channel, "here", bundle.hash)
        await client.start()
        yield client
        await client.close()
    finally:
        await transport.close()


async def until(client: AgentClient, state: EngineState) -> EngineStatus:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            for engine in await client.engines():
                if engine.state is state:
                    return engine
            await asyncio.sleep(0.05)


async def read_text(client: AgentClient, engine: str, at_least: int) -> str:
    text, offset = "", 0
    async with asyncio.timeout(DEADLINE_S):
        while len(text) < at_least:
            chunk = await client.read_log(engine, offset, 65536)
            text, offset = text + chunk.data, chunk.next_offset
            await asyncio.sleep(0.05)
    return text


async def test_engine_is_launched_read_left_alone_found_again_and_stopped(home: AgentHome) -> None:
    rank = make_rank()
    async with console(home) as first:
        findings = await first.preflight(rank)
        started = await first.launch("k1", rank, {})
        again = await first.launch("k1", rank, {})
        begin = await read_text(first, started.id, 100)

    async with console(home) as second:
        (found,) = await second.engines()
        node = await second.inventory(0.0)
        launched = await second.read_plan("counter")
        more = await read_text(second, started.id, len(begin) + 50)
        await second.stop("k2", "counter", 2.0)
        ended = await until(second, EngineState.STOPPED)
        await second.forget("k3", started.id)
        left = await second.engines()

    assert not has_errors(findings)
    assert started.id == again.id == found.id
    assert [engine.pid for engine in node.engines] == [started.pid]
    assert launched == rank
    assert more.startswith(begin)
    assert begin.startswith("counter starts\nline 000001\n")
    assert ended.exit is not None
    assert ended.exit.reason == "stopped"
    assert left == ()
    assert started.pid is not None
    assert read_stat(started.pid) is None


async def test_model_is_read_where_it_lies(home: AgentHome, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", LLAMA, said=141_107_412_992)

    async with console(home) as client:
        facts = await client.launch_facts(make_rank(model=str(model)))
        nowhere = await client.launch_facts(make_rank(model="org/none"))

    assert facts.model is not None
    assert facts.model.weight_bytes == 141_107_412_992
    assert facts.model.shape is not None
    assert facts.model.shape.architecture == "LlamaForCausalLM"
    assert nowhere.model is None


async def test_refusal_of_the_node_keeps_its_kind(home: AgentHome) -> None:
    async with console(home) as client:
        with pytest.raises(ExecutableMissing) as caught:
            await client.launch("k", make_rank(argv=("/nonexistent/vllm", "serve")), {})
        with pytest.raises(EngineNotFound):
            await client.stop("k", "nobody", None)

        assert caught.value.node == "here"
        assert await client.engines() == ()


async def test_watch_tells_of_an_engine_that_another_console_launched(home: AgentHome) -> None:
    async with console(home) as watching, console(home) as launching:
        states = watching.watch(1.0)
        before = await anext(states)
        await launching.launch("k", make_rank(), {})
        async with asyncio.timeout(DEADLINE_S):
            node = await anext(states)
            while not node.engines:
                node = await anext(states)

        assert before.engines == ()
        assert node.engines[0].name == "counter"


async def ask_until_it_fails(client: AgentClient) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            await client.engines()


async def test_daemon_that_is_killed_is_a_dropped_connection(home: AgentHome) -> None:
    async with console(home) as client:
        os.kill(client.hello.pid, signal.SIGKILL)

        with pytest.raises(ConnectionDropped, match="here: the connection to the agent went away"):
            await ask_until_it_fails(client)
