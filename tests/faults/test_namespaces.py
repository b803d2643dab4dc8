"""PID 1 that reaps nothing, pids used again, another boot, other namespaces, hidden processes: nobody else is ever hurt."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.agent.identity import agent_command
from llmgw_core.agent.instance_lock import read_holder
from llmgw_core.agent.paths import instance_name
from llmgw_core.agent.procfs import read_boot_id, read_stat
from llmgw_core.agent.records import RunRecord, read_record
from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.errors import PortTaken
from tests.support.agents import PipeClient, agent_home, hello_params, make_rank
from tests.support.apart import needs_namespaces, play
from tests.support.engines import (
    Bench,
    open_bench,
    status_of,
    wait_for_state,
    wait_until,
)

pytestmark = [pytest.mark.faults, pytest.mark.slow]
SLEEPER = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]


def run_record(bench: Bench, engine_id: str) -> RunRecord:
    run = read_record(bench.instance.engine(engine_id).run, RunRecord)
    assert run is not None
    return run


def die_without_being_reaped(root: Path) -> Any:
    with open_bench(root) as bench:
        supervisor, plan = bench.supervisor(), bench.plan("--worker", "--count=1", gpus=(1,))
        supervisor.launch("k", plan, {})
        wait_until(lambda: "line" in supervisor.read_log(plan.engine_id, 0, 1000).data, "it runs")
        run = run_record(bench, plan.engine_id)
        os.kill(run.shim.pid, signal.SIGKILL)
        os.kill(run.pid, signal.SIGKILL)
        orphans = wait_for_state(supervisor, plan.engine_id, EngineState.ORPHANS)
        supervisor.stop("s", plan.engine_id, 0.1)
        ended = wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED, EngineState.FAILED)
        left = read_stat(run.pid)
        return [orphans.state.value, ended.state.is_over, left.state if left else None]


def test_zombies_under_a_pid_1_that_does_not_reap_are_dead(tmp_path: Path) -> None:
    needs_namespaces()

    orphans, is_over, left = play(die_without_being_reaped, tmp_path, "-pf", "--mount-proc")

    assert (orphans, is_over) == ("orphans", True)
    assert left == "Z", "the leader was never reaped, and is over all the same"


def give_the_pid_to_a_stranger(root: Path) -> Any:
    with open_bench(root) as bench:
        supervisor, plan = bench.supervisor(), bench.plan("--hang")
        supervisor.launch("k", plan, {})
        run = run_record(bench, plan.engine_id)
        for pid in (run.shim.pid, run.pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(run.pid - 1), "ascii")
        stranger = subprocess.Popen(SLEEPER, start_new_session=True)
        try:
            heir = bench.supervisor()
            states = [status_of(heir, plan.engine_id).state.value for _ in range(3)]
            heir.stop("s", plan.engine_id, 0.0)
            for _ in range(3):
                heir.tick()
            return [stranger.pid == run.pid, states[-1], stranger.poll(), dict(heir.owners())]
        finally:
            stranger.kill()
            stranger.wait()


def test_process_that_got_the_engines_pid_is_left_alone(tmp_path: Path) -> None:
    needs_namespaces()

    reused, state, exit_code, owners = play(
        give_the_pid_to_a_stranger, tmp_path, "-pf", "--mount-proc"
    )

    assert reused, "the kernel gave the same number"
    assert (state, exit_code, owners) == ("failed", None, {})


def look_after_a_reboot(root: Path) -> Any:
    bench = Bench(root)
    supervisor = bench.supervisor()
    (status,) = supervisor.list()
    supervisor.stop("s", status.id, 0.0)
    supervisor.tick()
    return [status.state.value, status.exit.reason if status.exit else None]


def test_engine_of_an_earlier_boot_is_history_and_its_pids_mean_nothing(tmp_path: Path) -> None:
    needs_namespaces()
    with open_bench(tmp_path) as bench:
        supervisor, plan = bench.supervisor(), bench.plan("--hang")
        status = supervisor.launch("k", plan, {})
        # The first part names the directory; a boot that shares it would be the worst case.
        (tmp_path / "boot_id").write_text(read_boot_id()[:8] + "-0000-0000-0000-000000000000\n")

        state, reason = play(
            look_after_a_reboot,
            tmp_path,
            "-m",
            prepare='mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id',
        )

        assert (state, reason) == ("failed", "host-rebooted")
        assert status.pid is not None
        os.kill(status.pid, 0)


def list_engines(root: Path) -> Any:
    bench = Bench(root)
    supervisor = bench.supervisor()
    supervisor.tick()
    return [instance_name(bench.env), [status.id for status in supervisor.list()]]


def test_container_that_shares_the_state_directory_sees_and_signals_nothing(
    tmp_path: Path,
) -> None:
    needs_namespaces()
    with open_bench(tmp_path) as bench:
        supervisor, plan = bench.supervisor(), bench.plan("--hang")
        status = supervisor.launch("k", plan, {})

        name, engines = play(list_engines, tmp_path, "-pf", "--mount-proc")

        assert (name != instance_name(bench.env), engines) == (True, [])
        assert status_of(supervisor, plan.engine_id).pid == status.pid


def live_with_others_hidden(root: Path) -> Any:
    wait_until((root / "stranger").exists, "somebody else listens")
    pid, port = map(int, (root / "stranger").read_text("ascii").split())
    with open_bench(root) as bench:
        supervisor, plan = bench.supervisor(), bench.plan("--worker", "--escape")
        with pytest.raises(PortTaken):
            supervisor.launch("k0", bench.plan(name="other", port=port), {})
        supervisor.launch("k", plan, {})
        wait_for_state(supervisor, plan.engine_id, EngineState.READY)
        supervisor._owners_until = 0.0
        owned = len(supervisor.owners())
        supervisor.stop("s", plan.engine_id, 0.2)
        stopped = wait_for_state(supervisor, plan.engine_id, EngineState.STOPPED)
        return [read_stat(pid) is None, owned, stopped.exit is not None]


LISTENER = """
import os, socket, sys, time
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen()
note = sys.argv[1] + "/stranger"
os.write(os.open(note + ".new", os.O_WRONLY | os.O_CREAT),
         b"%d %d" % (os.getpid(), listener.getsockname()[1]))
os.rename(note + ".new", note)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
time.sleep(600)
"""


def test_hidden_processes_of_others_do_not_disturb(tmp_path: Path) -> None:
    needs_namespaces()
    (tmp_path / "listener.py").write_text(LISTENER, "utf-8")

    is_hidden, owned, has_exit = play(
        live_with_others_hidden,
        tmp_path,
        "-pfm",
        prepare=f'mount -t proc -o hidepid=2 proc /proc\n{sys.executable} "$1/listener.py" "$1" >&2 &',
        # Root's group and capabilities would see through hidepid.
        wrap=(
            "setpriv",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
        ),
    )

    assert (is_hidden, owned, has_exit) == (True, 3, True)


def test_two_hosts_that_share_a_home_have_a_daemon_and_engines_each(tmp_path: Path) -> None:
    needs_namespaces()
    with ExitStack() as stack:
        found = {}
        for host in ("n1", "n2"):
            home = stack.enter_context(agent_home(tmp_path))
            command = ["unshare", "-u", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]
            client = PipeClient(home.start("proxy", command=[*command, *agent_command()]))
            hello = client.result("hello", **hello_params())
            rank = to_jsonable(make_rank("counter"))
            status = client.result("engine.launch", key="k", rank=rank, secrets={})
            listed = client.result("engine.list")
            found[host] = (hello["state_dir"], hello["pid"], status["pid"], len(listed))
            stack.callback(os.killpg, os.getpgid(status["pid"]), signal.SIGKILL)
            stack.callback(os.kill, hello["pid"], signal.SIGKILL)

        state_dirs, daemons, engines, counts = zip(*found.values(), strict=True)
        assert len(set(state_dirs)) == len(set(daemons)) == len(set(engines)) == 2
        assert counts == (1, 1)
        assert [Path(item).name.split("-")[0] for item in state_dirs] == ["n1", "n2"]
        assert [read_holder(Path(item) / "lock") for item in state_dirs] == list(daemons)
