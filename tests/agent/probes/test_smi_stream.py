"""The stream of nvidia-smi: whole sweeps alone count, and the child never runs on, hangs unseen or starts twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent import inventory, live
from llmgw_core.agent.inventory import NodeProbe
from llmgw_core.agent.probes import smi_stream
from llmgw_core.agent.probes.smi_stream import SmiStream
from llmgw_core.agent.probes.sweeps import LIVE_FIELDS, SweepParser, lay_over
from llmgw_core.domain.hardware import Gpu
from llmgw_core.domain.inventory import Node
from tests.support.agents import AgentHome, agent_home, wait_for
from tests.support.hardware import gpu_uuid, smi_gpu, write_nvidia_smi

ROOT = Path(__file__).parents[3]


def row(index: int, used: object = 4, *, util: object = 7, uuid: str | None = None) -> str:
    """One line as `nvidia-smi -lms` prints it."""
    cells = (index, uuid or gpu_uuid(index), used, 80000, util, 36, 71.22, 1980, 2619)
    return ", ".join(map(str, cells)) + "\n"


def parse(text: str, expected: int = 2) -> list[list[str | None]]:
    """The `memory.used` of each row of each sweep."""
    sweeps = SweepParser(LIVE_FIELDS, expected).feed(text.encode())
    return [[item.text("memory.used") for item in sweep] for sweep in sweeps]


def test_sweep_is_given_with_its_last_row() -> None:
    assert parse(row(0, 1) + row(1, 2) + row(0, 3)) == [["1", "2"]]


def test_rows_may_come_in_any_pieces() -> None:
    parser = SweepParser(LIVE_FIELDS, 2)
    text = (row(0) + row(1)) * 2

    found = [sweep for letter in text for sweep in parser.feed(letter.encode())]

    assert [len(sweep) for sweep in found] == [2, 2]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(row(0), id="a row is missing"),
        pytest.param(row(1), id="the first is missing"),
        pytest.param(row(0) + row(1)[:30] + "\n", id="a line ends early"),
        pytest.param(row(0)[:30] + row(1), id="two lines run together"),
        pytest.param("x" * 100_000, id="no line at all"),
        pytest.param("\0\xff;\n\n, , ,\n", id="rubbish"),
        pytest.param("²" + row(0), id="a digit that is no number"),
    ],
)
def test_sweep_that_is_not_whole_counts_for_nothing_and_the_next_does(bad: str) -> None:
    good = row(0, 1) + row(1, 2)

    assert parse(good + bad + "\n" + row(0, 3) + row(1, 4))[-1] == ["3", "4"]
    assert ["1", "2"] in parse(good + bad)


def test_message_between_rows_is_no_row() -> None:
    text = row(0) + "WARNING: infoROM is corrupted at gpu 0000:B3:00.0\n" + row(1)

    assert parse(text) == [["4", "4"]]


def test_more_gpus_than_expected_are_told_by_their_number() -> None:
    parser = SweepParser(LIVE_FIELDS, 2)
    parser.feed((row(0) + row(1) + row(2) + row(0)).encode())

    assert parser.misfits == 1


@given(st.lists(st.binary(max_size=200)))
def test_any_bytes_are_read_without_an_error(pieces: list[bytes]) -> None:
    parser = SweepParser(LIVE_FIELDS, 1)
    for piece in pieces:
        for sweep in parser.feed(piece):
            lay_over([Gpu(0, uuid=gpu_uuid(0), memory_used_mib=1)], sweep)


def lay(gpu: Gpu, text: str) -> tuple[Gpu, bool]:
    (sweep,) = SweepParser(LIVE_FIELDS, 1).feed(text.encode())
    laid = lay_over([gpu], sweep)
    return laid.gpus[0], laid.is_doubtful


READ = Gpu(0, uuid=gpu_uuid(0), memory_used_mib=4, utilization_percent=0, power_watts=70.0)


def test_readings_are_the_sweeps_and_the_rest_stays() -> None:
    gpu, is_doubtful = lay(READ, row(0, 5, util=93))

    assert (gpu.memory_used_mib, gpu.utilization_percent, gpu.power_watts) == (5, 93, 71.22)
    assert (gpu.uuid, is_doubtful) == (READ.uuid, False)


def test_reading_the_gpu_does_not_have_is_not_invented() -> None:
    gpu, _ = lay(Gpu(0, uuid=gpu_uuid(0)), row(0, 0))

    assert (gpu.memory_used_mib, gpu.utilization_percent, gpu.temperature_celsius) == (None,) * 3


@pytest.mark.parametrize("cell", ["[N/A]", "[Unknown Error]", "[GPU requires reset]", "", "-3"])
def test_cell_without_a_value_is_unknown_and_calls_for_a_full_reading(cell: str) -> None:
    gpu, is_doubtful = lay(READ, row(0, cell))

    assert (gpu.memory_used_mib, is_doubtful) == (None, True)


@pytest.mark.parametrize("text", [row(0, 9000), row(0, uuid="GPU-another")])
def test_memory_that_came_or_another_gpu_calls_for_a_full_reading(text: str) -> None:
    assert lay(READ, text)[1] is True


# The child. Its only fake is the program itself.

SCRIPT = f"""#!{sys.executable} -IS
import os, signal, sys, time
open(sys.argv[0] + ".starts", "a").write("%d\\n" % os.getpid())
row = {row(0, "USED")!r}
def say(used):
    sys.stdout.write(row.replace("USED", str(used)))
    sys.stdout.flush()
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    def write(body: str) -> str:
        path = tmp_path / "nvidia-smi"
        path.write_text(SCRIPT + body)
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def stream() -> Iterator[SmiStream]:
    made = SmiStream(dict(os.environ))
    yield made
    made.close()


def starts(program: str) -> list[int]:
    """Pids of all that were started."""
    try:
        return [int(line) for line in Path(f"{program}.starts").read_text().split()]
    except FileNotFoundError:
        return []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def used(stream: SmiStream) -> str | None:
    sweep = stream.latest()
    return None if sweep is None else sweep.rows[0].text("memory.used")


def kept(stream: SmiStream, path: str) -> SmiStream:
    """The stream, asked for again."""
    stream.keep(path, LIVE_FIELDS, 1)
    return stream


FOREVER = "while True:\n    say(5)\n    time.sleep(0.05)\n"


@pytest.mark.slow
def test_child_is_started_once_and_ends_when_nobody_watches(
    stream: SmiStream, program: Callable[[str], str]
) -> None:
    path = program(FOREVER)
    for _ in range(5):
        stream.keep(path, LIVE_FIELDS, 1)
    wait_for(lambda: used(stream) == "5", "a sweep")
    (pid,) = starts(path)

    stream.stop()

    wait_for(lambda: not is_alive(pid), "the child ends")
    wait_for(lambda: stream.latest() is None, "nothing old is shown")
    assert stream.trouble is None


@pytest.mark.slow
def test_reader_that_was_slow_gets_the_newest_sweep(
    stream: SmiStream, program: Callable[[str], str]
) -> None:
    stream.keep(program("for n in range(5000): say(n)\ntime.sleep(60)\n"), LIVE_FIELDS, 1)

    wait_for(lambda: used(stream) == "4999", "the newest of 5000")


@pytest.mark.slow
def test_child_that_ends_is_told_of_and_not_started_again_at_once(
    stream: SmiStream, program: Callable[[str], str]
) -> None:
    path = program("print('Field \"clocks.mem\" is not a valid field to query.'); sys.exit(2)\n")
    stream.keep(path, LIVE_FIELDS, 1)

    why = wait_for(lambda: stream.trouble, "the reason")
    stream.keep(path, LIVE_FIELDS, 1)

    assert "status 2" in why
    assert "not a valid field" in why
    assert len(starts(path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    ["time.sleep(60)\n", "while True:\n    print('rubbish', flush=True)\n    time.sleep(.01)\n"],
)
def test_child_without_whole_sweeps_is_ended_and_tried_again_after_a_pause(
    body: str, stream: SmiStream, program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smi_stream, "FIRST_S", 0.3)
    monkeypatch.setattr(smi_stream, "_PAUSES_S", (0.2,))
    path = program(body)
    stream.keep(path, LIVE_FIELDS, 1)
    why = wait_for(lambda: stream.trouble, "the reason")
    first = starts(path)[0]

    program(FOREVER)
    wait_for(lambda: used(kept(stream, path)) == "5", "it works again")

    assert "no whole sweep" in why
    assert not is_alive(first)
    assert stream.trouble is None


@pytest.mark.slow
def test_child_that_ignores_sigterm_hangs_and_no_other_is_started(
    stream: SmiStream, program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smi_stream, "FIRST_S", 0.3)
    monkeypatch.setattr(smi_stream, "_TERM_WAIT_S", 0.2)
    monkeypatch.setattr(smi_stream, "_PAUSES_S", (0.0,))
    path = program("signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)\n")
    stream.keep(path, LIVE_FIELDS, 1)
    wait_for(stream.is_hung, "it hangs")
    for _ in range(3):
        stream.keep(path, LIVE_FIELDS, 1)
    (pid,) = starts(path)

    os.kill(pid, signal.SIGKILL)

    wait_for(lambda: not stream.is_hung(), "it is gone")
    assert starts(path) == [pid]


@pytest.mark.slow
@pytest.mark.parametrize("fields", [(), ("index",), ("uuid", "memory.used")])
def test_nvidia_smi_that_cannot_tell_gpus_apart_is_not_streamed(
    fields: tuple[str, ...], stream: SmiStream, program: Callable[[str], str]
) -> None:
    path = program(FOREVER)

    stream.keep(path, fields, 1)

    assert starts(path) == []


# The same under the probe and under the daemon.

STREAMING = """
if "-lms" in sys.argv:
    open(sys.argv[0] + ".streams", "a").write("%d\\n" % os.getpid())
    while True:
        os.write(1, open(sys.argv[0] + ".say").read().encode())
        time.sleep(0.1)
"""


def write_streaming(path: Path, **changes: Any) -> Path:
    """An nvidia-smi with one GPU that streams what stands in the file `<path>.say`."""
    write_nvidia_smi(path, [smi_gpu(used=4, clocks__sm="1980", clocks__mem="2619")], **changes)
    head, _, body = path.read_text().partition("\nimport json, signal, sys, time\n")
    path.write_text(f"{head}\nimport json, os, signal, sys, time\n{STREAMING}{body}")
    Path(f"{path}.say").write_text(row(0, 5, util=42))
    return path


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[NodeProbe]:
    path = write_streaming(tmp_path / "nvidia-smi")
    (tmp_path / "sys").mkdir()
    made = NodeProbe(
        {**os.environ, "LLMGW_NVIDIA_SMI": str(path), "LLMGW_SYSFS_ROOT": str(tmp_path / "sys")}
    )
    yield made
    made.close()


def read_watched(probe: NodeProbe) -> Node:
    probe.refresh_gpus(1.0, is_watched=True)
    return probe.assess(())


@pytest.mark.slow
def test_watched_gpus_have_the_streams_readings_and_keep_their_health(probe: NodeProbe) -> None:
    first = read_watched(probe)

    node = wait_for(
        lambda: next(
            (n for n in [read_watched(probe)] if n.gpus[0].utilization_percent == 42), None
        ),
        "the stream's reading",
    )

    assert (first.gpus[0].utilization_percent, first.gpus[0].clock_memory_mhz) == (0, 2619)
    assert (node.gpus[0].available, node.gpus[0].memory_used_mib) == (True, 5)
    assert node.health == first.health


@pytest.mark.slow
def test_nothing_streams_for_a_reading_that_nobody_watches(
    probe: NodeProbe, tmp_path: Path
) -> None:
    probe.read()

    assert not (tmp_path / "nvidia-smi.streams").exists()


@pytest.mark.slow
def test_memory_that_comes_is_judged_before_ten_seconds(
    probe: NodeProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "MIN_GPU_AGE_S", 0.0)
    monkeypatch.setattr(live, "FULL_AGE_S", 3600.0)
    wait_for(lambda: read_watched(probe).gpus[0].utilization_percent == 42, "the stream")
    path = write_streaming(tmp_path / "nvidia-smi")
    head = path.read_text().replace('"memory.used": "4"', '"memory.used": "9000"')
    path.write_text(head)
    Path(f"{path}.say").write_text(row(0, 9000))

    node = wait_for(
        lambda: next((n for n in [read_watched(probe)] if n.gpus[0].health), None), "a judgement"
    )

    assert [flag.code for flag in node.gpus[0].health] == ["memory-held"]


@pytest.mark.slow
def test_nvidia_smi_that_does_not_stream_is_asked_and_it_is_said(
    probe: NodeProbe, tmp_path: Path
) -> None:
    write_nvidia_smi(tmp_path / "nvidia-smi", [smi_gpu(used=4)])

    node = wait_for(
        lambda: next((n for n in [read_watched(probe)] if n.health), None), "the reason"
    )

    assert [flag.code for flag in node.health if flag.code == "smi-stream"] == ["smi-stream"]
    assert node.gpus[0].available is True
    probe.end_watch()
    assert "smi-stream" not in [flag.code for flag in probe.assess(()).health]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AgentHome]:
    path = write_streaming(tmp_path / "nvidia-smi")
    with agent_home(tmp_path, LLMGW_NVIDIA_SMI=str(path), LLMGW_KERNEL_LOG="/dev/null") as made:
        yield made


def streams(home: AgentHome) -> list[int]:
    path = home.root / "nvidia-smi.streams"
    pids = [int(line) for line in path.read_text().split()] if path.exists() else []
    return [pid for pid in pids if is_alive(pid)]


@pytest.mark.slow
def test_stream_runs_while_somebody_watches_and_ends_with_the_last(home: AgentHome) -> None:
    home.start_daemon()
    first, second = home.connect(), home.connect()
    for client in (first, second):
        client.result("watch", interval_s=1.0)
    wait_for(lambda: len(streams(home)) == 1, "one stream for both")

    first.close()
    second.result("inventory", max_age_s=60.0)
    still = streams(home)
    second.result("unwatch")

    assert len(still) == 1
    wait_for(lambda: streams(home) == [], "it ends")
    second.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_stream_never_outlives_the_daemon(home: AgentHome, number: signal.Signals) -> None:
    pid = home.start_daemon()
    client = home.connect()
    client.result("watch", interval_s=1.0)
    wait_for(lambda: len(streams(home)) == 1, "a stream")

    os.kill(pid, number)

    wait_for(lambda: streams(home) == [], "the stream ends with its daemon")
    client.close()


@pytest.mark.slow
def test_silent_stream_ends_with_a_killed_daemon(home: AgentHome) -> None:
    """No line, so no SIGPIPE: only the kernel can tell it."""
    body = (home.root / "nvidia-smi").read_text()
    (home.root / "nvidia-smi").write_text(body.replace("time.sleep(0.1)", "time.sleep(600)"))
    pid = home.start_daemon()
    client = home.connect()
    client.result("watch", interval_s=1.0)
    wait_for(lambda: len(streams(home)) == 1, "a stream")

    os.kill(pid, signal.SIGKILL)

    wait_for(lambda: streams(home) == [], "the stream ends with its daemon")
    client.close()


def test_simulated_nvidia_smi_streams_too(tmp_path: Path) -> None:
    from llmgw_core.demo.cluster import h100s
    from llmgw_core.demo.cluster import write_nvidia_smi as write_demo

    path = write_demo(tmp_path / "gpus", h100s(1, 2))
    query = [f"--query-gpu={','.join(LIVE_FIELDS)}", "--format=csv,noheader,nounits"]
    with subprocess.Popen([str(path), *query, "-lms", "20"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        parser, found = SweepParser(LIVE_FIELDS, 2), 0
        deadline = time.monotonic() + 20
        while found < 3 and time.monotonic() < deadline:
            found += len(parser.feed(os.read(process.stdout.fileno(), 65536)))
        process.terminate()

    assert found >= 3
    assert json.loads((tmp_path / "gpus/gpus.json").read_text())
