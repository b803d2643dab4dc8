"""Ends what a simulated cluster left running: its daemons, shims and engines, and nothing of anybody else."""

import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from llmgw_core.agent.dial import ask, dial
from llmgw_core.agent.members import find_marked, find_members, identify, is_living, send_signal
from llmgw_core.agent.paths import EngineDir, InstancePaths
from llmgw_core.agent.procfs import read_all_stats, read_stat
from llmgw_core.agent.records import ProcessId, RunRecord, TornRecord, read_record
from llmgw_core.demo.cluster import PARTS, find_state_dirs
from llmgw_core.errors import LlmgwError, UsageError

GRACE_S = 5.0
ANSWER_S = 3.0
_LONGEST_SOCKET_NOTE = 200


def end_cluster(root: Path, grace_s: float = GRACE_S) -> tuple[int, ...]:
    """End every process of the cluster below `root`. Returns the pids that could not be ended; normally none.

    The agents are asked to stop their engines, so that these are recorded as stopped; then the daemons go, and what is
    left of engines gets SIGTERM, a grace period, and SIGKILL.

    Raises:
        UsageError: there is no demo.
    """
    check_is_demo(root)
    states = find_state_dirs(root)
    _ask_agents(tuple(_find_instances(states)), grace_s)
    daemons = _end(tuple(_find_by_environment(states)), grace_s=1.0)
    left = daemons + _end(tuple(_find_engine_processes(states)), grace_s)
    if not left:
        _remove_far_sockets(states)
    return left


def remove_files(root: Path) -> None:
    """Remove the demo's files, and the directory itself when nothing else is in it."""
    for part in PARTS:
        path = root / part
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if not any(root.iterdir()):
        root.rmdir()


def _remove_far_sockets(states: Iterable[Path]) -> None:
    """Where a path is too long for a socket, agents put that outside of the demo's directory."""
    for instance in _find_instances(states):
        if instance.socket.parent != instance.root:
            shutil.rmtree(instance.socket.parent, ignore_errors=True)


def check_is_demo(root: Path) -> None:
    """Return when `root` holds a demo.

    Raises:
        UsageError: it does not.
    """
    if not ((root / "cluster.toml").is_file() and (root / "nodes").is_dir()):
        raise UsageError(
            f"{root} is no demo",
            "there is no cluster.toml and no nodes/ in it",
            "name the directory that `llmgw demo --print` made",
        )


def _find_instances(states: Iterable[Path]) -> Iterator[InstancePaths]:
    """The agents' directories, as their files say: nothing is made."""
    for state in states:
        for folder in state.iterdir():
            if (folder / "engines").is_dir():
                yield InstancePaths(folder, _find_socket(folder))


def _find_socket(folder: Path) -> Path:
    note = folder / "socket"
    if not note.is_file():
        return folder / "s"
    path = Path(note.read_text("utf-8")[:_LONGEST_SOCKET_NOTE])
    own = Path(f"/tmp/llmgw-{os.getuid()}")  # noqa: S108 - where agents put sockets of long paths
    return path if path.parent.parent == own else folder / "s"


def _ask_agents(instances: Iterable[InstancePaths], grace_s: float) -> None:
    """Have the engines stopped by those agents that run; returns when they are, or the grace period is well over."""
    stopping = [instance for instance in instances if _ask_to_stop(instance, grace_s)]
    deadline = time.monotonic() + grace_s + 4.0
    while stopping and time.monotonic() < deadline:
        time.sleep(0.1)
        stopping = [instance for instance in stopping if _has_engine(instance)]


def _ask_to_stop(instance: InstancePaths, grace_s: float) -> bool:
    """Whether there is an engine whose end is worth waiting for."""
    engines = _ask(instance, "engine.list", {})
    running = [item for item in engines or () if item["state"] not in {"stopped", "failed"}]
    for item in running:
        params = {"key": uuid.uuid4().hex, "engine": item["id"], "grace_seconds": grace_s}
        _ask(instance, "engine.stop", params)
    return bool(running)


def _has_engine(instance: InstancePaths) -> bool:
    engines = _ask(instance, "engine.list", {})
    return any(item["state"] not in {"stopped", "failed"} for item in engines or ())


def _ask(instance: InstancePaths, method: str, params: dict[str, Any]) -> Any:  # Any: JSON
    """The daemon's answer; None where none runs, or it does not give one: signals follow."""
    try:
        connection = dial(instance, ANSWER_S)
        if connection is None:
            return None
        with connection:
            return ask(connection, method, params, ANSWER_S)
    except (LlmgwError, OSError):
        return None


def find_processes(root: Path) -> tuple[int, ...]:
    """Return the pids of every living process of the cluster below `root`."""
    states = find_state_dirs(root)
    found = {*_find_by_environment(states), *_find_engine_processes(states)}
    return tuple(sorted(process.pid for process in found if is_living(process)))


def _find_by_environment(states: Iterable[Path]) -> Iterator[ProcessId]:
    """Daemons and proxies: their environment names the node's state directory. Never this process."""
    wanted = {b"LLMGW_STATE_DIR=" + os.fsencode(state) for state in states}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        stat = read_stat(int(entry.name))
        if stat is not None and wanted.intersection(variables):
            yield ProcessId(stat.pid, stat.start_ticks)


def _find_engine_processes(states: Iterable[Path]) -> Iterator[ProcessId]:
    processes = read_all_stats()
    marked = find_marked(processes)
    for state in states:
        for folder in state.glob("*/engines/*"):
            run = _read_run(folder)
            if run is None:
                continue
            own = [pid for pid, engine in marked.items() if engine == folder.name]
            yield from identify(find_members(processes, run, is_living(run.shim), (), own))
            yield run.shim


def _read_run(folder: Path) -> RunRecord | None:
    try:
        return read_record(EngineDir(folder).run, RunRecord)
    except TornRecord:
        return None


def _end(processes: tuple[ProcessId, ...], grace_s: float) -> tuple[int, ...]:
    for number, wait_s in (
        (signal.SIGTERM, grace_s / 2),
        (signal.SIGTERM, grace_s / 2),
        (signal.SIGKILL, GRACE_S),
    ):
        living = tuple(process for process in processes if is_living(process))
        for process in living:
            send_signal(process, number)
        _wait(living, wait_s)
    return tuple(process.pid for process in processes if is_living(process))


def _wait(processes: tuple[ProcessId, ...], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and any(is_living(process) for process in processes):
        time.sleep(0.05)
