"""Commands run side by side, with one deadline for all, bounded output, and nothing waited for that cannot be ended."""

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO, Dict, List, Mapping, Optional, Sequence, Tuple

MAX_OUTPUT_BYTES = 4 << 20
_TERM_WAIT_S = 1.0
_CHUNK_BYTES = 65536


@dataclass(frozen=True)
class CommandResult:
    """What a command said and how it ended. Undecodable bytes are replaced."""

    stdout: str = ""
    stderr: str = ""
    code: Optional[int] = None  # negative: ended by that signal; None: not started, or timed out
    timed_out: bool = False  # or printed without end
    cannot_start: str = ""  # why it could not be started
    left_running: Optional[subprocess.Popen[bytes]] = None  # outlived SIGTERM: in the driver


def run_together(
    commands: Sequence[Sequence[str]], timeout_s: float, env: Mapping[str, str]
) -> List[CommandResult]:
    """Start all commands at once and give their results in the same order.

    Those that have not ended after `timeout_s`, or print more than `MAX_OUTPUT_BYTES`, get SIGTERM and a second to
    go. What then still lives is handed back in `left_running`: never SIGKILL, which in the middle of a driver call
    has frozen GPUs, and does not end a process in uninterruptible sleep anyway.
    """
    return start_together(commands, env).finish(timeout_s)


class _Run:
    """A command under way."""

    def __init__(self) -> None:
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.cannot_start = ""
        self.chunks: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        self.size = 0
        self.was_ended = False  # by us: no answer in time, or no end of it


class Pending:
    """Commands that run while their starter does something else."""

    def __init__(self, runs: "List[_Run]") -> None:
        self._runs = runs

    def finish(self, timeout_s: float) -> List[CommandResult]:
        """Their results in the order of start, as `run_together` gives them; `timeout_s` from now."""
        _drain([run for run in self._runs if run.process is not None], time.monotonic() + timeout_s)
        for run in self._runs:
            _end(run)
        deadline = time.monotonic() + _TERM_WAIT_S
        return [_finish(run, deadline) for run in self._runs]


def start_together(commands: Sequence[Sequence[str]], env: Mapping[str, str]) -> Pending:
    """Start all commands at once. `finish` has to be called, or they are left to themselves."""
    return Pending([_start(command, env) for command in commands])


def _start(command: Sequence[str], env: Mapping[str, str]) -> _Run:
    run = _Run()
    try:
        run.process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,  # the signal shall reach what a wrapper script started, too
        )
    except (OSError, ValueError) as error:
        run.cannot_start = str(error) or type(error).__name__
    return run


def _drain(runs: Sequence[_Run], deadline: float) -> None:
    """Read all pipes until every command has closed its own, or the deadline."""
    with selectors.DefaultSelector() as selector:
        for run in runs:
            for name, pipe in _pipes(run):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, (run, name))
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ready:
                run, name = key.data
                if not _take_chunk(run, name, key.fd):
                    selector.unregister(key.fileobj)
            if not ready and time.monotonic() >= deadline:
                return


def _pipes(run: _Run) -> List[Tuple[str, IO[bytes]]]:
    process = run.process
    if process is None or process.stdout is None or process.stderr is None:
        return []
    return [("stdout", process.stdout), ("stderr", process.stderr)]


def _take_chunk(run: _Run, name: str, fd: int) -> bool:
    """Whether more may come from that pipe."""
    try:
        chunk = os.read(fd, _CHUNK_BYTES)
    except BlockingIOError:
        return True
    run.chunks[name].append(chunk)
    run.size += len(chunk)
    if run.size > MAX_OUTPUT_BYTES and run.process is not None:
        run.was_ended = True
        terminate(run.process)
        return False
    return bool(chunk)


def _end(run: _Run) -> None:
    """Ask a command to end that has not; one that closed both its pipes is about to by itself."""
    is_closed = all(chunks and chunks[-1] == b"" for chunks in run.chunks.values())
    if run.process is not None and not is_closed:
        run.was_ended = run.was_ended or run.process.poll() is None
        terminate(run.process)


def _finish(run: _Run, deadline: float) -> CommandResult:
    process = run.process
    if process is None:
        return CommandResult(cannot_start=run.cannot_start)
    code = _wait(process, deadline)
    if code is None and not run.was_ended:
        run.was_ended = True
        terminate(process)
    for _, pipe in _pipes(run):
        pipe.close()
    return CommandResult(
        stdout=b"".join(run.chunks["stdout"]).decode("utf-8", "replace"),
        stderr=b"".join(run.chunks["stderr"]).decode("utf-8", "replace"),
        code=None if run.was_ended else code,
        timed_out=run.was_ended,
        left_running=process if code is None else None,
    )


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the command and what it started, if it has not ended."""
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGTERM)
    except OSError:
        process.terminate()


def _wait(process: subprocess.Popen[bytes], deadline: float) -> Optional[int]:
    """The exit status; None when the process lives on at the deadline."""
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
