"""Full, read-only and noexec file systems; logs of any size and any bytes: the engine goes on, and what is kept is bounded."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llmgw_core
from llmgw_core.agent.pump import Pump, list_segments
from llmgw_core.agent.records import ExitRecord, read_record
from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.launch import RankPlan
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.errors import DiskFull, HomeUnwritable
from llmgw_core.fleet.bundle import collect_files, pack_files
from tests.support.agents import PipeClient, agent_home, hello_params, make_rank, unpack_bundle
from tests.support.apart import needs_namespaces, play
from tests.support.engines import Bench, open_bench, status_of, wait_for_state, wait_until

PACKAGE = Path(llmgw_core.__file__).parent
pytestmark = [pytest.mark.faults, pytest.mark.slow]

TALKER = """
import sys, time
number = 0
while True:
    number += 1
    sys.stdout.write("line %08d %s\\n" % (number, "x" * 4000))
    sys.stdout.flush()
    time.sleep(0.002)
"""
FLOOD = """
import os, sys
piece = (b"y" * 1023 + b"\\n") * 1024
for _ in range(int(sys.argv[1])):
    os.write(1, piece)
os.write(1, b"the end\\n")
import time; time.sleep(600)
"""
TMPFS = 'mkdir -p "$1/small"\nmount -t tmpfs -o size=40m small "$1/small"'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as made:
        yield made


def python_plan(bench: Bench, code: str, *args: str, **changes: Any) -> RankPlan:
    argv = (sys.executable, "-I", "-S", "-c", code, *args)
    return bench.plan(argv=argv, port=None, **changes)


def launch_talker(bench: Bench) -> str:
    supervisor, plan = bench.supervisor(), python_plan(bench, TALKER)
    supervisor.launch("k", plan, {})
    wait_until(lambda: "line" in supervisor.read_log(plan.engine_id, 0, 999).data, "it prints")
    return plan.engine_id


def wait_dropped(bench: Bench, engine_id: str) -> int:
    supervisor = bench.supervisors[-1]
    wait_until(lambda: supervisor.read_log(engine_id, -1, 1).dropped > 0, "bytes are let go")
    return supervisor.read_log(engine_id, -1, 1).dropped


def fill_the_disk(root: Path) -> Any:
    with open_bench(root / "small") as bench:
        engine_id = launch_talker(bench)
        supervisor = bench.supervisors[-1]
        spec = bench.instance.engine(engine_id).spec
        before = spec.read_bytes()
        with (root / "small/filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 65536)
            except OSError:
                pass
        reader_at = supervisor.read_log(engine_id, -1, 1).end_offset
        with pytest.raises(DiskFull):
            supervisor.launch("k2", python_plan(bench, TALKER, name="second"), {})
        successor = bench.supervisor()
        status = status_of(successor, engine_id)
        successor.stop("s", engine_id, 1.0)
        stopped = wait_for_state(successor, engine_id, EngineState.STOPPED)
        return [
            spec.read_bytes() == before,
            status.state.is_over,
            stopped.exit is not None and stopped.exit.signal,
            len(list(bench.instance.engines.iterdir())),
            reader_at > 0,
        ]


def test_full_disk_costs_log_lines_and_new_launches_alone(tmp_path: Path) -> None:
    needs_namespaces()

    unchanged, is_over, signal_, engines, has_log = play(
        fill_the_disk, tmp_path, "-m", prepare=TMPFS
    )

    assert (unchanged, is_over, engines, has_log) == (True, False, 1, True)
    assert signal_ == 15


def make_it_read_only(root: Path) -> Any:
    small = root / "small"
    # With small segments the pump soon needs a file that it may not make.
    with open_bench(root / "small", {"LLMGW_SHIM_SEGMENT_BYTES": "65536"}) as bench:
        engine_id = launch_talker(bench)
        supervisor = bench.supervisors[-1]
        directory = bench.instance.engine(engine_id)
        # A file that is open for writing keeps the mount itself from becoming read-only: another one is put over it.
        make_read_only(small)
        with pytest.raises(HomeUnwritable):
            supervisor.launch("k2", python_plan(bench, TALKER, name="second"), {})
        alive = not status_of(supervisor, engine_id).state.is_over
        successor = bench.supervisor()
        successor.stop("s", engine_id, 1.0)
        stopped = wait_for_state(successor, engine_id, EngineState.STOPPED)
        was_written = directory.exit.exists()
        subprocess.run(["umount", small], check=True)
        wait_until(directory.exit.exists, "how it ended is on record after all")
        record = read_record(directory.exit, ExitRecord)
        dropped = wait_dropped(bench, engine_id)
        return [alive, stopped.state.value, was_written, record and record.signal, dropped > 0]


def test_read_only_state_lets_engines_live_and_be_stopped_and_their_end_is_recorded_later(
    tmp_path: Path,
) -> None:
    needs_namespaces()

    alive, state, was_written, number, has_dropped = play(
        make_it_read_only, tmp_path, "-m", prepare=TMPFS
    )

    assert (alive, has_dropped) == (True, True)
    assert (state, was_written, number) == ("stopped", False, 15)


def live_where_nothing_may_be_executed(root: Path) -> Any:
    small = root / "small"
    script = small / "script"
    script.write_text("#!/bin/sh\n", "ascii")
    script.chmod(0o755)
    with pytest.raises(PermissionError):
        subprocess.run([str(script)], check=False)
    files = collect_files(PACKAGE)
    with agent_home(small, TMPDIR=str(small)) as home:
        command = unpack_bundle(pack_files(files), files, small / "cache")
        client = PipeClient(home.start("proxy", command=command))
        hello = client.result("hello", **hello_params())
        rank = to_jsonable(make_rank())
        client.result("engine.launch", key="k", rank=rank, secrets={})
        log = {"engine": "counter", "offset": 0, "max_bytes": 999}
        wait_until(lambda: "line" in client.result("log.read", **log)["data"], "it prints")
        client.result("engine.stop", key="s", engine="counter", grace_seconds=0.5)
        wait_until(
            lambda: client.result("engine.list")[0]["state"] == "stopped", "it is stopped again"
        )
        return [hello["bundle"], Path(command[-1]).name]


def test_noexec_file_systems_do_not_matter(tmp_path: Path) -> None:
    needs_namespaces()

    bundle, unpacked = play(
        live_where_nothing_may_be_executed,
        tmp_path,
        "-m",
        prepare=TMPFS.replace("size=40m", "size=40m,noexec"),
    )

    assert bundle == unpacked


@pytest.mark.endurance
def test_flood_of_a_gigabyte_is_bounded_on_disk_and_never_blocks_the_engine(bench: Bench) -> None:
    supervisor, plan = bench.supervisor(), python_plan(bench, FLOOD, "1024")
    supervisor.launch("k", plan, {})
    sizes: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            sizes.append(disk_bytes(bench.instance.engine(plan.engine_id).log))

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_until(
        lambda: supervisor.read_log(plan.engine_id, -9, 9).data.endswith("the end\n"),
        "all of it",
        90,
    )
    stop.set()
    watcher.join()

    chunk = supervisor.read_log(plan.engine_id, -1, 1)
    assert chunk.end_offset == (1 << 30) + len("the end\n")
    assert chunk.dropped == 0
    assert max(sizes) <= 9 * (8 << 20)
    supervisor.tick()
    assert status_of(supervisor, plan.engine_id).pid is not None


def disk_bytes(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def test_bytes_of_every_kind_are_kept_and_shown_clean(bench: Bench) -> None:
    odd = b"".join(
        [
            b"z" * 10_000_000 + b"\n",
            b"\r".join(b"bar %d%%" % number for number in range(101)) + b"\n",
            b"\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07\n",
            b"\xff\xfe\xc3( invalid \xed\xa0\x80\n",
            b"nul \0 byte\n",
            b"no end of line",
        ]
    )
    (bench.root / "odd").write_bytes(odd)
    code = "import os, sys, time\ndata = open(sys.argv[1], 'rb').read()\nwhile data: data = data[os.write(1, data):]\ntime.sleep(600)"
    supervisor, plan = bench.supervisor(), python_plan(bench, code, str(bench.root / "odd"))

    supervisor.launch("k", plan, {})

    wait_until(
        lambda: supervisor.read_log(plan.engine_id, -1, 1).end_offset == len(odd), "all is stored"
    )
    assert read_all(bench, plan.engine_id) == odd
    began = time.monotonic()
    supervisor.tick()
    assert time.monotonic() - began < 5
    assert not status_of(supervisor, plan.engine_id).state.is_over


def read_all(bench: Bench, engine_id: str) -> bytes:
    data, offset = b"", 0
    while True:
        chunk = bench.supervisors[-1].read_log(engine_id, offset, 1 << 20)
        if not chunk.data:
            return data
        data += chunk.data.encode("utf-8", "surrogateescape")
        offset = chunk.next_offset


def make_read_only(folder: Path) -> None:
    """Put the folder over itself, read-only from the first moment on.

    Made read-only only when it is in its place, it would stay writable for ever where a shim opens its log in between.
    """
    aside = folder.with_name(f"{folder.name}-read-only")
    aside.mkdir()
    for words in (
        ("--bind", folder, aside),
        ("-o", "remount,ro,bind", aside),
        ("--move", aside, folder),
    ):
        subprocess.run(["mount", *words], check=True)


def start_a_daemon_over_read_only_state(root: Path) -> Any:
    small = root / "small"
    with agent_home(small) as home:
        home.start_daemon()
        client = home.connect()
        launched = client.result(
            "engine.launch", key="k", rank=to_jsonable(make_rank()), secrets={}
        )
        client.close()
        daemon = home.daemon_pid
        assert daemon is not None
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: home.daemon_pid is None, "the daemon is gone")
        make_read_only(small)
        client = PipeClient(home.start("proxy"))
        (adopted,) = client.result("engine.list")
        client.result("engine.stop", key="s", engine="counter", grace_seconds=0.5)
        wait_until(lambda: client.result("engine.list")[0]["state"] == "stopped", "it is stopped")
        client.result("daemon.stop")
        subprocess.run(["umount", "--lazy", small], check=True)
        return [launched["pid"], adopted["pid"], adopted["adopted"]]


def test_daemon_starts_over_a_read_only_state_directory(tmp_path: Path) -> None:
    needs_namespaces()

    launched, adopted, is_adopted = play(
        start_a_daemon_over_read_only_state, tmp_path, "-m", prepare=TMPFS
    )

    assert (launched, True) == (adopted, is_adopted)


PUMP = "import sys; from llmgw_core.agent.pump import Pump\np = Pump(sys.argv[1], sys.argv[2], 1 << 20, 9999)\nprint(flush=True)\nwhile True: p.drain(64)"
COUNTER = "import os\nn = 0\nwhile n < 4000000:\n    os.write(1, b''.join(b'%09d\\n' % i for i in range(n, n + 1000))); n += 1000"


@pytest.mark.endurance
def test_pump_killed_over_and_over_at_full_speed_loses_and_doubles_no_byte(
    tmp_path: Path,
) -> None:
    fifo, log = tmp_path / "fifo", tmp_path / "log"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR)
    writer = subprocess.Popen([sys.executable, "-I", "-S", "-c", COUNTER], stdout=held)
    kills = 0
    try:
        while writer.poll() is None:
            command = [sys.executable, "-c", PUMP, str(fifo), str(log)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as pump:
                assert pump.stdout is not None
                pump.stdout.readline()
                time.sleep(0.003 * (kills % 5))
                pump.kill()
            kills += 1
    finally:
        writer.kill()
        writer.wait()
    last = Pump(str(fifo), str(log), 1 << 20, 9999)
    while last.drain(64):
        pass
    last.close()
    os.close(held)

    data = b"".join(Path(path).read_bytes() for _, path in list_segments(str(log)))
    assert kills >= 20
    assert data == b"".join(b"%09d\n" % number for number in range(4_000_000))
