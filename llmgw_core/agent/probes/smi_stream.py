"""One `nvidia-smi -lms` that runs while somebody watches: a thread starts it, drains it, and lives exactly as long.

The thread starts it itself, because the kernel ends a child by its parent's death when the *thread* that forked it ends.
"""

import os
import selectors
import subprocess
import sys
import threading
import time
from typing import IO, Dict, List, Mapping, NamedTuple, Optional, Sequence

from llmgw_core.agent.probes.commands import terminate
from llmgw_core.agent.probes.smi_start import build_gpu_query, smi_env
from llmgw_core.agent.probes.sweeps import LIVE_FIELDS, LIVE_KEYS, Sweep, SweepParser

INTERVAL_MS = 2000  # a sweep over eight GPUs has taken half a second
FIRST_S = 20.0  # eight GPUs without persistence mode take long to start
SILENT_S = 10.0  # after the last whole sweep
STEADY_S = 60.0  # one that ran so long starts its pauses anew
_PAUSES_S = (30.0, 60.0, 120.0, 300.0)
_TERM_WAIT_S = 2.0
_CHUNK_BYTES = 65536  # as much as a pipe holds: after a pause one read brings everything, and the newest counts
# Asks the kernel for SIGTERM when the daemon's thread ends, then becomes nvidia-smi. Where there is no ctypes, nvidia-smi
# ends at its next line, by the pipe that nobody reads: Python ignores SIGPIPE, and what it execs would too.
_WRAPPER = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)
except Exception:
    pass
if os.getppid() == int(sys.argv[1]):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit("cannot be started: %s" % error)
"""


class LiveSweep(NamedTuple):
    """The newest whole sweep."""

    rows: Sweep
    at: float  # monotonic, when it was read
    misfits: int  # how many sweeps before it were not whole


class SmiStream:
    """Keeps one nvidia-smi streaming for as long as it is asked to. Thread-safe; nothing blocks but `close`."""

    def __init__(self, env: Mapping[str, str], interval_ms: int = INTERVAL_MS) -> None:
        self._env = smi_env(env)
        self._interval_ms = interval_ms
        self._lock = threading.Lock()
        self._run: Optional[_Run] = None
        self._hung: List[subprocess.Popen[bytes]] = []
        self._failures = 0
        self._not_before = float("-inf")  # monotonic
        self._trouble: Optional[str] = None

    def keep(self, program: str, fields: Sequence[str], expected: int) -> None:
        """Have a stream: start one unless it runs, ends, or failed just now.

        Args:
            fields: those that this nvidia-smi knows.
            expected: how many GPUs there are, by a full reading; none needs no stream.
        """
        asked = tuple(name for name in LIVE_FIELDS if name in fields)
        if not expected or not set(LIVE_KEYS) <= set(asked):
            return
        with self._lock:
            run = self._run
            if run is not None and run.thread.is_alive():
                run.parser.expected = expected
                if run.asked != (program, asked):  # another nvidia-smi since
                    run.stop()
                return
            self._note_end(run)
            if self.is_hung() or time.monotonic() < self._not_before:
                return
            self._run = _Run(program, asked, expected, self._interval_ms, self._env)
            self._run.thread.start()

    def latest(self) -> Optional[LiveSweep]:
        """The newest whole sweep; None while there is none, or only an old one."""
        run = self._run
        sweep = run.latest if run is not None else None
        if sweep is None or time.monotonic() - sweep.at > SILENT_S:
            return None
        return sweep

    @property
    def trouble(self) -> Optional[str]:
        """Why there is no stream though it was asked for; None while all is well, or before one has failed."""
        with self._lock:
            run = self._run
            if run is not None and not run.thread.is_alive():
                self._note_end(run)
            return None if self.latest() is not None else self._trouble

    def is_hung(self) -> bool:
        """Whether one that did not end on SIGTERM still lives: then no other nvidia-smi is to be started."""
        run = self._run
        left = None if run is None else run.left_running
        return any(process.poll() is None for process in (*self._hung, *([left] if left else [])))

    def stop(self) -> None:
        """Nobody watches any more: ask it to end."""
        with self._lock:
            run = self._run
            if run is not None:
                run.stop()
            self._failures, self._not_before, self._trouble = 0, float("-inf"), None

    def close(self) -> None:
        """Stop, and wait a moment for the end."""
        self.stop()
        run = self._run
        if run is not None and run.thread.ident is not None:
            run.thread.join(_TERM_WAIT_S)

    def _note_end(self, run: "Optional[_Run]") -> None:
        """What an ended run means for the next. The caller holds the lock."""
        if run is None:
            return
        left = [] if run.left_running is None else [run.left_running]
        self._hung = [process for process in self._hung + left if process.poll() is None]
        self._run = None
        if run.is_stopping:
            return
        if time.monotonic() - run.began_at > STEADY_S:
            self._failures = 0
        pause_s = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        self._not_before = time.monotonic() + pause_s
        self._trouble = run.why


class _Run:
    """One child, and the thread that has it."""

    def __init__(
        self,
        program: str,
        fields: Sequence[str],
        expected: int,
        interval_ms: int,
        env: Dict[str, str],
    ) -> None:
        self.asked = (program, fields)
        self.parser = SweepParser(fields, expected)
        self.latest: Optional[LiveSweep] = None
        self.why = ""  # it ended
        self.is_stopping = False
        self.left_running: Optional[subprocess.Popen[bytes]] = None
        self.began_at = time.monotonic()
        command = [*build_gpu_query(program, fields), "-lms", str(interval_ms)]
        self.thread = threading.Thread(target=self._work, args=(command, env), daemon=True)
        self._lock = threading.Lock()
        self._process: Optional[subprocess.Popen[bytes]] = None

    def stop(self) -> None:
        """Ask the child to end; the thread ends with it."""
        with self._lock:
            self.is_stopping = True
            if self._process is not None:
                terminate(self._process)

    def _work(self, command: List[str], env: Dict[str, str]) -> None:
        try:
            process = _start(command, env)
        except (OSError, ValueError) as error:
            self.why = f"it cannot be started: {error}"
            return
        with self._lock:
            self._process = process
            if self.is_stopping:
                terminate(process)
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with process.stdout as pipe:
            has_closed = self._drain(pipe)
            self._end(process, has_closed)
        self.latest = None

    def _drain(self, pipe: IO[bytes]) -> bool:
        """Read until the end, or until no whole sweep has come for too long. Whether it was the end."""
        deadline = time.monotonic() + FIRST_S
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                data = os.read(pipe.fileno(), _CHUNK_BYTES)
                if not data:
                    return True
                if self.is_stopping:  # and it goes on talking
                    break
                sweeps = self.parser.feed(data)
                now = time.monotonic()
                if sweeps:
                    self.latest = LiveSweep(sweeps[-1], now, self.parser.misfits)
                    deadline = now + SILENT_S
                elif now >= deadline:
                    break
        return False

    def _end(self, process: "subprocess.Popen[bytes]", has_closed: bool) -> None:
        """See it gone: never by SIGKILL, which in the middle of a driver call has frozen GPUs."""
        said = f': "{self.parser.last_words}"' if self.parser.last_words else ""
        try:
            if not has_closed:
                self.why = (
                    f"it gave no whole sweep over {self.parser.expected} GPU(s) in time{said}"
                )
                terminate(process)
            code = process.wait(_TERM_WAIT_S)
            self.why = self.why or f"it ended with status {code}{said}"
        except subprocess.TimeoutExpired:
            if has_closed:
                terminate(process)
            self.why = self.why or f"it closed its output and runs on{said}"
            self.left_running = process


def _start(command: List[str], env: Dict[str, str]) -> "subprocess.Popen[bytes]":
    wrapper = [sys.executable, "-I", "-S", "-c", _WRAPPER, str(os.getpid())]
    return subprocess.Popen(
        wrapper + command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,  # the signal shall reach what a wrapper script started, too
    )
