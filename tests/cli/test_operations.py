"""What is done with a fleet when a node's answers are the awkward ones."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.inventory import Contact, FleetSnapshot, Node, NodeView
from llmgw_core.domain.launch import LaunchPlan, RankPlan
from llmgw_core.domain.model import LaunchFacts, ModelFacts
from llmgw_core.errors import (
    ConnectionDropped,
    ConnectRefused,
    EngineNotFound,
    GpuTaken,
    LlmgwError,
    PlanRefused,
    ProtocolError,
    SpecError,
    UsageError,
)
from llmgw_core.fleet import operations
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.planning.overrides import add_findings
from tests.support.plans import LAUNCH_ID, codes, engine, four, gpu, node, planned, request


class FakeNode:
    """One node's client; notes what it is asked."""

    def __init__(self, *errors: LlmgwError, busy_ports: tuple[int, ...] = ()) -> None:
        self.errors = list(errors)
        self.busy_ports = busy_ports
        self.facts: LaunchFacts | None = None
        self.launched: list[tuple[str, Mapping[str, str]]] = []
        self.gang_keys: list[str] = []
        self.stopped: list[str] = []

    async def preflight(self, rank: RankPlan) -> tuple[Finding, ...]:
        """Say so when the port is a stranger's."""
        if rank.port in self.busy_ports:
            return (Finding("port-taken", Severity.ERROR, "port", "a stranger's", "", rank.node),)
        return ()

    async def launch_facts(self, rank: RankPlan) -> LaunchFacts:
        """Say what is known; an older agent has no such method."""
        if self.facts is None:
            raise ProtocolError("the agent has no method 'engine.facts'")
        return self.facts

    async def launch(
        self, key: str, rank: RankPlan, secrets: Mapping[str, str], gang_key: str
    ) -> EngineStatus:
        """Raise the next error, if there is one."""
        self.launched.append((key, secrets))
        self.gang_keys.append(gang_key)
        if self.errors:
            raise self.errors.pop(0)
        return engine(rank.name)

    async def stop(self, key: str, engine_id: str, grace_seconds: float | None) -> EngineStatus:
        """Note it."""
        del key, grace_seconds
        self.stopped.append(engine_id)
        return engine(engine_id)


class FakeFleet:
    """A fleet of one node."""

    targets = ()

    def __init__(self, client: FakeNode | LlmgwError, *nodes: Node) -> None:
        self._client = client
        self._nodes = nodes or (four("n1"),)

    def snapshot(self) -> FleetSnapshot:
        """The nodes, all of them connected."""
        return snapshot_of(*self._nodes)

    def client(self, _: str) -> FakeNode:
        """The client, or why there is none."""
        if isinstance(self._client, LlmgwError):
            raise self._client
        return self._client


def snapshot_of(*nodes: Node) -> FleetSnapshot:
    return FleetSnapshot(0.0, tuple(NodeView(item, Contact.CONNECTED) for item in nodes))


def as_fleet(fake: FakeFleet) -> Fleet:
    return cast(Fleet, fake)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "RETRY_PAUSE_S", 0.0)


async def test_connection_lost_during_a_launch_is_asked_again_by_the_same_key() -> None:
    client = FakeNode(ConnectionDropped("gone"))

    await operations.launch_plan(as_fleet(FakeFleet(client)), planned(request()), {})

    assert [key for key, _ in client.launched] == [f"{LAUNCH_ID}-0"] * 2


async def test_refusal_of_the_node_is_final() -> None:
    client = FakeNode(GpuTaken("GPU 0 is not free"))

    with pytest.raises(GpuTaken):
        await operations.launch_plan(as_fleet(FakeFleet(client)), planned(request()), {})

    assert len(client.launched) == 1


async def test_node_that_is_away_is_not_waited_for() -> None:
    fleet = FakeFleet(ConnectRefused("nobody listens", node="n1"))

    with pytest.raises(ConnectRefused):
        await operations.launch_plan(as_fleet(fleet), planned(request()), {})


async def test_plan_with_errors_is_not_started() -> None:
    client = FakeNode()

    with pytest.raises(PlanRefused, match="8000 is the port of other"):
        await operations.launch_plan(
            as_fleet(FakeFleet(client)),
            planned(request(port=8000, gpu_count=0), node("n1", engines=(engine("other"),))),
            {},
        )

    assert client.launched == []


async def test_secrets_travel_apart_from_the_plan() -> None:
    client = FakeNode()
    plan = planned(request(env_from=("HF_TOKEN",)))

    await operations.launch_plan(as_fleet(FakeFleet(client)), plan, {"HF_TOKEN": "x", "B": "y"})

    sent = dict(client.launched[0][1])
    assert len(sent.pop("VLLM_API_KEY")) >= 32  # made by llmgw
    assert sent == {"HF_TOKEN": "x"}


async def test_missing_secret_is_named_and_nothing_is_started() -> None:
    client = FakeNode()
    plan = planned(request(env_from=("HF_TOKEN",)))

    with pytest.raises(SpecError, match="HF_TOKEN"):
        await operations.launch_plan(as_fleet(FakeFleet(client)), plan, {})

    assert client.launched == []


async def test_port_of_a_stranger_is_passed_over_when_the_planner_chose_it() -> None:
    fleet = FakeFleet(FakeNode(busy_ports=(8000, 8001)))

    made = await operations.plan_launch(as_fleet(fleet), request(), LAUNCH_ID)

    assert made.ranks[0].port == 8002
    assert "port-taken" not in {finding.code for finding in made.findings}


async def test_port_of_a_stranger_is_an_error_when_the_operator_named_it() -> None:
    fleet = FakeFleet(FakeNode(busy_ports=(8000,)))

    made = await operations.plan_launch(as_fleet(fleet), request(port=8000), LAUNCH_ID)

    assert [item.code for item in made.findings if item.severity is Severity.ERROR] == [
        "port-taken"
    ]


def test_two_things_of_one_kind_on_a_node_are_both_told_and_the_same_thing_once() -> None:
    held = node("n1", gpu(0, available=False, engine="a"), gpu(1))
    plan = planned(request(gpus=(0, 1), tensor_parallel=2), held)
    by_node = [
        Finding("gpu-taken", Severity.ERROR, f"GPU {index}", "not free", "", "n1")
        for index in (0, 1)
    ]

    merged = add_findings(plan, by_node)

    assert sorted(item.subject for item in merged.findings) == ["GPU 1", "n1 GPU 0"]


def test_override_of_what_only_the_node_found_is_used() -> None:
    plan = planned(request(overrides=("gpu-unfit",)))
    late = Finding("gpu-unfit", Severity.ERROR, "GPU 0", "it is hot", "", "n1")

    merged = add_findings(plan, [late])

    assert codes(merged) == {"gpu-unfit": "warning"}


async def test_what_the_node_knows_of_the_model_is_in_the_plan() -> None:
    client = FakeNode()
    client.facts = LaunchFacts(
        ModelFacts("/m", torn_files=("a",), weight_files=1), "/m", {"vllm": "0.32.0"}
    )

    made = await operations.plan_launch(as_fleet(FakeFleet(client)), request(model="/m"), LAUNCH_ID)

    assert codes(made) == {"model-torn": "error"}
    assert made.versions == {"n1": "0.32.0"}


async def test_agent_that_cannot_tell_of_the_model_is_no_finding() -> None:
    made = await operations.plan_launch(as_fleet(FakeFleet(FakeNode())), request(), LAUNCH_ID)

    assert codes(made) == {}
    assert (made.memory, made.versions) == ((), {})


async def test_node_that_cannot_be_asked_is_a_finding() -> None:
    fleet = FakeFleet(ConnectRefused("nobody listens", "port 22", "is sshd up?"))

    made = await operations.plan_launch(as_fleet(fleet), request(), LAUNCH_ID)

    assert made.findings[0].code == "refused"
    assert made.findings[0].severity is Severity.ERROR


LIVING = engine("chat")
OVER = engine("chat", EngineState.FAILED)


@pytest.mark.parametrize("name", ["chat", "chat-00000001"])
def test_engine_is_found_by_name_and_by_id(name: str) -> None:
    assert operations.find_engine(snapshot_of(node("n1", engines=(LIVING,))), name) == (
        "n1",
        LIVING,
    )


def test_living_engine_is_meant_before_one_that_is_over() -> None:
    snapshot = snapshot_of(node("n1", engines=(OVER,)), node("n2", engines=(LIVING,)))

    assert operations.find_engine(snapshot, "chat") == ("n2", LIVING)


def test_name_on_two_nodes_asks_which() -> None:
    snapshot = snapshot_of(node("n1", engines=(LIVING,)), node("n2", engines=(LIVING,)))

    with pytest.raises(UsageError, match=r"n1, n2.*--node"):
        operations.find_engine(snapshot, "chat")

    assert operations.find_engine(snapshot, "chat", "n2")[0] == "n2"


def test_engine_not_found_names_silent_nodes_and_a_near_name() -> None:
    snapshot = snapshot_of(node("n1", engines=(LIVING,)), Node("n2", reachable=False))

    with pytest.raises(EngineNotFound) as caught:
        operations.find_engine(snapshot, "chta")

    assert "n2 did not answer" in caught.value.why
    assert "did you mean chat?" in caught.value.fix


class FakeGang:
    """Several nodes of which some refuse or are cut off."""

    targets = ()

    def __init__(self, **clients: FakeNode) -> None:
        self.clients = clients

    def client(self, node: str) -> FakeNode:
        """The client of that node."""
        return self.clients[node]


def two_ranks() -> LaunchPlan:
    made = planned(
        request(gpu_count=0, tensor_parallel=2, nodes=("n1", "n2")), node("n1"), node("n2")
    )
    assert len(made.ranks) == 2
    return made


async def test_ranks_get_one_key_that_only_they_know() -> None:
    gang = FakeGang(n1=FakeNode(), n2=FakeNode())

    await operations.launch_plan(cast(Fleet, gang), two_ranks(), {})
    await operations.launch_plan(cast(Fleet, gang), two_ranks(), {})

    keys = [client.gang_keys for client in gang.clients.values()]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 2
    assert len(keys[0][0]) == 64


async def test_one_refusal_stops_what_had_started() -> None:
    gang = FakeGang(n1=FakeNode(), n2=FakeNode(GpuTaken("GPU 0 is not free")))

    with pytest.raises(GpuTaken):
        await operations.launch_plan(cast(Fleet, gang), two_ranks(), {})

    assert gang.clients["n1"].stopped == ["chat-01234567-r0"]
    assert gang.clients["n2"].stopped == []


async def test_rank_whose_answer_was_lost_is_stopped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "RETRY_S", 0.0)
    gang = FakeGang(n1=FakeNode(), n2=FakeNode(ConnectionDropped("gone")))

    with pytest.raises(ConnectionDropped):
        await operations.launch_plan(cast(Fleet, gang), two_ranks(), {})

    assert gang.clients["n1"].stopped == ["chat-01234567-r0"]
    assert gang.clients["n2"].stopped == ["chat-01234567-r1"]


def test_a_gang_is_found_whole_by_its_name_and_a_rank_by_its_node_or_id() -> None:
    ranks = {name: rank_status(number) for number, name in enumerate(("n1", "n2"))}
    snapshot = snapshot_of(*(node(name, engines=(status,)) for name, status in ranks.items()))

    def found(*words: str) -> list[str]:
        return [name for name, _ in operations.find_ranks(snapshot, *words)]

    assert found("chat") == ["n1", "n2"]
    assert found("chat-00000001") == ["n1", "n2"]
    assert found("chat-00000001-r1") == ["n2"]
    assert found("chat", "n2") == ["n2"]
    assert operations.find_engine(snapshot, "chat")[0] == "n1"


def test_a_gang_of_which_a_rank_ended_is_still_one() -> None:
    ended = rank_status(0, EngineState.FAILED)
    snapshot = snapshot_of(node("n1", engines=(ended,)), node("n2", engines=(rank_status(1),)))

    assert [name for name, _ in operations.find_ranks(snapshot, "chat")] == ["n1", "n2"]


def rank_status(number: int, state: EngineState = EngineState.READY) -> EngineStatus:
    return replace(engine("chat", state), id=f"chat-00000001-r{number}", rank=number, ranks=2)
