"""What the toy engine is told: the command lines of vLLM and SGLang, and a few variables of its own. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

DEFAULT_LOAD_S = 8.0
SLOW_FACTOR = 6.0
# A model whose name ends in `-<failure>`, or LLMGW_TOY_FAIL=<failure>. docs/demo.md describes each.
FAILURES = (
    "oom",
    "no-kv",
    "bad-model",
    "exit0",
    "hang",
    "die-after-ready",
    "die-on-request",
    "lose-worker",
    "ignore-term",
    "slow",
)
# Arguments that worked once, or look as if they should. Source: vLLM 0.32, SGLang 0.5.23, each tried.
_REFUSED = {
    "vllm": frozenset(
        [
            "--tp",
            "--pp",
            "--dp",
            "--swap-space",
            "--disable-log-requests",
            "--task",
            "--guided-decoding-backend",
            "--rope-scaling",
            "--preemption-mode",
            "--mem-fraction-static",
            "--model-path",
        ]
    ),
    "sglang": frozenset(
        [
            "--pp",
            "--enable-ep-moe",
            "--torchao-config",
            "--gpu-memory-utilization",
            "--max-model-len",
        ]
    ),
}
_FLAGS = frozenset(
    [
        "--headless",
        "--enforce-eager",
        "--trust-remote-code",
        "--enable-expert-parallel",
        "--enable-metrics",
        "--skip-server-warmup",
        "--disable-log-stats",
        "--enable-log-requests",
        "--enable-prefix-caching",
        "--disable-cuda-graph",
        "--enable-auto-tool-choice",
    ]
)
_SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size"}
_NAMES = {
    "--model": "model",
    "--model-path": "model",
    "--served-model-name": "served",
    "--host": "host",
    "--port": "port",
    "--tensor-parallel-size": "tp",
    "--tp-size": "tp",
    "--tp": "tp",
    "--pipeline-parallel-size": "pp",
    "--pp-size": "pp",
    "--nnodes": "nnodes",
    "--node-rank": "node_rank",
    "--master-addr": "master",
    "--dist-init-addr": "master",
    "--gpu-memory-utilization": "memory_fraction",
    "--mem-fraction-static": "memory_fraction",
    "--max-model-len": "max_len",
    "--context-length": "max_len",
    "--api-key": "api_key",
    "--disable-access-log-for-endpoints": "quiet",
}


class BadCommand(ValueError):
    """The command line is none the engine would take. The text is what the engine prints."""


@dataclass(frozen=True)
class Options:
    """One run of the toy engine."""

    kind: str  # "vllm", "sglang"
    model: str
    served: str
    arguments: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1  # on this node
    is_group: bool = False  # more than one worker in all
    node_rank: int = 0
    master: str = "127.0.0.1"
    is_headless: bool = False
    memory_fraction: float = 0.92
    max_len: int = 8192
    api_key: str | None = None
    quiet_paths: tuple[str, ...] = ()
    has_metrics: bool = True
    load_s: float = DEFAULT_LOAD_S
    failure: str | None = None


def parse_command(argv: Sequence[str], env: Mapping[str, str]) -> Options:
    """Return the options of `vllm serve MODEL …` or `sglang --model-path MODEL …` (without the interpreter).

    Raises:
        BadCommand: the engine would refuse it.
    """
    kind, rest = argv[0], list(argv[1:])
    if kind == "vllm":
        if rest[:1] != ["serve"]:
            raise BadCommand("vllm: error: the toy engine knows `vllm serve MODEL` alone")
        rest = rest[1:]
    values, words, flags = _split_arguments(kind, rest)
    model = values.get("model") or next(iter(words), "")
    if not model:
        raise BadCommand(f"{kind}: error: the following arguments are required: --model-path")
    return _build(kind, model, values, flags, tuple(argv), env)


def _split_arguments(
    kind: str, rest: Sequence[str]
) -> tuple[dict[str, str], list[str], frozenset[str]]:
    """(value by option, words that belong to none, flags)."""
    values: dict[str, str] = {}
    words: list[str] = []
    flags: set[str] = set()
    refused: list[str] = []
    option: str | None = None
    for argument in rest:
        name, has_value, value = argument.partition("=")
        name = _SHORT.get(name, name)
        if not name.startswith("--"):
            _take_word(argument, option, values, words)
            option = None if option != "--disable-access-log-for-endpoints" else option
            continue
        option = None
        if name in _REFUSED[kind]:
            refused.append(argument)
        elif name in _FLAGS:
            flags.add(name)
        elif has_value:
            values[_NAMES.get(name, name)] = value
        else:
            option = name
    if refused:
        raise BadCommand(f"{kind}: error: unrecognized arguments: {' '.join(refused)}")
    return values, words, frozenset(flags)


def _take_word(word: str, option: str | None, values: dict[str, str], words: list[str]) -> None:
    if option is None:
        words.append(word)
        return
    name = _NAMES.get(option, option)
    values[name] = f"{values[name]},{word}" if name in values and name == "quiet" else word


def _build(  # noqa: PLR0917 - the parts of one command line
    kind: str,
    model: str,
    values: Mapping[str, str],
    flags: frozenset[str],
    arguments: tuple[str, ...],
    env: Mapping[str, str],
) -> Options:
    world = _whole(kind, values, "tp", 1) * _whole(kind, values, "pp", 1)
    nodes = _whole(kind, values, "nnodes", 1)
    if world % nodes:
        raise BadCommand(
            f"ValueError: nnodes={nodes} must evenly divide the total world size {world}"
        )
    failure = find_failure(model, env)
    load_s = float(env.get("LLMGW_TOY_LOAD_S") or DEFAULT_LOAD_S)
    node_rank = _whole(kind, values, "node_rank", 0)
    return Options(
        kind=kind,
        model=model,
        served=values.get("served") or model,
        arguments=arguments,
        host=values.get("host") or ("127.0.0.1" if kind == "sglang" else "0.0.0.0"),  # noqa: S104 - as vLLM does
        port=_whole(kind, values, "port", 30000 if kind == "sglang" else 8000),
        workers=world // nodes,
        is_group=world > 1,
        node_rank=node_rank,
        master=values.get("master", "127.0.0.1"),
        is_headless="--headless" in flags or (kind == "sglang" and node_rank > 0),
        memory_fraction=float(values.get("memory_fraction", "0.92")),
        max_len=_whole(kind, values, "max_len", 8192),
        api_key=values.get("api_key")
        or _read_config(values.get("--config"))
        or env.get("VLLM_API_KEY")
        or None,
        quiet_paths=tuple(path for path in values.get("quiet", "").split(",") if path),
        has_metrics=kind == "vllm" or "--enable-metrics" in flags,
        load_s=load_s * (SLOW_FACTOR if failure == "slow" else 1.0),
        failure=failure,
    )


def find_failure(model: str, env: Mapping[str, str]) -> str | None:
    """Return how this run shall fail: LLMGW_TOY_FAIL, else the end of the model's name; None: not at all."""
    wanted = env.get("LLMGW_TOY_FAIL")
    if wanted:
        return wanted if wanted in FAILURES else None
    name = PurePosixPath(model).name
    return next((failure for failure in FAILURES if name.endswith(f"-{failure}")), None)


def _read_config(path: str | None) -> str | None:
    """The API key of SGLang's `--config FILE`; its other keys are nothing to a toy."""
    if path is None:
        return None
    for text in Path(path).read_text("utf-8").splitlines():
        key, _, value = text.partition(":")
        if key.strip() == "api-key":
            return value.strip().strip('"')
    return None


def _whole(kind: str, values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise BadCommand(f"{kind}: error: argument --{name}: invalid int value: {text!r}") from None
