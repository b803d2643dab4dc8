"""Daemon and shim can be killed at any time: the engine goes on, and the next daemon has it."""

import os
import re
import signal

import pytest

from llmgw_core.agent.records import RunRecord, read_record
from llmgw_core.domain.engine import EngineState
from llmgw_core.errors import LaunchError, StopIncomplete
from tests.support.engines import Bench, status_of, wait_for_state, wait_until


def run_record(bench: Bench, engine_id: str) -> RunRecord:
    run = read_record(bench.instance.engine(engine_id).run, RunRecord)
    assert run is not None
    return run


def counted(bench: Bench, engine_id: str) -> list[int]:
    data, offset = "", 0
    while True:
        chunk = bench.supervisors[-1].read_log(engine_id, offset, 1 << 20)
        data, offset = data + chunk.data, chunk.next_offset
        if not chunk.data:
            return [int(number) for number in re.findall(r"line (\d{8})\n", data)]


@pytest.mark.slow
def test_new_daemon_adopts_a_ready_engine_without_asking_for_another_token(bench: Bench) -> None:
    first, plan = bench.supervisor(), bench.plan()
    launched = first.launch("k", plan, {})
    wait_for_state(first, plan.engine_id, EngineState.READY)

    second = bench.supervisor()
    adopted = wait_for_state(second, plan.engine_id, EngineState.READY)

    assert (adopted.pid, adopted.adopted, launched.adopted) == (launched.pid, True, False)
    assert second.read_log(plan.engine_id, 0, 1 << 20).data.count("completion") == 1


@pytest.mark.slow
@pytest.mark.faults
def test_exit_code_is_known_to_the_next_daemon(bench: Bench) -> None:
    first, plan = bench.supervisor(), bench.plan("--die=3")
    first.launch("k", plan, {})
    wait_until(bench.instance.engine(plan.engine_id).exit.exists, "it has ended")

    failed = wait_for_state(bench.supervisor(), plan.engine_id, EngineState.FAILED)

    assert failed.exit is not None
    assert (failed.exit.code, failed.exit.reason) == (3, "exited")


@pytest.mark.slow
@pytest.mark.faults
def test_no_line_is_lost_when_the_shim_is_killed(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--count=3000", "--pause=0.0003")
    status = supervisor.launch("k", plan, {})
    wait_until(lambda: len(counted(bench, plan.engine_id)) > 100, "it prints")
    run = run_record(bench, plan.engine_id)
    os.kill(run.shim.pid, signal.SIGKILL)

    def has_all() -> bool:
        supervisor.tick()
        return len(counted(bench, plan.engine_id)) >= 3000

    wait_until(has_all, "all lines")
    assert counted(bench, plan.engine_id) == list(range(3000))
    assert status_of(supervisor, plan.engine_id).pid == status.pid


@pytest.mark.slow
@pytest.mark.faults
def test_engine_survives_daemon_and_shim_and_is_stopped_by_the_next_daemon(bench: Bench) -> None:
    first, plan = bench.supervisor(), bench.plan("--worker", "--escape")
    first.launch("k", plan, {})
    wait_for_state(first, plan.engine_id, EngineState.READY)
    first._owners_until = 0.0
    assert len(first.owners()) == 3

    os.kill(run_record(bench, plan.engine_id).shim.pid, signal.SIGKILL)
    wait_for_state(first, plan.engine_id, EngineState.READY)
    first.stop("s", plan.engine_id, 0.3)
    stopped = wait_for_state(first, plan.engine_id, EngineState.STOPPED)

    assert stopped.exit is not None
    assert (stopped.exit.code, stopped.exit.reason) == (None, "stopped")
    wait_until(lambda: bench.processes() == [], "nothing is left, the second pump included")


@pytest.mark.slow
@pytest.mark.faults
def test_end_that_nobody_saw_is_unknown_and_failed(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")
    status = supervisor.launch("k", plan, {})
    assert status.pid is not None

    os.kill(run_record(bench, plan.engine_id).shim.pid, signal.SIGKILL)
    os.kill(status.pid, signal.SIGKILL)
    failed = wait_for_state(supervisor, plan.engine_id, EngineState.FAILED)

    assert failed.exit is not None
    assert (failed.exit.code, failed.exit.signal, failed.exit.reason) == (None, None, "unknown")


@pytest.mark.slow
@pytest.mark.faults
def test_stopped_shim_is_woken(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--count=500", "--pause=0.001")
    supervisor.launch("k", plan, {})

    os.kill(run_record(bench, plan.engine_id).shim.pid, signal.SIGSTOP)

    def has_all() -> bool:
        supervisor.tick()
        return len(counted(bench, plan.engine_id)) >= 500

    wait_until(has_all, "all lines")


@pytest.mark.slow
def test_shim_outlives_polite_signals(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")
    supervisor.launch("k", plan, {})
    shim = run_record(bench, plan.engine_id).shim

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(shim.pid, number)
    supervisor.stop("s", plan.engine_id, 0.2)
    stopped = wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)

    assert stopped.exit is not None
    assert stopped.exit.code == 0 or stopped.exit.signal is not None, "its end was seen"


@pytest.mark.slow
@pytest.mark.faults
def test_torn_record_makes_the_engine_unknown_and_nothing_is_started_or_deleted(
    bench: Bench,
) -> None:
    first, plan = bench.supervisor(), bench.plan("--hang", gpus=(2,))
    launched = first.launch("k", plan, {})
    record = bench.instance.engine(plan.engine_id).run
    record.write_text(record.read_text("utf-8")[:40], "utf-8")

    second = bench.supervisor()
    status = status_of(second, plan.engine_id)

    assert status.state is EngineState.UNKNOWN
    assert second.launch("k", plan, {}).state is EngineState.UNKNOWN
    assert second.taken_gpus() == {2: plan.engine_id}
    with pytest.raises(LaunchError):
        second.launch("k2", bench.plan("--hang"), {})
    with pytest.raises(StopIncomplete, match=str(launched.pid)):
        second.stop("s", plan.engine_id, None)
    with pytest.raises(StopIncomplete):
        second.forget("f", plan.engine_id)
    assert record.exists()


@pytest.mark.slow
def test_engine_of_another_boot_is_over_and_nothing_is_signalled(bench: Bench) -> None:
    first, plan = bench.supervisor(), bench.plan("--hang")
    launched = first.launch("k", plan, {})
    record = bench.instance.engine(plan.engine_id).run
    boot_id = run_record(bench, plan.engine_id).boot_id
    record.write_text(record.read_text("utf-8").replace(boot_id, "another-boot"), "utf-8")

    status = status_of(bench.supervisor(), plan.engine_id)

    assert status.state is EngineState.FAILED
    assert status.exit is not None
    assert status.exit.reason == "host-rebooted"
    assert launched.pid is not None
    os.kill(launched.pid, 0)


@pytest.mark.slow
def test_engine_of_another_pid_namespace_is_unknown(bench: Bench) -> None:
    first, plan = bench.supervisor(), bench.plan("--hang")
    first.launch("k", plan, {})
    record = bench.instance.engine(plan.engine_id).run
    namespace = run_record(bench, plan.engine_id).pid_namespace
    record.write_text(record.read_text("utf-8").replace(namespace, "pid:[1]"), "utf-8")

    assert status_of(bench.supervisor(), plan.engine_id).state is EngineState.UNKNOWN
