"""One engine as its supervisor sees it: its records, its processes, and the state they add up to."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Dict, Optional, Set, Tuple, Type, TypeVar

from llmgw_core.agent.cgroups import list_cgroup, remove_cgroup
from llmgw_core.agent.diagnosis import diagnose
from llmgw_core.agent.durable import read_json
from llmgw_core.agent.logs import LineReader, hide_secrets, read_ends
from llmgw_core.agent.members import Census, find_members, identify, is_living
from llmgw_core.agent.paths import EngineDir
from llmgw_core.agent.phases import PhaseTracker
from llmgw_core.agent.procfs import ProcessStat, read_boot_id, read_namespace
from llmgw_core.agent.readiness import Answer, Prober, engine_address, find_api_key
from llmgw_core.agent.records import (
    ExitRecord,
    IntentRecord,
    ProcessId,
    ReadyRecord,
    RunRecord,
    SpecRecord,
    TornRecord,
    read_record,
    write_record,
)
from llmgw_core.agent.times import rfc3339
from llmgw_core.domain.engine import Diagnosis, EngineExit, EngineKind, EngineState, EngineStatus

T = TypeVar("T")
LINES_PER_TICK_BYTES = 256 << 10
DIAGNOSIS_HEAD_BYTES = 2 << 20
DIAGNOSIS_TAIL_BYTES = 2 << 20
DIAGNOSIS_END_BYTES = 512 << 10
MIN_SECRET_BYTES = 4  # shorter values would star out half the log
CANNOT_ANSWER_AFTER = 3  # rounds that were healthy and gave no token
_PHASE_AFTER_READY = "serving"


class Engine:
    """What is known of one engine. Not thread-safe: its supervisor holds the lock."""

    def __init__(self, directory: EngineDir, adopted: bool) -> None:
        self.directory = directory
        self.adopted = adopted
        self.torn = ""  # why its records cannot be trusted; "" when they can
        self.state = EngineState.PENDING
        self.diagnosis: Optional[Diagnosis] = None
        self.kept_diagnosis: Optional[Diagnosis] = None  # of an end that goes on
        self.known: Tuple[ProcessId, ...] = ()  # members of the last scan
        self.pids_seen: Set[int] = set()  # of all scans: a driver may list them after their end
        self.leader_gone_at: Optional[float] = None  # boottime
        self.empty_scans = 0
        self.was_told_to_stop = False  # by an operator, while its leader lived, by this daemon
        self.spec = self._read(directory.spec, SpecRecord)
        self.run: Optional[RunRecord] = self._read(directory.run, RunRecord)
        self.intent = self._read(directory.intent, IntentRecord)
        self.ready = self._read(directory.ready, ReadyRecord)
        self.ended: Optional[ExitRecord] = self._read(directory.exit, ExitRecord)
        self.secrets = _read_secrets(directory)
        self.cgroup = _read_cgroup(directory)
        self._was_ready_here = False
        self._prober: Optional[Prober] = None
        kind = self.spec.rank.engine if self.spec else EngineKind.VLLM
        self.phases = PhaseTracker(kind)
        self._lines = LineReader(directory.log)
        self._check_origin()
        if self.torn:
            self.state = EngineState.UNKNOWN

    @property
    def id(self) -> str:
        """The engine's id."""
        return self.directory.id

    @property
    def name(self) -> str:
        """The engine's name; its id when the spec cannot be read."""
        return self.spec.rank.name if self.spec else self.id

    @property
    def is_steady(self) -> bool:
        """Whether it is over, or ready and alone: ranks of several have to tell one another."""
        is_alone = self.spec is not None and self.spec.rank.gang is None
        return self.is_over or (is_alone and self.state is EngineState.READY)

    @property
    def is_ending(self) -> bool:
        """Whether its end is a matter of moments: it is being stopped, or has just lost its leader."""
        lingers = self.state in (EngineState.STUCK, EngineState.ORPHANS)
        began = self.state is EngineState.STOPPING or self.leader_gone_at is not None
        return began and not lingers and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state.is_over

    @property
    def wants_stop(self) -> bool:
        """Whether it is to end."""
        return self.intent is not None and self.intent.want == "stop"

    @property
    def leader_lives(self) -> bool:
        """Whether the engine's first process lives."""
        return self.run is not None and is_living(self.run.leader)

    @property
    def shim_lives(self) -> bool:
        """Whether the shim that started it lives: it alone will know the exit code."""
        return self.run is not None and is_living(self.run.shim)

    @property
    def secret_bytes(self) -> Tuple[bytes, ...]:
        """Values that must not leave the node, longest first."""
        values = {value.encode("utf-8", "surrogateescape") for value in self.secrets.values()}
        return tuple(
            sorted((v for v in values if len(v) >= MIN_SECRET_BYTES), key=len, reverse=True)
        )

    def reload(self) -> None:
        """Read the records that appear while it lives: how it was started, and how it ended."""
        self.cgroup = self.cgroup or _read_cgroup(self.directory)
        if self.run is None:
            self.run = self._read(self.directory.run, RunRecord)
        if self.ended is None and self.directory.exit.exists():
            self.ended = self._read(self.directory.exit, ExitRecord)

    def scan(self, census: Census, with_markers: bool) -> Tuple[ProcessStat, ...]:
        """Its living processes now; remembered, so that one that breaks away later is still found."""
        if self.run is None:
            return ()
        marked = census.marked if with_markers else {}
        own = [pid for pid, engine in marked.items() if engine == self.id]
        own += list_cgroup(self.cgroup)
        members = find_members(census.processes, self.run, self.shim_lives, self.known, own)
        self.known = identify(members)
        self.pids_seen.update(stat.pid for stat in members)
        return members

    def read_progress(self) -> None:
        """Take in what it printed since the last time; nothing to learn once it was ready."""
        if self.ready is None:
            self.phases.feed(self._lines.read_lines(LINES_PER_TICK_BYTES))

    def observe_running(self, ask: bool = True) -> None:
        """Set the state of an engine whose leader lives and that is to run.

        Args:
            ask: start asking it over HTTP, in a thread; else only what was heard so far counts.
        """
        self.read_progress()
        rank = self.spec.rank if self.spec else None
        if rank is None:
            return
        if rank.port is None:
            self._observe_silent_rank()
            return
        if self._prober is None and ask:
            key = find_api_key(rank, self.secrets)
            verified = self.ready is not None
            self._prober = Prober(rank, key, verified)
        self._judge(self._prober.latest if self._prober else Answer())

    def set_watched(self, is_watched: bool) -> None:
        """Whether anybody sees how it is."""
        if self._prober is not None:
            self._prober.set_watched(is_watched)

    def stop_asking(self, wait_s: float = 0.0) -> None:
        """End the thread that asks it."""
        if self._prober is not None:
            self._prober.close(wait_s)
            self._prober = None

    def finish(self, ended_at: str) -> None:
        """Nothing of it lives: record how it ended, if nobody did, and why."""
        self.stop_asking()
        if self.cgroup:
            remove_cgroup(self.cgroup)
        operator = self.intent is not None and self.intent.cause == "operator" and self.wants_stop
        if self.ended is None:
            reason = "stopped" if operator else "unknown"
            self.ended = ExitRecord(None, None, reason, ended_at)
            self._keep(self.directory.exit, self.ended)
        self.settle()

    def settle(self) -> None:
        """Set the state of an engine that is over, with the reason why it failed."""
        assert self.ended is not None  # noqa: S101 - the caller saw to it
        if self.was_told_to_stop and self.ended.reason in ("exited", "killed"):
            # The shim could not read that from the intent: the disk was full when the stop was asked for.
            self.ended = replace(self.ended, reason="stopped")
            self._keep(self.directory.exit, self.ended)
        stopped = self.ended.reason == "stopped"
        self.state = EngineState.STOPPED if stopped else EngineState.FAILED
        self.diagnosis = None
        if self.state is EngineState.FAILED:
            self.diagnosis = self._read_or_make_diagnosis()

    def status(self) -> EngineStatus:
        """It as the headless contract shows it."""
        rank = self.spec.rank if self.spec else None
        ready = self.state is EngineState.READY
        known_phase = self.state in (EngineState.READY, EngineState.UNREADY) and self.ready
        phase = _PHASE_AFTER_READY if known_phase else self.phases.phase
        running = not self.is_over and self.leader_gone_at is None
        host, port = engine_address(rank) if rank else ("", 0)
        return EngineStatus(
            id=self.id,
            name=self.name,
            engine=rank.engine if rank else EngineKind.VLLM,
            model=rank.model if rank else "",
            served_model_name=rank.served_model_name if rank else "",
            state=self.state,
            ready=ready,
            rank=rank.rank if rank else 0,
            ranks=rank.ranks if rank else 1,
            pid=self.run.pid if self.run is not None and running else None,
            gpus=rank.gpus if rank else (),
            url=f"http://{_bracket(host)}:{port}" if rank and rank.port else None,
            adopted=self.adopted,
            started_at=self.run.started_at if self.run else None,
            phase=phase,
            progress=None if known_phase else self.phases.progress,
            exit=self._exit(),
            diagnosis=self.diagnosis,
        )

    def keep_diagnosis(self, diagnosis: Diagnosis) -> None:
        """Why it is about to be ended, known before its end: to be told then, whatever its log says."""
        self.kept_diagnosis = diagnosis
        self._keep(self.directory.diagnosis, diagnosis)

    def _exit(self) -> Optional[EngineExit]:
        if self.ended is None:
            return None
        return EngineExit(self.ended.code, self.ended.signal, self.ended.reason)

    def _observe_silent_rank(self) -> None:
        if self.ready is None and self.phases.is_loaded:
            self._become_ready(verified=False)
        if self.ready is not None:
            self.state = EngineState.READY
        else:
            self.state = EngineState.LOADING if self.phases.is_loading else EngineState.STARTING

    def _judge(self, answer: Answer) -> None:
        self.diagnosis = None
        if answer.is_healthy and answer.is_verified:
            if self.ready is None:
                self._become_ready(verified=bool(self.spec and self.spec.rank.verify))
            self._was_ready_here = True
            self.state = EngineState.READY
        elif self.ready is not None:
            patient = self._was_ready_here and answer.misses <= 1
            self.state = EngineState.READY if patient else EngineState.UNREADY
            if answer.trouble:
                self.diagnosis = self._trouble("unready", answer.trouble)
        elif answer.is_healthy and answer.misses >= CANNOT_ANSWER_AFTER:
            self.state = EngineState.UNREADY
            self.diagnosis = self._trouble("cannot-answer", answer.trouble)
        elif self.phases.is_loading or answer.is_listening:
            self.state = EngineState.LOADING
            if answer.is_listening and answer.trouble and answer.misses >= CANNOT_ANSWER_AFTER:
                self.diagnosis = self._trouble("not-ready", answer.trouble)
        else:
            self.state = EngineState.STARTING

    def _become_ready(self, verified: bool) -> None:
        now = rfc3339()
        self.ready = ReadyRecord(now, now if verified else None)
        self._keep(self.directory.ready, self.ready)

    def _trouble(self, code: str, text: str) -> Diagnosis:
        return Diagnosis(code, self._hide(text), "read the log: llmgw logs " + self.name)

    def _hide(self, text: str) -> str:
        data = text.encode("utf-8", "surrogateescape")
        return hide_secrets(data, self.secret_bytes).decode("utf-8", "replace")

    def _read_or_make_diagnosis(self) -> Diagnosis:
        kept = self._read(self.directory.diagnosis, Diagnosis)
        if kept is not None:
            return kept
        made = self._diagnose()
        made = replace(made, message=self._hide(made.message))
        self._keep(self.directory.diagnosis, made)
        return made

    def _keep(self, path: Path, record: object) -> None:
        """Write down what the next daemon can find out again by itself: a full disk changes nothing of what is told."""
        with contextlib.suppress(OSError):
            write_record(path, record)

    def _diagnose(self) -> Diagnosis:
        ended = self._exit() or EngineExit()
        if self.intent is not None and self.intent.cause == "load-deadline":
            seconds = self.spec.rank.load_deadline_seconds if self.spec else 0
            phase = self.phases.phase or "start"
            return Diagnosis(
                "load-deadline",
                f"it was not ready within {seconds:g} s and was stopped in phase {phase}",
                "give it more time (load_deadline_seconds), or look at what it waits for in the log",
            )
        # Of an engine that served, only the end counts: errors of past requests did not kill it.
        head, tail = (
            (0, DIAGNOSIS_END_BYTES)
            if self.ready is not None
            else (DIAGNOSIS_HEAD_BYTES, DIAGNOSIS_TAIL_BYTES)
        )
        text = read_ends(self.directory.log, head, tail)
        detail = self.ended.detail if self.ended else ""
        return diagnose(text, ended, self.ready is not None, detail)

    def _check_origin(self) -> None:
        if self.run is None or self.torn:
            return
        if self.run.boot_id != read_boot_id():
            self.ended = self.ended or ExitRecord(None, None, "host-rebooted", rfc3339())
        elif self.run.pid_namespace != read_namespace("pid"):
            self.torn = "it was started in another PID namespace: its pids mean nothing here"

    def _read(self, path: Path, kind: Type[T]) -> Optional[T]:
        try:
            return read_record(path, kind)
        except TornRecord as error:
            self.torn = str(error)
            self.state = EngineState.UNKNOWN
            return None


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _read_cgroup(directory: EngineDir) -> str:
    """Path of the engine's cgroup; "" where it has none. Only one that bears its name is believed."""
    try:
        path = directory.cgroup.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    return path if Path(path).name.startswith(f"llmgw-{directory.id}-") else ""


def _read_secrets(directory: EngineDir) -> Dict[str, str]:
    try:
        data = read_json(str(directory.secrets))
    except (OSError, ValueError):
        return {}
    return {key: str(value) for key, value in data.items()}
