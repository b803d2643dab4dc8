"""Which state an engine is in, by its process, its log and its answers; and why it failed."""

import socket
import time

import pytest

from llmgw_core.agent import readiness
from llmgw_core.domain.engine import EngineKind, EngineState
from tests.support.engines import Bench, status_of, wait_for_state, wait_until

KEY = "sk-not-for-logs"


@pytest.fixture(autouse=True)
def _quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LOADING_INTERVAL_S", 0.05)
    monkeypatch.setattr(readiness, "READY_INTERVAL_S", 0.05)


@pytest.mark.slow
def test_silent_process_is_starting(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")

    supervisor.launch("k", plan, {})

    assert status_of(supervisor, plan.engine_id).state is EngineState.STARTING


@pytest.mark.slow
def test_health_200_without_the_served_name_is_loading(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--served=another")
    supervisor.launch("k", plan, {})

    def says_why() -> bool:
        diagnosis = status_of(supervisor, plan.engine_id).diagnosis
        return diagnosis is not None and "lists another" in diagnosis.message

    wait_until(says_why, "the wrong name is told")

    assert status_of(supervisor, plan.engine_id).state is EngineState.LOADING


@pytest.mark.slow
def test_engine_that_gives_no_token_is_never_ready(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--mute")
    supervisor.launch("k", plan, {})

    unready = wait_for_state(supervisor, plan.engine_id, EngineState.UNREADY)

    assert unready.diagnosis is not None
    assert unready.diagnosis.code == "cannot-answer"
    assert "/v1/completions says 500" in unready.diagnosis.message


@pytest.mark.slow
def test_no_token_is_asked_for_when_nobody_wants_it(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--mute", verify=False)
    supervisor.launch("k", plan, {})

    wait_for_state(supervisor, plan.engine_id, EngineState.READY)

    assert "completion" not in supervisor.read_log(plan.engine_id, 0, 1 << 20).data


@pytest.mark.slow
def test_ready_engine_that_falls_sick_is_unready_and_comes_back(bench: Bench) -> None:
    sick = bench.root / "sick"
    supervisor, plan = bench.supervisor(), bench.plan(f"--sick-file={sick}")
    supervisor.launch("k", plan, {})
    wait_for_state(supervisor, plan.engine_id, EngineState.READY)

    sick.touch()
    unready = wait_for_state(supervisor, plan.engine_id, EngineState.UNREADY)
    sick.unlink()
    wait_for_state(supervisor, plan.engine_id, EngineState.READY)

    assert unready.diagnosis is not None
    assert "/health says 503" in unready.diagnosis.message
    assert supervisor.read_log(plan.engine_id, 0, 1 << 20).data.count("completion") == 1


@pytest.mark.slow
def test_key_among_the_secrets_opens_the_model_list(bench: Bench) -> None:
    supervisor = bench.supervisor()
    plan = bench.plan(f"--key={KEY}", env_from=("VLLM_API_KEY",))
    supervisor.launch("k", plan, {"VLLM_API_KEY": KEY})

    wait_for_state(supervisor, plan.engine_id, EngineState.READY)


@pytest.mark.slow
def test_engine_that_wants_a_key_nobody_gave_says_so(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan(f"--key={KEY}")
    supervisor.launch("k", plan, {})

    def says_why() -> bool:
        diagnosis = status_of(supervisor, plan.engine_id).diagnosis
        return diagnosis is not None and "API key" in diagnosis.message

    wait_until(says_why, "the missing key is told")


@pytest.mark.slow
def test_rank_that_serves_nothing_is_ready_when_its_weights_are_loaded(bench: Bench) -> None:
    supervisor = bench.supervisor()
    plan = bench.plan("--print=Loading weights took 1 seconds", "--hang", port=None)
    supervisor.launch("k", plan, {})

    ready = wait_for_state(supervisor, plan.engine_id, EngineState.READY)

    assert ready.url is None


@pytest.mark.slow
def test_engine_not_ready_by_its_deadline_is_stopped_and_failed(bench: Bench) -> None:
    supervisor = bench.supervisor()
    plan = bench.plan("--load=600", load_deadline_seconds=0.3)
    supervisor.launch("k", plan, {})

    failed = wait_for_state(supervisor, plan.engine_id, EngineState.FAILED)

    assert failed.diagnosis is not None
    assert failed.diagnosis.code == "load-deadline"
    assert "weights" in failed.diagnosis.message
    assert bench.processes() == []


@pytest.mark.slow
def test_unexpected_exit_0_is_a_failure(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--die=0")
    supervisor.launch("k", plan, {})

    failed = wait_for_state(supervisor, plan.engine_id, EngineState.FAILED)

    assert failed.exit is not None
    assert failed.exit.code == 0
    assert failed.diagnosis is not None
    assert "exit code 0" in failed.diagnosis.message


@pytest.mark.slow
def test_cause_is_read_from_the_log_without_the_secret_in_it(bench: Bench) -> None:
    supervisor = bench.supervisor()
    line = f"ValueError: the token {KEY} is not accepted"
    plan = bench.plan(f"--print={line}", "--die=1", env_from=("HF_TOKEN",))
    supervisor.launch("k", plan, {"HF_TOKEN": KEY})

    failed = wait_for_state(supervisor, plan.engine_id, EngineState.FAILED)
    kept = wait_for_state(bench.supervisor(), plan.engine_id, EngineState.FAILED)

    assert failed.diagnosis is not None
    assert failed.diagnosis.message == f"ValueError: the token {'*' * len(KEY)} is not accepted"
    assert kept.diagnosis == failed.diagnosis


@pytest.mark.slow
def test_tick_tells_whether_anything_changed(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")
    supervisor.launch("k", plan, {})

    assert supervisor.tick()
    assert not supervisor.tick()


@pytest.mark.slow
def test_sglang_is_not_ready_by_uvicorns_word(bench: Bench) -> None:
    supervisor = bench.supervisor()
    plan = bench.plan(
        "--print=INFO:     Application startup complete.", "--hang", engine=EngineKind.SGLANG
    )
    supervisor.launch("k", plan, {})

    def has_printed() -> bool:
        return bool(supervisor.read_log(plan.engine_id, 0, 100).data)

    wait_until(has_printed, "its line is there")

    assert status_of(supervisor, plan.engine_id).phase == "imports"


def test_hung_server_does_not_hold_up_a_tick(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")
    supervisor.launch("k", plan, {})
    assert plan.port is not None
    with socket.create_server(("127.0.0.1", plan.port)):
        supervisor.tick()

        began = time.monotonic()
        supervisor.tick()

        assert time.monotonic() - began < 0.5
