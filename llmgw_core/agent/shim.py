"""The small process above each engine: starts it, stores what it prints, reaps it, and records how it ended.

Started as `python -I -S … shim DIR`; it reads `spec.json` and `secrets.json` there and answers one JSON line on stdout:
`{"ok": true, "pid": 4711}`, or `{"ok": false, "errno", "what"}`. Then it lives in a session of its own until the engine's
last process has ended. With `--pump` it takes over from a shim that was killed: it stores the log, and cannot know an exit code.

Imports little on purpose: there is one shim per engine, at most 6 MB of private memory each.
"""

# ruff: noqa: PTH110, PTH117, PTH118, PTH119, PTH120, PTH123
# pathlib would double the shim's memory.
from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import time

from llmgw_core.agent.cgroups import enter_cgroup, make_cgroup, remove_cgroup
from llmgw_core.agent.durable import read_json, write_durably, write_json_durably
from llmgw_core.agent.exits import ExitNote, OomWatch, describe_end, now_rfc3339
from llmgw_core.agent.procfs import (
    is_alive,
    read_all_stats,
    read_boot_id,
    read_namespace,
    read_stat,
)
from llmgw_core.agent.pump import SEGMENT_BYTES, SEGMENTS_KEPT, Pump

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NAME = 15
IGNORED = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE)
ENGINE_OOM_ADJ = 200  # the kernel takes the engine before the shim and the daemon
READS_PER_TURN = 64
EXEC_FAILED_CODE = 127
SHIM_VARIABLES = ("LLMGW_SHIM_SEGMENT_BYTES", "LLMGW_SHIM_SEGMENTS")  # for tests: small logs


def main(directory: str, pump_only: bool = False) -> int:
    """Become the shim of that engine directory; returns in the first process only."""
    answer = os.dup(1)  # not inherited by what is executed
    if os.fork():
        return 0
    os.setsid()
    if os.fork():
        os._exit(0)
    code = 1
    try:
        _detach(directory)
        if pump_only:
            os.close(answer)
        code = _follow(directory) if pump_only else _supervise(directory, answer)
    except OSError as error:
        _tell(answer, {"ok": False, "errno": error.errno, "what": str(error)})
    except BaseException as error:  # noqa: BLE001 - the edge: nobody above can hear of it
        _tell(answer, {"ok": False, "errno": None, "what": repr(error)})
        sys.excepthook(type(error), error, error.__traceback__)  # to shim.err
    finally:
        os._exit(code)


def build_environment(
    base: dict[str, str], spec_env: dict[str, str], secrets: dict[str, str], engine_id: str
) -> dict[str, str]:
    """The engine's environment: the node's, the plan's, the secrets, and the marker by which its processes are found."""
    env = {key: value for key, value in base.items() if key not in SHIM_VARIABLES}
    env.update(spec_env)
    env.update((name, value) for name, value in secrets.items() if not name.startswith("-"))
    env["LLMGW_ENGINE"] = engine_id
    # py-setproctitle, which vLLM uses, would overwrite the environment in memory and with it the marker.
    env["SPT_NOENV"] = "1"
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def put_venv_first(base: dict[str, str], program: str) -> dict[str, str]:
    """The environment with the program's virtual environment first on PATH, as `activate` would have it.

    Engines call by name what is installed beside them: FlashInfer, for one, builds its kernels with `ninja`.
    """
    folder = os.path.dirname(program)
    if os.path.isabs(folder) and os.path.exists(os.path.join(folder, "..", "pyvenv.cfg")):
        return {**base, "PATH": f"{folder}:{base.get('PATH', os.defpath)}"}
    return base


def _detach(directory: str) -> None:
    os.umask(0o077)
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    errors = os.open(
        os.path.join(directory, "shim.err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
    )
    for target, source in ((0, null), (1, null), (2, errors)):
        os.dup2(source, target)
    os.close(null)
    os.close(errors)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_NAME, b"llmgw-shim", 0, 0, 0)  # as `ps` and `top` show it
    _adjust_oom(-999)  # root only; others stay as they are


def _adjust_oom(value: int) -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(value))
    except OSError:
        return


def _lock_pump(directory: str) -> int:
    fd = os.open(os.path.join(directory, "pump.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def _open_pump(directory: str) -> Pump:
    size, kept = (os.environ.get(name) for name in SHIM_VARIABLES)
    return Pump(
        os.path.join(directory, "out.fifo"),
        os.path.join(directory, "log"),
        int(size) if size else SEGMENT_BYTES,
        int(kept) if kept else SEGMENTS_KEPT,
    )


def _tell(answer: int, value: dict[str, object]) -> None:
    try:
        os.write(answer, json.dumps(value).encode("ascii") + b"\n")
    except OSError:
        return  # the daemon went away meanwhile: the records say the same


def _supervise(directory: str, answer: int) -> int:
    _lock_pump(directory)
    spec = read_json(os.path.join(directory, "spec.json"))
    fifo = os.path.join(directory, "out.fifo")
    if not os.path.exists(fifo):
        os.mkfifo(fifo, 0o600)
    pump = _open_pump(directory)
    signal.signal(signal.SIGCHLD, _wake)
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    cgroup = make_cgroup(os.path.basename(directory))
    pid, failure = _start_engine(directory, spec, cgroup)
    if failure:
        record = {
            "code": EXEC_FAILED_CODE,
            "signal": None,
            "reason": "exec-failed",
            "ended_at": now_rfc3339(),
        }
        note = ExitNote(directory)
        note.make({**record, "detail": failure})
        note.write()
        _tell(answer, {"ok": False, "errno": None, "what": failure, "exec": True})
        return 1
    _tell(answer, {"ok": True, "pid": pid})
    os.close(answer)
    _pump_until_over(directory, pump, woken, pid)
    remove_cgroup(cgroup)
    return 0


def _wake(number: int, frame: object) -> None:
    """Exists so that SIGCHLD is delivered at all: the wake-up descriptor does the work."""


def _start_engine(directory: str, spec: dict[str, object], cgroup: str) -> tuple[int, str]:
    """(pid, "") of the engine that runs, or (pid, why it could not be started)."""
    if cgroup:
        write_durably(os.path.join(directory, "cgroup"), cgroup.encode("utf-8", "surrogateescape"))
    go_read, go_write = os.pipe()
    told_read, told_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go_write)
        os.close(told_read)
        _become_engine(directory, spec, cgroup, go_read, told_write)
    os.close(go_read)
    os.close(told_write)
    _record_run(directory, spec, child)
    os.write(go_write, b"g")
    os.close(go_write)
    failure = b""
    while True:
        piece = os.read(told_read, 4096)
        if not piece:
            break
        failure += piece
    os.close(told_read)
    if failure:
        os.waitpid(child, 0)
    return child, failure.decode("utf-8", "replace")


def _become_engine(
    directory: str, spec: dict[str, object], cgroup: str, go: int, told: int
) -> None:
    """In the child: wait until it is on record, then be the engine. Never returns."""
    step = "prepare"
    try:
        os.setsid()
        if os.read(go, 1) != b"g":
            os._exit(EXEC_FAILED_CODE)  # the shim died before the record was durable
        if cgroup:
            enter_cgroup(cgroup)
        rank = spec["rank"]
        assert isinstance(rank, dict)  # noqa: S101 - the supervisor wrote it
        base = put_venv_first(dict(os.environ), rank["argv"][0])
        env = build_environment(base, rank["env"], _read_secrets(directory), rank["engine_id"])
        cwd = rank.get("cwd") or os.path.join(directory, "work")
        step = f"working directory {cwd}"
        os.chdir(cwd)
        step = "limits and descriptors"
        _prepare_process(directory, told)
        step = f"exec {rank['argv'][0]}"
        argv = [*rank["argv"], *_list_key_words(directory, rank)]
        os.execvpe(argv[0], argv, env)  # noqa: S606 - no shell is the point
    except BaseException as error:  # noqa: BLE001 - the last place that can tell; the shim records it
        os.write(told, f"{step}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(EXEC_FAILED_CODE)


def _list_key_words(directory: str, rank: dict[str, object]) -> list[str]:
    """`--config FILE` for an engine that reads its API key from a file."""
    flag = rank.get("api_key")
    if not isinstance(flag, str) or not flag.startswith("-"):
        return []
    return [flag, os.path.join(directory, "api-key.yaml")]


def _prepare_process(directory: str, told: int) -> None:
    # Opened anew, so that the pump's O_NONBLOCK is not the engine's.
    out = os.open(os.path.join(directory, "out.fifo"), os.O_RDWR)
    null = os.open("/dev/null", os.O_RDONLY)
    for target, source in ((0, null), (1, out), (2, out)):
        os.dup2(source, target)
    highest = max(told, out, null) + 64
    os.closerange(3, told)
    os.closerange(told + 1, highest)
    os.set_inheritable(told, False)
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # numbers that libc keeps for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    _adjust_oom(ENGINE_OOM_ADJ)


def _read_secrets(directory: str) -> dict[str, str]:
    try:
        secrets = read_json(os.path.join(directory, "secrets.json"))
    except FileNotFoundError:
        return {}
    return {key: str(value) for key, value in secrets.items()}


def _record_run(directory: str, spec: dict[str, object], child: int) -> None:
    engine, own = read_stat(child), read_stat(os.getpid())
    record: dict[str, object] = {
        "version": 1,
        "pid": child,
        "start_ticks": engine.start_ticks if engine else 0,
        "pgid": child,
        "sid": child,
        "shim": {"pid": os.getpid(), "start_ticks": own.start_ticks if own else 0},
        "boot_id": read_boot_id(),
        "pid_namespace": read_namespace("pid"),
        "argv_sha256": spec.get("argv_sha256", ""),
        "started_at": now_rfc3339(),
        "started_boottime": time.clock_gettime(time.CLOCK_BOOTTIME),
    }
    write_json_durably(os.path.join(directory, "run.json"), record)


def _pump_until_over(directory: str, pump: Pump, woken: int, leader: int) -> None:
    poll = select.poll()
    poll.register(pump.fd, select.POLLIN)
    poll.register(woken, select.POLLIN)
    ooms = OomWatch()
    exit_note = ExitNote(directory)
    children_live = True
    while children_live or exit_note.is_pending:
        # While what it printed is not told or the log directory might vanish, look once a second.
        poll.poll(1000)
        _drain_wakeups(woken)
        pump.drain(READS_PER_TURN)
        ooms.look()
        while children_live:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                children_live = False
                break
            if pid == 0:
                break
            if pid == leader and not exit_note.is_made:
                pump.drain(READS_PER_TURN)
                exit_note.make(describe_end(status, _wants_stop(directory), ooms.has_risen()))
        exit_note.write()
    while pump.drain(READS_PER_TURN):
        pass
    pump.close()


def _drain_wakeups(fd: int) -> None:
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        return


def _wants_stop(directory: str) -> bool:
    try:
        intent = read_json(os.path.join(directory, "intent.json"))
    except (OSError, ValueError):
        return False
    return intent.get("want") == "stop" and intent.get("cause") == "operator"


def _follow(directory: str) -> int:
    """Store the log of an engine whose shim was killed, until nothing of its session is left."""
    try:
        _lock_pump(directory)
    except BlockingIOError:
        return 0  # another one does it
    own = read_stat(os.getpid())
    write_json_durably(
        os.path.join(directory, "pump.json"),
        {"pid": os.getpid(), "start_ticks": own.start_ticks if own else 0},
    )
    run = read_json(os.path.join(directory, "run.json"))
    numbers = [run.get(key) for key in ("pid", "start_ticks", "sid")]
    pid, start_ticks, sid = (value if isinstance(value, int) else -1 for value in numbers)
    pump = _open_pump(directory)
    poll = select.poll()
    poll.register(pump.fd, select.POLLIN)
    checked_at = time.monotonic()
    while True:
        poll.poll(1000)
        pump.drain(READS_PER_TURN)
        if time.monotonic() - checked_at < 1:
            continue
        checked_at = time.monotonic()
        if not is_alive(pid, start_ticks) and not _session_lives(sid):
            break
    while pump.drain(READS_PER_TURN):
        pass
    pump.close()
    return 0


def _session_lives(sid: int) -> bool:
    return any(stat.sid == sid and not stat.is_dead for stat in read_all_stats().values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--pump" in sys.argv[2:]))
