"""A launch: what the operator asks for, and the plan of everything that will run."""

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding
from llmgw_core.domain.hardware import Unit
from llmgw_core.domain.model import MemorySplit
from llmgw_core.domain.strict import STRICT

PLAN_SCHEMA = "llmgw.plan/1"
# The ways in which an engine is given its API key, as RankPlan.api_key names them.
KEY_BY_VARIABLE = "VLLM_API_KEY"
KEY_BY_FILE = "--config"  # of SGLang: `api-key: …` in YAML


@dataclass(frozen=True)
class LaunchRequest:
    """What an operator asks for, by flags or as TOML. None means: choose for me, or the engine's own default."""

    __pydantic_config__ = STRICT

    name: str
    engine: EngineKind
    model: str  # a path on the node, or a hub name
    node: Optional[str] = None  # None: the only node there is, or the first that fits
    nodes: Tuple[str, ...] = ()  # several, in the order of ranks; the first serves
    node_count: Optional[int] = None  # over how many nodes; None: as few as have the GPUs
    fabric: Optional[str] = (
        None  # between nodes: a fabric's id, or "tcp"; None: the best they share
    )
    gpus: Tuple[int, ...] = ()  # explicit GPU indices, on each node; empty: the planner picks
    gpu_count: Optional[int] = None  # None: tp × pp × dp. 0: a CPU engine, no GPU is taken
    gpu_class: Optional[str] = None  # only GPUs of this class
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    served_model_name: Optional[str] = None  # None: the engine's name
    host: str = "127.0.0.1"  # the address the engine binds
    port: Optional[int] = None  # None: the first free one from 8000 on
    quantization: Optional[str] = None
    dtype: Optional[str] = None
    kv_cache_dtype: Optional[str] = None
    max_model_len: Optional[int] = None
    gpu_memory_fraction: Optional[float] = None  # 0 to 1
    venv: Optional[str] = (
        None  # of the engine, on the node; None: the node's in cluster.toml, else PATH
    )
    args: Tuple[str, ...] = ()  # more arguments for the engine, passed on as they are
    env: Dict[str, str] = field(default_factory=dict)  # more environment; never secrets
    env_from: Tuple[
        str, ...
    ] = ()  # names taken from the operator's environment at launch; secrets go here
    api_key: bool = True  # the launch gets one of its own, unless env_from brings VLLM_API_KEY
    workdir: Optional[str] = None  # None: the engine's own directory under the agent's state
    verify: bool = True  # ask for one token before calling it ready
    grace_seconds: float = 30.0  # between SIGTERM and SIGKILL
    load_deadline_seconds: float = 3600.0  # failed when not ready by then
    overrides: Tuple[str, ...] = ()  # codes of findings the operator takes upon himself


@dataclass(frozen=True)
class GangMember:
    """One rank of several as the others find it."""

    __pydantic_config__ = STRICT

    node: str
    address: str  # of that node towards its peers: an IPv4 or IPv6 address


@dataclass(frozen=True)
class Gang:
    """What joins the ranks of one launch: their nodes tell one another how each rank is."""

    __pydantic_config__ = STRICT

    members: Tuple[GangMember, ...]  # by rank
    port: int  # UDP, the same on every node


@dataclass(frozen=True)
class RankPlan:
    """One rank: everything the node needs to run it and to judge whether it is ready. Holds no secret."""

    __pydantic_config__ = STRICT

    engine_id: str
    name: str
    engine: EngineKind
    model: str
    served_model_name: str
    node: str
    argv: Tuple[str, ...]
    env: Dict[str, str]  # exactly what is added to the node's base environment
    env_from: Tuple[str, ...] = ()  # names whose values come with the launch, apart from the plan
    cwd: Optional[str] = None  # None: the engine's own directory
    gpus: Tuple[int, ...] = ()
    gpu_uuids: Tuple[str, ...] = ()
    rank: int = 0
    ranks: int = 1
    host: str = "127.0.0.1"  # where the engine binds and is asked
    port: Optional[int] = None  # None: this rank serves nothing
    verify: bool = True
    grace_seconds: float = 30.0
    load_deadline_seconds: float = 3600.0
    ports: Tuple[int, ...] = ()  # more TCP ports that this rank listens on
    gang: Optional[Gang] = None  # None: the only rank
    # The variable, or the flag of a file, by which the engine gets the launch's own API key; None: no such key.
    api_key: Optional[str] = None

    @property
    def units(self) -> Tuple[Unit, ...]:
        """What the rank takes for itself: slices of GPUs in MIG mode by uuid, whole GPUs by index."""
        slices = tuple(uuid for uuid in self.gpu_uuids if uuid.startswith("MIG-"))
        return slices or self.gpus


@dataclass(frozen=True)
class LaunchPlan:
    """Everything that will run, and what was found on the way. Launch executes a plan and nothing else."""

    __pydantic_config__ = STRICT

    schema: str
    launch_id: str  # 32 hex digits; the same id launched twice starts one engine
    request: LaunchRequest
    ranks: Tuple[RankPlan, ...]
    findings: Tuple[Finding, ...] = ()
    memory: Tuple[MemorySplit, ...] = ()  # by node, where the model's size and the cards' are known
    versions: Dict[str, str] = field(
        default_factory=dict
    )  # of the engine, by node where it is known
    fabric: Optional[str] = None  # that joins the nodes; "tcp"; None: one node needs none
    reasons: Dict[str, Dict[str, str]] = field(
        default_factory=dict
    )  # node → variable of its env → why it is set so
