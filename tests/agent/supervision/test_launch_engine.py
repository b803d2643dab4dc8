"""A launch starts one engine, or says why not and leaves nothing."""

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from llmgw_core.agent.launching import Apart, prepare_directory
from llmgw_core.agent.members import find_marked
from llmgw_core.agent.procfs import read_all_stats
from llmgw_core.agent.spawn import start_shim
from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.findings import Severity
from llmgw_core.errors import (
    ExecutableMissing,
    GpuTaken,
    LaunchError,
    LlmgwError,
    ModelMissing,
    NameTaken,
    PortTaken,
)
from tests.support.engines import Bench, wait_for_state, wait_until

SECRET = "hf_verySecretValue123"  # noqa: S105 - made up


def logged(bench: Bench, engine_id: str, text: str) -> str:
    supervisor = bench.supervisors[-1]
    wait_until(
        lambda: text in supervisor.read_log(engine_id, 0, 1 << 20).data, f"{text} in the log"
    )
    return supervisor.read_log(engine_id, 0, 1 << 20).data


@pytest.mark.slow
def test_engine_becomes_ready_after_it_was_seen_loading(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--load=0.4")

    started = supervisor.launch("k", plan, {})
    loading = wait_for_state(supervisor, plan.engine_id, EngineState.LOADING)
    ready = wait_for_state(supervisor, plan.engine_id, EngineState.READY)

    assert started.state is EngineState.STARTING
    assert (loading.phase, loading.progress) == ("weights", 0.5)
    assert (ready.phase, ready.ready, ready.url) == (
        "serving",
        True,
        f"http://127.0.0.1:{plan.port}",
    )


@pytest.mark.slow
def test_same_key_and_same_engine_start_one_engine(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")

    first = supervisor.launch("k", plan, {})
    by_key = supervisor.launch("k", plan, {})
    by_id = supervisor.launch("another key", plan, {})

    assert first.pid == by_key.pid == by_id.pid
    assert list(find_marked(read_all_stats()).values()).count(plan.engine_id) == 1


@pytest.mark.slow
def test_environment_is_the_plans_and_a_known_part_of_the_nodes(bench: Bench) -> None:
    bench.env["STRANGE_ACCESS_KEY"] = "stranger"
    supervisor = bench.supervisor()
    plan = bench.plan("--env", "--hang", env={"NCCL_DEBUG": "WARN"}, env_from=("HF_TOKEN",))

    supervisor.launch("k", plan, {"HF_TOKEN": SECRET})
    text = logged(bench, plan.engine_id, "\n")
    env = json.loads(text[text.index("{") : text.index("}") + 1])

    assert env["NCCL_DEBUG"] == "WARN"
    assert (env["LLMGW_ENGINE"], env["SPT_NOENV"], env["PYTHONUNBUFFERED"]) == (
        plan.engine_id,
        "1",
        "1",
    )
    assert "STRANGE_ACCESS_KEY" not in env
    assert "LLMGW_STATE_DIR" not in env
    assert env["HF_TOKEN"] == "*" * len(SECRET), "it was there, and the log's reader hides it"


@pytest.mark.slow
def test_secret_is_in_one_private_file_and_in_no_command_line(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang", env_from=("HF_TOKEN",))

    supervisor.launch("k", plan, {"HF_TOKEN": SECRET, "UNASKED": "other"})

    files = [path for path in bench.instance.root.rglob("*") if path.is_file()]
    holders = [path for path in files if SECRET.encode() in path.read_bytes()]
    assert [path.name for path in holders] == ["secrets.json"]
    assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600
    for pid in bench.processes():
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.slow
def test_engine_has_its_own_session_no_terminal_and_no_stray_descriptors(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), bench.plan("--hang")

    status = supervisor.launch("k", plan, {})

    assert status.pid is not None
    assert os.getsid(status.pid) == os.getpgid(status.pid) == status.pid
    wait_until(lambda: len(descriptors(status.pid)) == 3, "only stdin, stdout and stderr")
    opened = descriptors(status.pid)
    assert opened["0"] == "/dev/null"
    assert opened["1"] == opened["2"]
    assert opened["1"].endswith("out.fifo")


def descriptors(pid: int | None) -> dict[str, str]:
    return {fd.name: str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}


@pytest.mark.slow
def test_command_that_cannot_be_executed_is_a_failed_engine_with_the_reason(bench: Bench) -> None:
    script = bench.root / "vllm"
    script.write_text("#!/no/such/interpreter\n", "utf-8")
    script.chmod(0o755)
    supervisor, plan = bench.supervisor(), bench.plan(argv=(str(script),))

    status = supervisor.launch("k", plan, {})

    assert status.state is EngineState.FAILED
    assert status.exit is not None
    assert status.exit.reason == "exec-failed"
    assert status.diagnosis is not None
    assert str(script) in status.diagnosis.message


@pytest.mark.slow
def test_taken_name_port_and_gpu_are_refused(bench: Bench) -> None:
    supervisor, first = bench.supervisor(), bench.plan("--hang", gpus=(0, 1))
    supervisor.launch("k", first, {})

    refused: list[LlmgwError] = []
    for plan in (
        bench.plan(),
        bench.plan(name="two", port=first.port),
        bench.plan(name="two", gpus=(1,)),
    ):
        with pytest.raises(LaunchError) as caught:
            supervisor.launch(f"k-{plan.engine_id}", plan, {})
        refused.append(caught.value)

    assert [type(error) for error in refused] == [NameTaken, PortTaken, GpuTaken]
    assert supervisor.taken_gpus() == {0: first.engine_id, 1: first.engine_id}
    assert [path.name for path in bench.instance.engines.iterdir()] == [first.engine_id]


@pytest.mark.slow
def test_nothing_is_steady_before_the_engine_is_ready(bench: Bench) -> None:
    supervisor = bench.supervisor()
    assert supervisor.is_steady()
    status = supervisor.launch("k", bench.plan(), {})
    assert not supervisor.is_steady()

    wait_for_state(supervisor, status.id, EngineState.READY)

    assert supervisor.is_steady()


@pytest.mark.slow
def test_slices_of_one_gpu_are_taken_one_by_one(bench: Bench) -> None:
    supervisor = bench.supervisor()
    first = bench.plan("--hang", gpus=(0,), gpu_uuids=("MIG-1",))
    other = bench.plan("--hang", name="two", gpus=(0,), gpu_uuids=("MIG-2",))
    supervisor.launch("k", first, {})
    supervisor.launch("l", other, {})

    with pytest.raises(GpuTaken, match="MIG-2"):
        supervisor.launch("m", bench.plan(name="three", gpus=(0,), gpu_uuids=("MIG-2",)), {})

    assert supervisor.taken_gpus() == {"MIG-1": first.engine_id, "MIG-2": other.engine_id}


def test_port_that_is_listened_on_is_refused_naming_the_holder(bench: Bench) -> None:
    supervisor = bench.supervisor()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        plan = bench.plan(port=holder.getsockname()[1])

        with pytest.raises(PortTaken, match=f"pid {os.getpid()} "):
            supervisor.launch("k", plan, {})


def test_port_that_is_bound_and_not_listened_on_is_refused(bench: Bench) -> None:
    supervisor = bench.supervisor()
    with socket.socket() as loading:
        loading.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        loading.bind(("127.0.0.1", 0))
        plan = bench.plan(port=loading.getsockname()[1])

        with pytest.raises(PortTaken, match="does not listen yet"):
            supervisor.launch("k", plan, {})


def test_port_of_connections_that_wait_to_expire_is_free(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first waits
        client.close()

    findings = bench.supervisor().preflight(bench.plan(port=port))

    assert findings == ()


def test_preflight_tells_every_trouble_at_once(bench: Bench) -> None:
    plan = bench.plan(model="/models/none", argv=("/no/vllm",), cwd="/no/dir")

    findings = bench.supervisor().preflight(plan)

    assert [finding.code for finding in findings] == [
        "executable-missing",
        "model-missing",
        "workdir-missing",
    ]
    assert {finding.severity for finding in findings} == {Severity.ERROR}


def test_missing_model_and_executable_are_refused(bench: Bench) -> None:
    supervisor = bench.supervisor()

    with pytest.raises(ModelMissing, match="/models/none"):
        supervisor.launch("k", bench.plan(model="/models/none"), {})
    with pytest.raises(ExecutableMissing, match="no-such-vllm"):
        supervisor.launch("k", bench.plan(argv=("no-such-vllm",)), {})

    assert list(bench.instance.engines.iterdir()) == []


def test_path_only_a_shell_would_know_is_refused_with_the_full_one(bench: Bench) -> None:
    findings = bench.supervisor().preflight(bench.plan(model="~/models/x"))

    assert [finding.code for finding in findings] == ["model-missing"]
    assert f"{bench.root}/models/x" in findings[0].fix


def test_secret_that_did_not_come_is_refused(bench: Bench) -> None:
    with pytest.raises(LaunchError, match="no value came for HF_TOKEN"):
        bench.supervisor().launch("k", bench.plan(env_from=("HF_TOKEN",)), {})


@pytest.mark.slow
def test_ranks_of_one_gang_may_share_a_name_on_one_node(bench: Bench) -> None:
    supervisor = bench.supervisor()
    ranks = [
        bench.plan("--hang", engine_id=f"tiny-0000000a-r{rank}", rank=rank, ranks=2, port=None)
        for rank in (0, 1)
    ]

    started = [supervisor.launch("k", rank, {}) for rank in ranks]

    assert len({status.pid for status in started}) == 2


def test_records_that_cannot_be_written_refuse_the_launch_and_leave_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, plan = bench.supervisor(), bench.plan()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("llmgw_core.agent.launching.write_record", fail)

    with pytest.raises(LlmgwError, match="No space left"):
        supervisor.launch("k", plan, {})

    assert list(bench.instance.engines.iterdir()) == []


def test_full_disk_is_told_before_anything_is_tried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw_core.agent.preflight.MIN_FREE_BYTES", 1 << 60)

    findings = bench.supervisor().preflight(bench.plan())

    assert [(finding.code, finding.severity) for finding in findings] == [
        ("disk-full", Severity.ERROR)
    ]


@pytest.mark.faults
def test_launch_cut_off_before_anything_ran_starts_afresh_with_the_next_daemon(
    bench: Bench,
) -> None:
    bench.instance.engine("tiny-0000000b").root.mkdir()
    plan = bench.plan("--hang")
    prepare_directory(
        bench.instance.engine(plan.engine_id), "k", plan, Apart(), "2026-01-01T00:00:00Z"
    )

    supervisor = bench.supervisor()
    forgotten = supervisor.list()
    status = supervisor.launch("k", plan, {})

    assert forgotten == ()
    assert status.state is EngineState.STARTING
    assert [path.name for path in bench.instance.engines.iterdir()] == [plan.engine_id]


@pytest.mark.slow
@pytest.mark.faults
def test_engine_does_not_run_when_its_shim_dies_before_the_record_is_durable(bench: Bench) -> None:
    plan = bench.plan("--hang")
    directory = bench.instance.engine(plan.engine_id)
    prepare_directory(directory, "k", plan, Apart(), "2026-01-01T00:00:00Z")
    directory.run.mkdir()  # cannot be replaced by a file

    answer = start_shim(directory, bench.env)

    assert not answer["ok"]
    wait_until(lambda: bench.processes() == [], "neither shim nor engine is there")
