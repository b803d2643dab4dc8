"""What a model's files say of it, and which programs would run it: read on the node, without the engine."""

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

from llmgw_core.domain.strict import STRICT


@dataclass(frozen=True)
class Quantization:
    """How the checkpoint is quantized, in the engines' own words."""

    __pydantic_config__ = STRICT

    method: str  # config.json's quant_method, in lower case: "fp8", "awq", "compressed-tensors", "modelopt"
    schemes: Tuple[
        str, ...
    ] = ()  # e.g. "w8a8-float", "w4a16-int", "nvfp4"; none: the method says all
    group_size: Optional[int] = None  # weights of one group or block share a scale


@dataclass(frozen=True)
class ModelShape:
    """The numbers of config.json that decide how a model splits and what it holds. None: it does not say."""

    __pydantic_config__ = STRICT

    architecture: Optional[str] = None
    hidden_size: Optional[int] = None
    intermediate_size: Optional[int] = None
    layers: Optional[int] = None
    heads: Optional[int] = None
    kv_heads: Optional[int] = None
    head_dim: Optional[int] = None
    kv_lora_rank: Optional[int] = None  # given: latent attention (MLA)
    qk_rope_head_dim: Optional[int] = None
    sliding_window: Optional[int] = None  # tokens; some layers keep no more
    is_hybrid: bool = False  # some layers keep a state of fixed size, or a part of the context
    experts: Optional[int] = None
    vocab_size: Optional[int] = None
    max_positions: Optional[int] = None  # the longest context that any of its keys allows
    dtype: Optional[str] = None
    quantization: Optional[Quantization] = None


@dataclass(frozen=True)
class ModelFacts:
    """A model's files on one node."""

    __pydantic_config__ = STRICT

    path: str  # the directory or file
    is_cached: bool = False  # in the hub's cache, not a path of the operator's
    revision: Optional[str] = None  # the snapshot's, in the hub's cache
    fingerprint: Optional[str] = None  # over config and index, and each weight file's name and size
    weight_bytes: Optional[int] = None  # of all tensors
    weight_files: int = 0
    missing_files: Tuple[str, ...] = ()  # that the index names
    torn_files: Tuple[str, ...] = ()  # shorter or longer than their own header says
    unread: Tuple[str, ...] = ()  # what could not be read, and why
    shape: Optional[ModelShape] = None  # None: no config.json that can be read


@dataclass(frozen=True)
class LaunchFacts:
    """What a node knows of what a rank would run, by its files alone."""

    __pydantic_config__ = STRICT

    model: Optional[ModelFacts] = None  # None: not on this node
    model_note: str = ""  # why not, or where it was looked for
    packages: Dict[str, str] = field(
        default_factory=dict
    )  # distribution → version, beside the engine's command


@dataclass(frozen=True)
class MemorySplit:
    """What each GPU of one node would hold of a model. Bytes of one GPU."""

    __pydantic_config__ = STRICT

    node: str
    gpus: int
    memory_bytes: int  # of the smallest
    fraction: float  # of it that the engine may fill
    budget_bytes: int
    weights_bytes: int
    kv_bytes: Optional[int]  # of one sequence of the longest length; None: config.json does not say
    kv_tokens: Optional[int]
    kv_bytes_per_token: Optional[int]
    kv_is_upper_bound: bool  # some layers keep less
    activation_bytes: int  # rough
    overhead_bytes: int  # rough
