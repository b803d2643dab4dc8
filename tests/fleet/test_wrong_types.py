"""Every field of every answer with a value of the wrong type: the answer is refused or understood, and nothing else happens."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from llmgw_core.agent.rpc import make_result
from llmgw_core.domain.engine import EngineExit, EngineStatus, LogChunk
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.launch import RankPlan
from llmgw_core.domain.model import LaunchFacts
from llmgw_core.domain.network import NodeNetwork
from llmgw_core.domain.reach import FabricConnection, FabricListener
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.errors import NodeError
from llmgw_core.fleet.client import AgentClient
from tests.support.agents import make_rank
from tests.support.channels import ScriptedChannel
from tests.support.fleets import make_engine
from tests.support.hostile_values import full_node, leaves, with_value

MAX_CHARS = 2000
WRONG: tuple[Any, ...] = (None, True, -1, 1e18, "x", [], {}, [[]], {"a": {"b": None}})
HELLO = {
    "protocol": [1, 1],
    "version": "0.1.0",
    "bundle": "",
    "hostname": "h",
    "machine_id": "",
    "boot_id": "b",
    "pid_namespace": "p",
    "uid": 0,
    "user": "root",
    "python": "3.11.7",
    "state_dir": "/s",
    "pid": 1,
    "started_at": "t",
}
ENGINE: EngineStatus = make_engine("chat", exit=EngineExit())
RANK: RankPlan = make_rank("chat")
Ask = Callable[[AgentClient], Awaitable[object]]
ANSWERS: dict[str, tuple[object, Ask]] = {
    "inventory": (full_node(), lambda client: client.inventory()),
    "engine.list": ((ENGINE,), lambda client: client.engines()),
    "engine.stop": (ENGINE, lambda client: client.stop("k", "chat", None)),
    "engine.launch": (ENGINE, lambda client: client.launch("k", RANK, {})),
    "engine.plan": (RANK, lambda client: client.read_plan("chat")),
    "engine.preflight": (
        (Finding("c", Severity.ERROR, "s", "w"),),
        lambda client: client.preflight(RANK),
    ),
    "engine.facts": (LaunchFacts(), lambda client: client.launch_facts(RANK)),
    "log.read": (LogChunk("e", 0, "x", 1, 0, 1), lambda client: client.read_log("e", 0, 10)),
    "network.facts": (NodeNetwork(), lambda client: client.network_facts()),
    "fabric.listen": (FabricListener(), lambda client: client.fabric_listen("t", None, None)),
    "fabric.connect": (
        FabricConnection(True),
        lambda client: client.fabric_connect("t", "p", 1, None, None),
    ),
}


async def ask_once(result: object, ask: Ask) -> NodeError | None:
    """The error of one connection with that answer; None: it was understood."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return make_result(request["id"], HELLO if request["method"] == "hello" else result)

    client = AgentClient(ScriptedChannel(answer), "n07", timeout_s=5)
    await client.start()
    try:
        await ask(client)
    except NodeError as error:
        return error
    finally:
        await client.close()
    return None


@pytest.mark.parametrize("method", ANSWERS)
async def test_wrong_types_in_every_field_are_refused_in_words(method: str) -> None:
    good, ask = ANSWERS[method]
    tree = to_jsonable(good)
    places = [
        (),
        *(path[:length] for path, _ in leaves(tree) for length in range(1, len(path) + 1)),
    ]

    for path in dict.fromkeys(places):
        for wrong in WRONG:
            error = await ask_once(with_value(tree, path, wrong), ask)
            assert error is None or (error.node == "n07" and len(str(error)) < MAX_CHARS)


async def test_the_good_answers_are_understood() -> None:
    for good, ask in ANSWERS.values():

        def answer(request: dict[str, Any], good: object = good) -> dict[str, Any]:
            hello = request["method"] == "hello"
            return make_result(request["id"], HELLO if hello else to_jsonable(good))

        client = AgentClient(ScriptedChannel(answer), "n07", timeout_s=5)
        await client.start()
        assert await ask(client) == good
        await client.close()
