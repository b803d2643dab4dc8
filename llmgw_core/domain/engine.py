"""An engine that runs, loads, or has ended: what is known of one rank on one node."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Optional, Tuple

from llmgw_core.domain.strict import STRICT


class EngineKind(str, Enum):
    """The programs llmgw launches."""

    VLLM = "vllm"
    SGLANG = "sglang"


class EngineState(str, Enum):
    """pending → starting → loading → ready ⇄ unready → stopping → stopped; failed, orphans, stuck aside.

    STARTING: the process runs, nothing says that it loads. LOADING: its log says so, or its server is up without the
    model. READY: health, model list and once a completion. ORPHANS: the leader is gone, members live. STUCK: a stop
    left something. UNKNOWN: its record cannot be read; nothing is started in its place.
    """

    PENDING = "pending"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    UNREADY = "unready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    ORPHANS = "orphans"
    STUCK = "stuck"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"  # only as seen from afar

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self in (EngineState.STOPPED, EngineState.FAILED)


@dataclass(frozen=True)
class EngineExit:
    """How an engine ended. Code and signal are None when nobody was there to reap it."""

    __pydantic_config__ = STRICT

    code: Optional[int] = None
    signal: Optional[int] = None
    reason: str = "unknown"  # "stopped", "exited", "killed", "oom", "host-rebooted", "unknown"


@dataclass(frozen=True)
class Diagnosis:
    """Why an engine failed, read from its log: the deepest first cause."""

    __pydantic_config__ = STRICT

    code: str
    message: str
    hint: str


@dataclass(frozen=True)
class EngineStatus:
    """One rank of one engine on one node, as the headless contract shows it."""

    __pydantic_config__ = STRICT

    id: str  # unique on the node: "<name>-<launch id, 8 hex digits>", with "-r<rank>" in a gang
    name: str
    engine: EngineKind
    model: str
    served_model_name: str
    state: EngineState
    ready: bool = False
    rank: int = 0
    ranks: int = 1
    pid: Optional[int] = None
    gpus: Tuple[int, ...] = ()
    url: Optional[str] = (
        None  # base, e.g. "http://127.0.0.1:8000"; None for a rank that serves nothing
    )
    adopted: bool = False  # this daemon did not start it
    started_at: Optional[str] = None  # RFC 3339, UTC
    phase: Optional[str] = (
        None  # "imports", "weights", "compile", "kv-cache", "graphs", "warmup", "serving"
    )
    progress: Optional[float] = None  # of the phase, 0 to 1
    exit: Optional[EngineExit] = None
    diagnosis: Optional[Diagnosis] = None


@dataclass(frozen=True)
class ApiKey:
    """What an engine asks its callers for. Never printed unasked, never logged."""

    __pydantic_config__ = STRICT

    api_key: Optional[str] = field(default=None, repr=False)  # None: nothing, as far as is known


@dataclass(frozen=True)
class LogChunk:
    """A piece of an engine's log by byte offsets of the whole stream since its start.

    `data` is the raw bytes decoded as UTF-8 with surrogateescape: `data.encode("utf-8", "surrogateescape")` gives
    them back whatever they are.
    """

    __pydantic_config__ = STRICT

    engine: str
    offset: int  # of the first byte of data; above what was asked for when `skipped` > 0
    data: str
    next_offset: int  # ask with this next
    start_offset: int  # oldest byte still kept
    end_offset: int  # one past the newest byte
    skipped: int = 0  # bytes asked for that are no longer kept
    dropped: int = 0  # bytes the pump could not store (disk full), over the engine's life
    ended: bool = False  # the engine is over and this reaches its last byte
