"""Two nodes with one rank each: what happens to one reaches the other with no console there. Real engines and sockets."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from llmgw_core.agent import gang_link
from llmgw_core.agent.supervisor import Supervisor
from llmgw_core.domain.engine import EngineState, EngineStatus
from llmgw_core.domain.launch import Gang, GangMember, RankPlan
from llmgw_core.errors import LaunchError
from tests.support.engines import Bench, open_bench, status_of, wait_until

KEY = "ab" * gang_link.KEY_BYTES
ADDRESSES = ("127.0.0.1", "127.0.0.2")


@dataclass
class Pair:
    """Two benches on two addresses, each with its rank of one launch."""

    benches: tuple[Bench, Bench]
    plans: tuple[RankPlan, RankPlan]
    supervisors: list[Supervisor]

    def launch(self) -> None:
        for number, (supervisor, plan) in enumerate(zip(self.supervisors, self.plans, strict=True)):
            supervisor.launch(f"k-{number}", plan, {}, KEY)

    def look(self) -> list[EngineStatus]:
        """Both ranks after one more tick each."""
        return [
            status_of(supervisor, plan.engine_id)
            for supervisor, plan in zip(self.supervisors, self.plans, strict=True)
        ]

    def await_both(self, claim: Callable[[EngineStatus], bool], what: str) -> list[EngineStatus]:
        seen: list[list[EngineStatus]] = []

        def arrived() -> bool:
            seen.append(self.look())
            return all(claim(status) for status in seen[-1])

        wait_until(arrived, what, 40.0)
        return seen[-1]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with open_bench(make(tmp_path / "a")) as first, open_bench(make(tmp_path / "b")) as second:
        gang = Gang(
            tuple(GangMember(f"n{i}", address) for i, address in enumerate(ADDRESSES, 1)),
            free_udp_port(),
        )
        plans = (
            first.plan(
                "--served=chat", engine_id="chat-00000001-r0", name="chat", served_model_name="chat",
                node="n1", rank=0, ranks=2, gang=gang,
            ),
            second.plan(
                engine_id="chat-00000001-r1", name="chat", node="n2", rank=1, ranks=2, gang=gang,
                port=None,
            ),
        )  # fmt: skip
        yield Pair((first, second), plans, [first.supervisor(), second.supervisor()])


def make(path: Path) -> Path:
    path.mkdir()
    return path


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("0.0.0.0", 0))  # noqa: S104 - free on both addresses
        return int(probe.getsockname()[1])


def is_ready(status: EngineStatus) -> bool:
    return status.ready


def test_head_alone_is_not_ready(pair: Pair) -> None:
    pair.supervisors[0].launch("k-0", pair.plans[0], {}, KEY)
    wait_until(
        lambda: bool(
            (found := status_of(pair.supervisors[0], pair.plans[0].engine_id).diagnosis)
            and found.code == "gang-rank-missing"
        ),
        "the head says who is missing",
    )
    assert status_of(pair.supervisors[0], pair.plans[0].engine_id).state is EngineState.LOADING

    pair.supervisors[1].launch("k-1", pair.plans[1], {}, KEY)
    pair.await_both(is_ready, "both ready")


def test_killed_follower_fails_the_head(pair: Pair) -> None:
    pair.launch()
    _, follower = pair.await_both(is_ready, "both ready")
    assert follower.pid is not None
    os.kill(follower.pid, signal.SIGKILL)

    head, _ = pair.await_both(lambda status: status.state is EngineState.FAILED, "both failed")

    assert head.diagnosis is not None
    assert head.diagnosis.code == "gang-rank-lost"
    assert "rank 1 on n2" in head.diagnosis.message
    assert pair.benches[0].processes() == []


def test_stopped_head_stops_the_follower(pair: Pair) -> None:
    pair.launch()
    pair.await_both(is_ready, "both ready")
    pair.supervisors[0].stop("s", pair.plans[0].engine_id, 1.0)

    pair.await_both(lambda status: status.state is EngineState.STOPPED, "both stopped")


def test_daemon_that_comes_back_hears_of_the_end(pair: Pair) -> None:
    pair.launch()
    head, _ = pair.await_both(is_ready, "both ready")
    pair.supervisors[1].close(5.0)  # nobody watches the follower for a while
    assert head.pid is not None
    os.kill(head.pid, signal.SIGKILL)
    wait_until(
        lambda: status_of(pair.supervisors[0], pair.plans[0].engine_id).state is EngineState.FAILED,
        "the head failed",
    )
    pair.supervisors[1] = pair.benches[1].supervisor()

    _, follower = pair.await_both(lambda status: status.state.is_over, "both over")
    assert follower.diagnosis is not None
    assert follower.diagnosis.code == "gang-rank-lost"


def test_silence_makes_unready_and_ends_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_link, "SILENT_AFTER_S", 2.0)
    pair.launch()
    pair.await_both(is_ready, "both ready")
    pair.supervisors[1].close(5.0)

    def is_unready() -> bool:
        head = status_of(pair.supervisors[0], pair.plans[0].engine_id)
        return head.state is EngineState.UNREADY and not head.ready

    wait_until(is_unready, "the head is unready")
    found = status_of(pair.supervisors[0], pair.plans[0].engine_id).diagnosis
    assert found is not None
    assert found.code == "gang-rank-silent"

    pair.supervisors[1] = pair.benches[1].supervisor()
    pair.await_both(is_ready, "ready again")


def test_rank_without_its_key_is_refused(pair: Pair) -> None:
    with pytest.raises(LaunchError, match="one rank of several"):
        pair.supervisors[0].launch("k", pair.plans[0], {})
    assert pair.supervisors[0].list() == ()


def test_what_a_killed_follower_left_is_ended_too(pair: Pair) -> None:
    pair.plans = (pair.plans[0], replace(pair.plans[1], argv=(*pair.plans[1].argv, "--worker")))
    pair.launch()
    _, follower = pair.await_both(is_ready, "both ready")
    assert follower.pid is not None
    os.kill(follower.pid, signal.SIGKILL)

    _, follower = pair.await_both(lambda status: status.state is EngineState.FAILED, "both failed")

    assert follower.diagnosis is not None
    assert follower.diagnosis.code == "killed"
    assert pair.benches[1].processes() == []
