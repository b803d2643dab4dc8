"""Clock, memory, descriptors: what a node does to everybody on it must not be mistaken for something an engine did."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.agent.identity import agent_command
from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.wire import to_jsonable
from tests.support.agents import agent_home, make_rank, wait_for
from tests.support.engines import Bench, open_bench, wait_for_state, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow]
CGROUPS = Path("/sys/fs/cgroup")

# What `date` reads is moved by the number in a file; nothing else of the system is.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset(void) {
    char text[32] = {0};
    int fd = open(getenv("CLOCK_FILE"), O_RDONLY);
    if (fd < 0) return 0;
    if (read(fd, text, 31) < 0) text[0] = 0;
    close(fd);
    return atol(text);
}
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += offset();
    return rc;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    print("line", flush=True)
    time.sleep(0.05)
"""
EATER = """
import sys, time
print("hungry", flush=True)
sys.stdin = open(sys.argv[1] + "/eat")
sys.stdin.read(1)
food = []
while True:
    food.append(bytearray(8 << 20))
"""


def test_clock_that_jumps_a_day_changes_no_state_and_no_grace_period(tmp_path: Path) -> None:
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK, "ascii")
    build = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    try:
        subprocess.run(build, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no C compiler to make a clock that jumps")
    jump = tmp_path / "jump"
    moved = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(jump)}
    with agent_home(tmp_path / "home", **moved) as home:
        daemon = home.start_daemon()
        client = home.connect()
        rank = make_rank(code=STUBBORN)
        client.result("engine.launch", key="k", rank=to_jsonable(rank), secrets={})
        log = {"engine": "counter", "offset": 0, "max_bytes": 99}
        wait_for(lambda: client.result("log.read", **log)["data"], "it ignores signals")
        before = [states(client)]
        for seconds in (86400, -86400):
            jump.write_text(str(seconds), "ascii")
            late_answer(home)
            client.result("inventory", max_age_s=0.0)
            before.append(states(client))
        began = time.monotonic()
        client.result("engine.stop", key="s", engine="counter", grace_seconds=2.0)
        jump.write_text("86400", "ascii")

        wait_for(lambda: states(client) == ["stopped"], "it is stopped")
        took = time.monotonic() - began
        client.close()

        days = {line[:10] for line in home.instance.log.read_text("utf-8").splitlines()}
        assert home.daemon_pid == daemon
    assert len(days) == 3, "its clock did jump"
    assert before[0] == before[1] == before[2] != ["stopped"]
    assert 2.0 <= took < 15


def states(client: Any) -> list[str]:
    return [status["state"] for status in client.result("engine.list")]


@contextmanager
def small_memory(limit_bytes: int) -> Iterator[Path]:
    """A cgroup with that much memory and no swap; skipped where none can be made."""
    v1 = (CGROUPS / "memory").is_dir()
    group = (CGROUPS / "memory" if v1 else CGROUPS) / f"llmgw-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.limit_in_bytes" if v1 else "memory.max"
        (group / limit).write_text(str(limit_bytes), "ascii")
        swap = group / ("memory.memsw.limit_in_bytes" if v1 else "memory.swap.max")
        if swap.exists():
            swap.write_text(str(limit_bytes if v1 else 0), "ascii")
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made: {error}")
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text("ascii"), "the group is empty")
        group.rmdir()


def eat_in(group: Path, bench: Bench, name: str) -> str:
    """Launch an engine that eats until it is killed for it. Returns its id."""
    folder = bench.root / name
    folder.mkdir()
    os.mkfifo(folder / "eat")
    supervisor = bench.supervisors[-1]
    argv = (sys.executable, "-I", "-S", "-c", EATER, str(folder))
    plan = bench.plan(name=name, argv=argv, port=None)
    status = supervisor.launch(f"k-{name}", plan, {})
    (group / "cgroup.procs").write_text(str(status.pid), "ascii")
    (folder / "eat").write_text("x", "ascii")
    return plan.engine_id


def test_engine_killed_for_memory_is_told_as_such_and_one_killed_later_is_not(
    tmp_path: Path,
) -> None:
    if os.getuid() != 0:
        pytest.skip("cgroups need root")
    with open_bench(tmp_path) as bench, small_memory(64 << 20) as group:
        supervisor, other = bench.supervisor(), bench.plan("--hang", name="other")
        bystander = supervisor.launch("k", other, {})
        eaten = wait_for_state(supervisor, eat_in(group, bench, "eater"), EngineState.FAILED)
        assert bystander.pid is not None
        # The shim looks once a second: by then the node's last such kill has nothing to do with this one.
        end = time.monotonic() + 3.5
        wait_until(lambda: time.monotonic() > end, "some seconds pass")

        os.kill(bystander.pid, signal.SIGKILL)
        killed = wait_for_state(supervisor, other.engine_id, EngineState.FAILED)

    assert eaten.exit is not None
    assert (eaten.exit.signal, eaten.exit.reason) == (9, "oom")
    assert killed.exit is not None
    assert (killed.exit.signal, killed.exit.reason) == (9, "killed")


def test_few_descriptors_for_the_daemon_are_no_fewer_for_engines_and_none_is_lost(
    tmp_path: Path,
) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), flush=True); import time; time.sleep(600)"
    with agent_home(tmp_path) as home:
        shell = ["sh", "-c", 'ulimit -Sn 48; ulimit -Hn 4096; exec "$@"', "sh"]
        home.start_daemon(command=[*shell, *agent_command()])
        client = home.connect()
        rank = to_jsonable(make_rank(code=code))
        client.result("engine.launch", key="k", rank=rank, secrets={})
        crowd = [home.connect() for _ in range(60)]
        for one in crowd:
            one.close()

        log = {"engine": "counter", "offset": 0, "max_bytes": 99}
        wait_for(lambda: client.result("log.read", **log)["data"], "it prints")
        assert client.result("log.read", **log)["data"] == "(4096, 4096)\n"
        client.close()
        late = wait_for(lambda: late_answer(home), "the daemon serves again")
        assert late == ["starting"]


def late_answer(home: Any) -> list[str]:
    client = home.connect()
    try:
        return states(client)
    finally:
        client.close()
