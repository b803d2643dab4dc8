"""The engines of one instance: launched, observed, stopped, and adopted by whoever comes next.

Everything a supervisor knows is on disk or in /proc: it can be killed at any instant, and a new one goes on.
"""

import contextlib
import threading
import time
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Tuple

from llmgw_core.agent.gangs import GANG_GRACE_S, Gangs
from llmgw_core.agent.launching import (
    Apart,
    has_shim,
    launch_engine,
    refuse_bad_plan,
    remove_directory,
    remove_unstarted,
)
from llmgw_core.agent.logs import read_chunk
from llmgw_core.agent.members import Census, describe, is_living, tell_orphans
from llmgw_core.agent.observation import Engine
from llmgw_core.agent.paths import InstancePaths, is_engine_id
from llmgw_core.agent.preflight import Occupant, find_troubles, list_ports, to_finding
from llmgw_core.agent.readiness import find_api_key
from llmgw_core.agent.records import IntentRecord, write_record
from llmgw_core.agent.stopping import ORPHAN_GRACE_S, ListGpuPids, Stopper
from llmgw_core.agent.times import boottime, rfc3339
from llmgw_core.agent.upkeep import Upkeep
from llmgw_core.domain.engine import ApiKey, Diagnosis, EngineState, EngineStatus, LogChunk
from llmgw_core.domain.findings import Finding
from llmgw_core.domain.hardware import Unit
from llmgw_core.domain.launch import RankPlan
from llmgw_core.domain.units import natural_key
from llmgw_core.errors import EngineNotFound, LlmgwError, NameTaken, StopIncomplete

ORPHANS_AFTER_S = 3.0  # members that outlive the leader for so long do not just come down in order
SHIM_PATIENCE_S = 5.0
OWNERS_MAX_AGE_S = 5.0
GROWING = (EngineState.PENDING, EngineState.STARTING, EngineState.LOADING)
SCAN_SHARE = 400  # a scan that took t is not done again before 400 t: 0.25 % of a core at most
DEFAULT_GRACE_S = 30.0


class Supervisor:
    """All engines of one instance. Blocking; thread-safe by one lock. `close` ends its threads, and no engine."""

    def __init__(
        self,
        instance: InstancePaths,
        env: Mapping[str, str],
        list_gpu_pids: Optional[ListGpuPids] = None,
    ) -> None:
        self._instance = instance
        self._list_gpu_pids = list_gpu_pids
        self._env = dict(env)
        self._lock = threading.RLock()
        self._stoppers: Dict[str, Stopper] = {}
        self._upkeep = Upkeep(self._env)
        self._engines: Dict[str, Engine] = {}
        self._seen: Tuple[EngineStatus, ...] = ()
        self._owners: Dict[int, str] = {}
        self._owners_until = 0.0
        self._gangs = Gangs()
        self._adopt()

    def preflight(self, rank: RankPlan) -> Tuple[Finding, ...]:
        """Everything this node has against the launch, as findings; empty when there is nothing."""
        with self._lock:
            troubles = find_troubles(
                rank, self._occupants(rank.engine_id), self._instance.root, self._env
            )
        return tuple(to_finding(trouble, rank.node) for trouble in troubles)

    def launch(
        self, key: str, rank: RankPlan, secrets: Mapping[str, str], gang_key: str = ""
    ) -> EngineStatus:
        """Start the engine. The same key, or the same engine once more, gives the one that is there.

        Raises:
            NameTaken, PortTaken, GpuTaken, ModelMissing, ExecutableMissing: the node refuses; nothing was started.
            LaunchError: it could not be started; nothing is left of it.
            DiskFull, HomeUnwritable: its records cannot be written; nothing was started.
        """
        with self._lock:
            there = self._find_same(key, rank)
            if there is not None:
                return there.status()
            apart = Apart(secrets, gang_key)
            refuse_bad_plan(rank, apart)
            for trouble in find_troubles(
                rank, self._occupants(rank.engine_id), self._instance.root, self._env
            ):
                raise trouble.error
            directory = launch_engine(self._instance, key, rank, apart, self._env)
            engine = Engine(directory, adopted=False)
            self._engines[engine.id] = engine
            self._owners_until = 0.0
            self._observe(engine, boottime(), Census())
            return engine.status()

    def list(self) -> Tuple[EngineStatus, ...]:
        """Every engine, ended ones included until forgotten, in natural order of ids. As of the last tick."""
        with self._lock:
            return self._statuses()

    def stop(self, key: str, engine: str, grace_seconds: Optional[float]) -> EngineStatus:
        """Begin to end the engine of that id or name; ticks finish it, this daemon's or the next one's.

        An engine that is over stays as it is. A second stop may shorten the grace period, and never lengthens it.

        Raises:
            EngineNotFound: there is none.
            StopIncomplete: its records are torn: names the processes that carry its marker.
        """
        with self._lock:
            found = self._find(engine)
            if found.is_over:
                return found.status()
            if found.state is EngineState.UNKNOWN or found.run is None:
                raise self._refuse_torn(found)
            self._want_stop(found, key, "operator", grace_seconds)
            self._observe(found, boottime(), Census())
            return found.status()

    def forget(self, key: str, engine: str) -> None:
        """Remove the records and the log of an engine that is over. `key` is kept for the caller's retries: a second
        call with it finds nothing left to do.

        Raises:
            StopIncomplete: something of it lives.
        """
        with self._lock:
            try:
                found = self._find(engine)
            except EngineNotFound:
                if is_engine_id(engine) and key:
                    return
                raise
            if not found.is_over and not self._is_torn_and_empty(found):
                raise StopIncomplete(
                    f"engine {found.id} was not forgotten",
                    f"it is {found.state.value}",
                    f"stop it first: llmgw stop {found.name}",
                )
            found.stop_asking()
            self._gangs.leave(found.id)
            remove_directory(found.directory.root)
            self._engines.pop(found.id, None)
            self._stoppers.pop(found.id, None)

    def read_plan(self, engine: str) -> RankPlan:
        """What was launched as the engine of that id or name. It holds no secret.

        Raises:
            EngineNotFound: there is none, or its record is torn.
        """
        with self._lock:
            found = self._find(engine)
            if found.spec is None:
                raise EngineNotFound(
                    f"how {found.id} was launched cannot be read",
                    "its record is torn",
                    "launch it anew",
                )
            return found.spec.rank

    def read_api_key(self, engine: str) -> ApiKey:
        """What the engine of that id or name asks its callers for.

        Raises:
            EngineNotFound: there is none.
        """
        with self._lock:
            found = self._find(engine)
            return ApiKey(find_api_key(found.spec.rank, found.secrets) if found.spec else None)

    def read_log(self, engine: str, offset: int, max_bytes: int) -> LogChunk:
        """A piece of the engine's log; secrets it was given come back as stars.

        Raises:
            EngineNotFound: there is none of that id or name.
        """
        with self._lock:
            found = self._find(engine)
            over, secrets = found.is_over, found.secret_bytes
        chunk = read_chunk(found.directory.log, found.id, offset, max_bytes, secrets)
        return replace(chunk, ended=over and chunk.next_offset >= chunk.end_offset)

    def tick(self, is_watched: bool = True) -> bool:
        """One step of everything that goes on by itself; about once a second, more often while `is_busy`.

        Returns whether the status of any engine changed.
        """
        with self._lock:
            now, census = boottime(), Census()
            for engine in tuple(self._engines.values()):
                engine.set_watched(is_watched)
                self._observe(engine, now, census)
                self._follow_gang(engine, now)
            statuses = self._statuses()
            changed = statuses != self._seen
            self._seen = statuses
            return changed

    def is_busy(self) -> bool:
        """Whether an engine is being stopped or has just lost its leader: ticks every 0.2 s then are well spent."""
        with self._lock:
            return any(engine.is_ending for engine in self._engines.values())

    def is_steady(self) -> bool:
        """Whether nothing is under way."""
        with self._lock:
            return all(engine.is_steady for engine in self._engines.values())

    def owners(self) -> Mapping[int, str]:
        """pid → engine id of every process that belongs to an engine; at most some seconds old."""
        with self._lock:
            started = time.monotonic()
            if started >= self._owners_until:
                census = Census()
                self._owners = {
                    stat.pid: engine.id
                    for engine in self._engines.values()
                    if not engine.is_over
                    for stat in engine.scan(census, with_markers=False)
                }
                took = time.monotonic() - started
                # One that loads starts processes, which would be taken for strangers on its own GPUs.
                grows = any(engine.state in GROWING for engine in self._engines.values())
                usual_s = max(OWNERS_MAX_AGE_S, SCAN_SHARE * took)
                self._owners_until = started + (0.0 if grows else usual_s)
            return dict(self._owners)

    def taken_gpus(self) -> Mapping[Unit, str]:
        """GPU or slice → engine id, for every engine that is not over; orphans, stuck and unknown ones count."""
        with self._lock:
            return {
                unit: engine.id
                for engine in self._engines.values()
                if not engine.is_over and engine.spec is not None
                for unit in engine.spec.rank.units
            }

    def close(self, wait_s: float = 0.0) -> None:
        """End the threads that ask engines. No engine is touched."""
        with self._lock:
            for engine in self._engines.values():
                engine.stop_asking(wait_s)
            self._gangs.close(wait_s)

    def _adopt(self) -> None:
        remove_unstarted(self._instance)
        now, census = boottime(), Census()
        for path in sorted(self._instance.engines.iterdir()):
            if not is_engine_id(path.name) or not path.is_dir():
                continue
            engine = Engine(self._instance.engine(path.name), adopted=True)
            self._engines[engine.id] = engine
            self._observe(engine, now, census)
        self._seen = self._statuses()

    def _statuses(self) -> Tuple[EngineStatus, ...]:
        return tuple(
            self._engines[engine_id].status()
            for engine_id in sorted(self._engines, key=natural_key)
        )

    def _find_same(self, key: str, rank: RankPlan) -> Optional[Engine]:
        there = self._engines.get(rank.engine_id)
        if there is None:
            matches = (
                engine
                for engine in self._engines.values()
                if engine.spec is not None
                and engine.spec.key == key
                and engine.spec.rank.rank == rank.rank
            )
            return next(matches, None)
        if there.spec is not None and there.spec.key != key and there.spec.rank != rank:
            raise NameTaken(
                f"engine {rank.engine_id} is on this node already",
                "it was launched by another plan",
                "make a new plan: each launch has an id of its own",
            )
        return there

    def _occupants(self, but: str) -> List[Occupant]:
        return [
            Occupant(
                engine.id,
                engine.name,
                list_ports(engine.spec.rank) if engine.spec else (),
                engine.spec.rank.units if engine.spec else (),
            )
            for engine in self._engines.values()
            if not engine.is_over and engine.id != but
        ]

    def _find(self, name: str) -> Engine:
        if name in self._engines:
            return self._engines[name]
        named = [engine for engine in self._engines.values() if engine.name == name]
        living = [engine for engine in named if not engine.is_over]
        if len(living) > 1:
            raise EngineNotFound(
                f"{name} is more than one engine",
                ", ".join(sorted(engine.id for engine in living)),
                "name one by its id",
            )
        if living or named:
            return max(living or named, key=lambda engine: engine.status().started_at or "")
        known = ", ".join(sorted(engine.id for engine in self._engines.values())) or "none"
        raise EngineNotFound(
            f"no engine {name} on this node", f"known: {known}", "llmgw status lists them"
        )

    def _want_stop(
        self, engine: Engine, key: str, cause: str, grace_seconds: Optional[float]
    ) -> None:
        now = boottime()
        planned = engine.spec.rank.grace_seconds if engine.spec else DEFAULT_GRACE_S
        grace = max(0.0, planned if grace_seconds is None else grace_seconds)
        if not engine.leader_lives:
            grace = min(grace, ORPHAN_GRACE_S)
        term_at, kill_at = now, now + grace
        before = engine.intent
        if before is not None and before.want == "stop":
            term_at = before.term_at_boottime or now
            kill_at = min(kill_at, before.kill_at_boottime or kill_at)
            cause = before.cause
        intent = IntentRecord("stop", key, rfc3339(), cause, grace, term_at, kill_at)
        # A full disk must not keep an engine from being stopped: then the intent lives in memory alone.
        with contextlib.suppress(OSError):
            write_record(engine.directory.intent, intent)
        engine.intent = intent
        engine.was_told_to_stop |= cause == "operator" and engine.leader_lives
        engine.state = EngineState.STOPPING
        self._stoppers.setdefault(engine.id, Stopper(engine, self._list_gpu_pids))

    def _observe(self, engine: Engine, now: float, census: Census) -> None:
        if engine.state is EngineState.UNKNOWN or engine.is_over:
            return
        try:
            engine.reload()
            if engine.torn:
                return
            if engine.run is None or (engine.ended and engine.ended.reason == "host-rebooted"):
                self._observe_recordless(engine)
                return
            self._upkeep.keep_pump(engine, now)
            if engine.wants_stop:
                self._carry_stop(engine, now, census)
            elif engine.leader_lives:
                self._observe_running(engine, now)
            else:
                self._observe_leaderless(engine, now, census)
        except OSError as error:
            # A full disk or a vanished directory of one engine: the others go on, and the next tick tries again.
            engine.diagnosis = Diagnosis(
                "records", f"its records: {error.strerror or error}", "free space on the node"
            )

    def _follow_gang(self, engine: Engine, now: float) -> None:
        """What the other ranks of its launch mean for it."""
        cause = self._gangs.step(engine, now)
        if cause is not None:
            self._want_stop(engine, "", cause, GANG_GRACE_S)

    def _observe_recordless(self, engine: Engine) -> None:
        if engine.ended is not None:
            engine.settle()
        elif not has_shim(engine.directory):
            # Its shim died before the engine's first instruction: nothing of it ever ran.
            remove_directory(engine.directory.root)
            del self._engines[engine.id]

    def _observe_running(self, engine: Engine, now: float) -> None:
        engine.leader_gone_at = None
        engine.observe_running()
        rank, run = engine.spec.rank if engine.spec else None, engine.run
        if rank is None or run is None or engine.ready is not None:
            return
        if now - run.started_boottime > rank.load_deadline_seconds:
            self._want_stop(engine, "", "load-deadline", None)

    def _observe_leaderless(self, engine: Engine, now: float, census: Census) -> None:
        if engine.leader_gone_at is None:
            engine.leader_gone_at = now
            engine.read_progress()
            if engine.state is EngineState.READY:
                engine.state = EngineState.UNREADY  # whatever lives of it, it serves no more
        shim_lives = engine.shim_lives
        members = engine.scan(census, with_markers=not shim_lives)
        if members:
            engine.empty_scans = 0
            if now - engine.leader_gone_at >= ORPHANS_AFTER_S:
                engine.stop_asking()
                engine.state = EngineState.ORPHANS
                engine.diagnosis = tell_orphans(engine.name, members)
            return
        engine.empty_scans += 1
        recorded = engine.ended is not None
        ran = engine.ended is None or engine.ended.reason != "exec-failed"
        patient = not recorded or now - engine.leader_gone_at < SHIM_PATIENCE_S
        if shim_lives and ran and patient:
            return  # it is about to record how the leader ended, and to store its last words
        if recorded or engine.empty_scans > 1:
            engine.finish(rfc3339())

    def _carry_stop(self, engine: Engine, now: float, census: Census) -> None:
        engine.stop_asking()
        engine.read_progress()
        stopper = self._stoppers.setdefault(engine.id, Stopper(engine, self._list_gpu_pids))
        if engine.state is not EngineState.STUCK:
            engine.state = EngineState.STOPPING
        if stopper.step(now, census):
            engine.reload()
            engine.finish(rfc3339())
            self._stoppers.pop(engine.id, None)

    def _is_torn_and_empty(self, engine: Engine) -> bool:
        if engine.state is not EngineState.UNKNOWN:
            return False
        if engine.run is not None and is_living(engine.run.leader):
            return False
        return engine.id not in Census().marked.values()

    def _refuse_torn(self, engine: Engine) -> LlmgwError:
        census = Census()
        pids = [pid for pid, marker in census.marked.items() if marker == engine.id]
        names = ", ".join(describe(census.processes[pid]) for pid in pids) or "no process"
        return StopIncomplete(
            f"engine {engine.id} cannot be stopped by its records",
            f"{engine.torn or 'it has not been started'}; its marker is carried by {names}",
            "stop those processes by hand, then llmgw forget it",
        )
