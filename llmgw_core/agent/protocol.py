"""What console and agent say to each other: versions, limits and the greeting. docs/agent-protocol.md has the methods."""

from dataclasses import dataclass
from typing import Tuple

from llmgw_core.domain.strict import STRICT

PROTOCOL_MIN = 1
PROTOCOL_MAX = 2
DELTAS_SINCE = 2  # `watch` may ask for changes in the place of whole nodes
MAX_FRAME_BYTES = 1 << 20
MAX_LOG_CHUNK_BYTES = 64 << 10
GPU_INTERVAL_S = (
    3.0  # nvidia-smi is asked no more often, whoever watches: starting it costs most of all
)

# JSON-RPC 2.0's own numbers.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
APPLICATION_ERROR = -32000  # an LlmgwError; `data` carries it


@dataclass(frozen=True)
class Hello:
    """The agent's answer to `hello`: who it is, and what both can speak."""

    __pydantic_config__ = STRICT

    protocol: Tuple[int, ...]  # (min, max)
    version: str  # of llmgw
    bundle: str  # content hash, 16 hex digits; "" when run from a checkout
    hostname: str
    machine_id: str
    boot_id: str
    pid_namespace: str
    uid: int
    user: str
    python: str
    state_dir: str
    pid: int
    started_at: str  # RFC 3339, UTC
