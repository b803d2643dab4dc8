"""A stop ends everything of an engine, after the grace period and never before, and says so only when it is true."""

import os
import signal
import time

import pytest

from llmgw_core.agent import stopping
from llmgw_core.domain.engine import EngineState
from llmgw_core.errors import EngineNotFound, StopIncomplete
from tests.support.engines import Bench, status_of, wait_for_state, wait_until


def has_log(bench: Bench, engine_id: str, text: str) -> bool:
    return text in bench.supervisors[-1].read_log(engine_id, 0, 1 << 20).data


@pytest.mark.slow
def test_stop_of_a_ready_engine_leaves_no_process(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan()
    supervisor.launch("k", plan, {})
    wait_for_state(supervisor, plan.engine_id, EngineState.READY)

    stopping_now = supervisor.stop("s", "tiny", None)
    stopped = wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)

    assert stopping_now.state is EngineState.STOPPING
    assert stopped.exit is not None
    assert (stopped.exit.code, stopped.exit.reason) == (0, "stopped")
    assert stopped.diagnosis is None
    assert bench.processes() == []


@pytest.mark.slow
@pytest.mark.faults
def test_engine_that_ignores_sigterm_is_killed_after_the_grace_period(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--ignore-term", "--count=1")
    supervisor.launch("k", plan, {})
    wait_until(lambda: has_log(bench, plan.engine_id, "line"), "it runs")

    began = time.monotonic()
    supervisor.stop("s", plan.engine_id, 0.7)
    stopped = wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)

    assert time.monotonic() - began >= 0.7
    assert stopped.exit is not None
    assert stopped.exit.signal == signal.SIGKILL
    assert bench.processes() == []


@pytest.mark.slow
@pytest.mark.faults
def test_swallowed_first_sigterm_is_sent_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "SECOND_TERM_AFTER_S", 0.3)
    supervisor, plan = bench.supervisor(), bench.plan("--swallow-term", "--count=1")
    supervisor.launch("k", plan, {})
    wait_until(lambda: has_log(bench, plan.engine_id, "line"), "it runs")

    supervisor.stop("s", plan.engine_id, 60)
    stopped = wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)

    assert stopped.exit is not None
    assert (stopped.exit.code, stopped.exit.signal) == (0, None)


@pytest.mark.slow
@pytest.mark.faults
def test_escaped_grandchild_without_marker_is_found_and_killed(bench: Bench) -> None:
    supervisor = bench.supervisor()
    plan = bench.plan("--escape", "--worker", "--count=1")
    status = supervisor.launch("k", plan, {})
    wait_until(lambda: has_log(bench, plan.engine_id, "line"), "it runs")
    wait_until(lambda: len(own(bench, plan.engine_id)) == 3, "leader, worker and the escaped one")
    members = own(bench, plan.engine_id)
    assert {os.getsid(pid) for pid in members} != {status.pid}, "one has a session of its own"

    supervisor.stop("s", plan.engine_id, 0.3)
    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)

    assert bench.processes() == []
    for pid in members:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def own(bench: Bench, engine_id: str) -> list[int]:
    supervisor = bench.supervisors[-1]
    supervisor._owners_until = 0.0
    return [pid for pid, engine in supervisor.owners().items() if engine == engine_id]


@pytest.mark.slow
@pytest.mark.faults
def test_workers_that_outlive_a_killed_leader_are_orphans_until_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw_core.agent.supervisor.ORPHANS_AFTER_S", 0.2)
    monkeypatch.setattr("llmgw_core.agent.supervisor.ORPHAN_GRACE_S", 0.2)
    supervisor, plan = bench.supervisor(), bench.plan("--worker", "--count=1", gpus=(3,))
    status = supervisor.launch("k", plan, {})
    wait_until(lambda: has_log(bench, plan.engine_id, "line"), "it runs")
    assert status.pid is not None

    os.kill(status.pid, signal.SIGKILL)
    orphans = wait_for_state(supervisor, plan.engine_id, EngineState.ORPHANS)

    assert orphans.diagnosis is not None
    assert "python" in orphans.diagnosis.message
    assert orphans.exit is not None
    assert (orphans.exit.signal, orphans.exit.reason) == (signal.SIGKILL, "killed")
    assert supervisor.taken_gpus() == {3: plan.engine_id}
    with pytest.raises(StopIncomplete):
        supervisor.forget("f", plan.engine_id)

    supervisor.stop("s", plan.engine_id, None)
    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED, EngineState.FAILED)

    assert bench.processes() == []
    assert supervisor.taken_gpus() == {}


@pytest.mark.slow
def test_stop_while_starting_and_stop_of_what_is_over_are_fine(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")
    supervisor.launch("k", plan, {})

    supervisor.stop("s", plan.engine_id, None)
    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)
    again = supervisor.stop("s2", plan.engine_id, None)

    assert again.state is EngineState.STOPPED


@pytest.mark.slow
@pytest.mark.faults
def test_new_daemon_finishes_a_stop_in_flight(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--ignore-term", "--count=1")
    supervisor.launch("k", plan, {})
    wait_until(lambda: has_log(bench, plan.engine_id, "line"), "it runs")
    supervisor.stop("s", plan.engine_id, 0.5)

    successor = bench.supervisor()
    stopped = wait_for_state(successor, plan.engine_id, EngineState.STOPPED)

    assert stopped.exit is not None
    assert stopped.exit.reason == "stopped"
    assert bench.processes() == []


@pytest.mark.slow
def test_ended_engine_can_be_forgotten_and_its_name_used_again(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--die=1")
    supervisor.launch("k", plan, {})
    wait_for_state(supervisor, plan.engine_id, EngineState.FAILED)

    supervisor.forget("f", plan.engine_id)
    supervisor.forget("f", plan.engine_id)

    assert supervisor.list() == ()
    assert list(bench.instance.engines.iterdir()) == []


def test_stop_of_nothing_names_what_there_is(bench: Bench) -> None:
    with pytest.raises(EngineNotFound, match="no engine nobody"):
        bench.supervisor().stop("s", "nobody", None)


@pytest.mark.slow
@pytest.mark.faults
def test_process_that_outlives_sigkill_makes_it_stuck(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "STUCK_AFTER_KILL_S", 0.2)
    # A process in a driver does not react to SIGKILL; here the signal is simply not sent.
    monkeypatch.setattr(stopping, "send_signal", lambda *_: False)
    monkeypatch.setattr(stopping, "send_signal_to_group", lambda *_: True)
    monkeypatch.setattr(stopping, "kill_cgroup", lambda _: None)
    supervisor, plan = bench.supervisor(), bench.plan("--hang", gpus=(1,))
    status = supervisor.launch("k", plan, {})

    supervisor.stop("s", plan.engine_id, 0.0)
    stuck = wait_for_state(supervisor, plan.engine_id, EngineState.STUCK)

    assert stuck.diagnosis is not None
    assert str(status.pid) in stuck.diagnosis.message
    assert supervisor.taken_gpus() == {1: plan.engine_id}
    assert status_of(supervisor, plan.engine_id).state is EngineState.STUCK


@pytest.mark.slow
@pytest.mark.faults
def test_gpus_stay_taken_until_the_driver_has_given_their_memory_back(bench: Bench) -> None:
    listed: set[int] = set()
    supervisor, plan = bench.supervisor(lambda _: frozenset(listed)), bench.plan(gpus=(3,))
    status = supervisor.launch("k", plan, {})
    assert status.pid is not None
    listed.add(status.pid)
    wait_for_state(supervisor, plan.engine_id, EngineState.READY)
    supervisor.stop("s", "tiny", None)
    wait_until(lambda: bool(supervisor.tick()) or bench.processes() == [], "its processes end")
    for _ in range(5):
        supervisor.tick()
    held = (status_of(supervisor, plan.engine_id).state, dict(supervisor.taken_gpus()))

    listed.clear()

    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)
    assert held == (EngineState.STOPPING, {3: plan.engine_id})
    assert supervisor.taken_gpus() == {}


@pytest.mark.slow
@pytest.mark.faults
def test_memory_that_never_comes_back_is_told_as_stuck(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "STUCK_AFTER_KILL_S", 1.0)
    listed: set[int] = set()
    supervisor, plan = bench.supervisor(lambda _: frozenset(listed)), bench.plan(gpus=(3,))
    status = supervisor.launch("k", plan, {})
    assert status.pid is not None
    listed.add(status.pid)
    wait_for_state(supervisor, plan.engine_id, EngineState.READY)

    supervisor.stop("s", "tiny", None)

    stuck = wait_for_state(supervisor, plan.engine_id, EngineState.STUCK)
    assert stuck.diagnosis is not None
    assert stuck.diagnosis.code == "gpu-memory-held"
    assert str(status.pid) in stuck.diagnosis.message
    listed.clear()
    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)


@pytest.mark.slow
@pytest.mark.faults
def test_a_silent_nvidia_smi_does_not_hold_up_a_stop_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "GPU_PATIENCE_S", 0.5)
    supervisor, plan = bench.supervisor(lambda _: None), bench.plan(gpus=(3,))
    supervisor.launch("k", plan, {})
    wait_for_state(supervisor, plan.engine_id, EngineState.READY)

    supervisor.stop("s", "tiny", None)

    wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)
