"""The records of an engine on disk, read strictly: a torn one makes its engine `unknown`, never a guess."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Type, TypeVar

from llmgw_core.agent.durable import read_json, write_json_durably
from llmgw_core.domain.launch import RankPlan
from llmgw_core.domain.wire import WireError, from_jsonable, to_jsonable

T = TypeVar("T")
RECORD_VERSION = 1


class TornRecord(Exception):
    """A record is there and cannot be read. The text names the file and what is wrong with it."""


@dataclass(frozen=True)
class ProcessId:
    """A process of this boot and PID namespace."""

    pid: int
    start_ticks: int


@dataclass(frozen=True)
class SpecRecord:
    """spec.json: what to run, and who asked. Holds no secret."""

    version: int
    key: str
    asked_at: str
    argv_sha256: str
    rank: RankPlan


@dataclass(frozen=True)
class IntentRecord:
    """intent.json: what is wanted of the engine. Written before anything is done about it."""

    want: str  # "run", "stop"
    key: str
    at: str
    cause: str = "operator"  # "operator", "load-deadline"
    grace_seconds: Optional[float] = None
    term_at_boottime: Optional[float] = None  # CLOCK_BOOTTIME: no wall clock moves a deadline
    kill_at_boottime: Optional[float] = None


@dataclass(frozen=True)
class RunRecord:
    """run.json: the leader's identity, written before its first instruction."""

    version: int
    pid: int
    start_ticks: int
    pgid: int
    sid: int
    shim: ProcessId
    boot_id: str
    pid_namespace: str
    argv_sha256: str
    started_at: str
    started_boottime: float

    @property
    def leader(self) -> ProcessId:
        """The engine's first process."""
        return ProcessId(self.pid, self.start_ticks)


@dataclass(frozen=True)
class ReadyRecord:
    """ready.json: it was ready once, so that a new daemon does not ask for a token again."""

    ready_at: str
    verified_at: Optional[str] = None  # None: nobody asked for a token


@dataclass(frozen=True)
class ExitRecord:
    """exit.json: how the leader ended."""

    code: Optional[int]
    signal: Optional[int]
    reason: str
    ended_at: str
    detail: str = ""


def write_record(path: Path, record: Any) -> None:  # Any: one of the dataclasses above
    """Put the record there, whole and durably.

    Raises:
        OSError: it could not be written; what was there is as it was.
    """
    write_json_durably(os.fspath(path), to_jsonable(record))


def read_record(path: Path, kind: Type[T]) -> Optional[T]:
    """The record of that kind; None when there is no such file.

    Raises:
        TornRecord: it is there and is not a whole record of this kind and version.
    """
    try:
        data = read_json(os.fspath(path))
        record = from_jsonable(kind, data)
    except FileNotFoundError:
        return None
    except (OSError, WireError, ValueError, RecursionError) as error:
        raise TornRecord(f"{path}: {error}") from error
    version = getattr(record, "version", RECORD_VERSION)
    if version != RECORD_VERSION:
        raise TornRecord(f"{path}: version {version} is not known here")
    return record
