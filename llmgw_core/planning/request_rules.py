"""Rules on a request by itself: one function per rule, each returning what it finds. Pure."""

import re
from typing import Callable, Iterator, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.domain.secret_names import is_secret_flag, is_secret_name
from llmgw_core.planning.placement import LAST_PORT, count_nodes

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", "*", ""})  # noqa: S104 - what is warned of
_SECRET_ADVICE = {
    EngineKind.VLLM: "each launch gets an API key of its own (llmgw key NAME); name HF_TOKEN and the like in env_from",
    EngineKind.SGLANG: "each launch gets an API key of its own, by a file (llmgw key NAME); name HF_TOKEN and the"
    " like in env_from",
}
# What the agent or the planner decides; an operator's value would be lost in silence.
_OWN_ENV = frozenset(
    {
        "LLMGW_ENGINE",
        "SPT_NOENV",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "HIP_VISIBLE_DEVICES",
    }
)


def check_request(request: LaunchRequest) -> Tuple[Finding, ...]:
    """Everything wrong with the request itself, in the order of the form. Empty means fine."""
    return tuple(finding for rule in RULES for finding in rule(request))


def check_name(request: LaunchRequest) -> Iterator[Finding]:
    """The name becomes a directory, a URL's model and a word on command lines."""
    if not _NAME.fullmatch(request.name):
        yield _error(
            "name-syntax",
            "name",
            f"{request.name!r} is no name for an engine",
            "a lower-case letter or digit, then up to 62 of a-z 0-9 . _ -",
        )


def check_words(request: LaunchRequest) -> Iterator[Finding]:
    """Texts that become arguments must be there and must not be taken for options."""
    words = (
        ("model", request.model),
        ("served_model_name", request.served_model_name),
        ("quantization", request.quantization),
        ("dtype", request.dtype),
        ("kv_cache_dtype", request.kv_cache_dtype),
        ("venv", request.venv),
    )
    for field, value in words:
        if value is not None and (not value or value.startswith("-") or not value.isprintable()):
            yield _error(
                f"{field.replace('_', '-')}-syntax",
                field,
                f"{value!r} cannot be a {field.replace('_', ' ')}",
                "give a word that is not empty and does not begin with a dash",
            )
    if any("\0" in argument for argument in request.args):
        yield _error("args-syntax", "args", "an argument holds a zero byte", "remove it")


def check_parallelism(request: LaunchRequest) -> Iterator[Finding]:
    """GPUs = TP × PP × DP, and each at least 1."""
    degrees = (
        ("tensor_parallel", request.tensor_parallel),
        ("pipeline_parallel", request.pipeline_parallel),
        ("data_parallel", request.data_parallel),
    )
    for field, value in degrees:
        if value < 1:
            yield _error("parallelism", field, f"it is {value}", "1 is the least")
    if any(value < 1 for _, value in degrees) or request.gpu_count == 0:
        return
    wanted = request.tensor_parallel * request.pipeline_parallel * request.data_parallel
    product = f"{request.tensor_parallel} × {request.pipeline_parallel} × {request.data_parallel} = {wanted}"
    nodes = count_nodes(request) or 1
    for field, given in (
        ("gpus", len(set(request.gpus)) * nodes or None),
        ("gpu_count", request.gpu_count),
    ):
        if given is not None and given != wanted:
            yield _error(
                "arithmetic",
                field,
                f"{given} GPUs are asked for, TP × PP × DP is {product}",
                f"ask for {wanted} GPUs, or change the degrees of parallelism",
            )


def check_nodes(request: LaunchRequest) -> Iterator[Finding]:
    """One word on where to run, and it can be kept."""
    count = request.node_count
    if count is not None and count < 1:
        yield _error("node-count", "node_count", f"it is {count}", "1 is the least")
    if len(set(request.nodes)) != len(request.nodes):
        yield _error("node-twice", "nodes", "a node is named twice", "name each once")
    if request.nodes and request.node is not None:
        yield _error("node-twice", "node", "node and nodes are both given", "keep one of them")
    if request.nodes and count not in (None, len(request.nodes)):
        what = f"{len(request.nodes)} nodes are named, and node_count is {count}"
        yield _error("node-count", "node_count", what, "leave node_count out")
    if request.node is not None and count not in (None, 1):
        what = f"one node is named, and node_count is {count}"
        yield _error("node-count", "node_count", what, "name all of them (nodes), or none")
    if count_nodes(request) == 1 and request.fabric not in (None, "tcp"):
        yield _error(
            "fabric-alone",
            "fabric",
            f"a launch on one node uses no fabric, and {request.fabric} is asked for",
            "leave it out, or ask for several nodes",
        )


def check_gpus(request: LaunchRequest) -> Iterator[Finding]:
    """Each GPU once, and none for a CPU engine."""
    if len(set(request.gpus)) != len(request.gpus):
        yield _error("gpu-twice", "gpus", "a GPU is named twice", "name each once")
    if request.gpu_count == 0 and request.gpus:
        yield _error(
            "gpu-count",
            "gpus",
            "a CPU engine (gpu_count 0) takes no GPU",
            "leave out the one or the other",
        )


def check_numbers(request: LaunchRequest) -> Iterator[Finding]:
    """Ports, fractions and times in their ranges."""
    if request.port is not None and not 1 <= request.port <= LAST_PORT:
        yield _error("port-range", "port", f"{request.port} is no port", f"1 to {LAST_PORT}")
    fraction = request.gpu_memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        yield _error(
            "memory-fraction",
            "gpu_memory_fraction",
            f"{fraction:g} is no fraction of a GPU's memory",
            "more than 0, at most 1; 0.9 is usual",
        )
    if request.max_model_len is not None and request.max_model_len < 1:
        yield _error("model-len", "max_model_len", f"it is {request.max_model_len}", "at least 1")
    # Written so that NaN fails too.
    if not 0 < request.grace_seconds < float("inf"):
        yield _error("grace", "grace_seconds", f"it is {request.grace_seconds:g}", "more than 0")
    if not 0 < request.load_deadline_seconds < float("inf"):
        yield _error(
            "deadline",
            "load_deadline_seconds",
            f"it is {request.load_deadline_seconds:g}",
            "more than 0; a 70B model from a slow disk takes many minutes",
        )


def check_environment(request: LaunchRequest) -> Iterator[Finding]:
    """Names are names; secrets come from the operator's environment, never from a plan."""
    for name in (*request.env, *request.env_from):
        if not _ENV_NAME.fullmatch(name):
            yield _error(
                "env-syntax", "env", f"{name!r} is no name of a variable", "letters, digits and _"
            )
    for name in request.env:
        if is_secret_name(name):
            yield _error(
                "secret-in-env",
                "env",
                f"{name} looks like a secret, and a plan is printed and kept",
                f"set it in your own environment and name it in env_from (--env-from {name})",
            )
        if "\0" in request.env[name]:
            yield _error("env-syntax", "env", f"the value of {name} holds a zero byte", "remove it")
        if name in request.env_from:
            yield _error("env-twice", "env", f"{name} is in env and in env_from", "keep one")
        if name in _OWN_ENV or name.startswith("LLMGW_"):
            yield _error(
                "env-owned", "env", f"{name} is set by llmgw", "choose GPUs with --gpus instead"
            )


def check_secret_arguments(request: LaunchRequest) -> Iterator[Finding]:
    """A secret in an argv can be read by every user of the node."""
    for argument in request.args:
        flag = argument.partition("=")[0]
        if is_secret_flag(flag):
            yield _error(
                "secret-in-args",
                "args",
                f"{flag} would put a secret on a command line",
                _SECRET_ADVICE[request.engine],
            )


def check_paths(request: LaunchRequest) -> Iterator[Finding]:
    """No shell runs the command, so nobody expands `~`; and the engine's own directory is empty."""
    paths = (("model", request.model), ("venv", request.venv), ("workdir", request.workdir))
    for field, value in paths:
        if value is None:
            continue
        if value.startswith("~"):
            yield _error(
                "path-tilde", field, f"{value} is not expanded on the node", "write the whole path"
            )
        elif (field != "model" and not value.startswith("/")) or (
            field == "model" and request.workdir is None and value.startswith(("./", "../"))
        ):
            yield _error(
                "path-relative",
                field,
                f"{value} is relative to a directory that holds nothing",
                "write the whole path",
            )


def check_bind_address(request: LaunchRequest) -> Iterator[Finding]:
    """An engine has no users and no quota: whoever reaches it, has it."""
    if request.host in _EVERY_ADDRESS:
        yield Finding(
            "bind-all",
            Severity.WARNING,
            "host",
            f"{request.host or 'an empty address'} opens the engine to every network of the node",
            "bind 127.0.0.1 or the node's cluster address; keep the API key (llmgw key NAME)",
        )


Rule = Callable[[LaunchRequest], Iterator[Finding]]
RULES: Tuple[Rule, ...] = (
    check_name,
    check_words,
    check_parallelism,
    check_nodes,
    check_gpus,
    check_numbers,
    check_environment,
    check_secret_arguments,
    check_paths,
    check_bind_address,
)


def _error(code: str, subject: str, what: str, fix: str) -> Finding:
    return Finding(code, Severity.ERROR, subject, what, fix)
