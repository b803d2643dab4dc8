"""The commands' words. argparse: `llmgw --help` must cost little more than Python itself."""

from __future__ import annotations

import argparse
import os

TYPE_CHECKING = False  # typing and pathlib are not loaded for --help
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import TypeAlias

    Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - has no other name

_MIN_WIDTH = 40

_DESCRIPTION = "See, launch, watch and stop LLM engines on your own GPU nodes, over SSH."
_EPILOG = """\
Nodes: --nodes 'gpu[01-16],head' (node sets, user@host:port), else --cluster FILE, $LLMGW_CLUSTER or
~/.config/llmgw/cluster.toml; with none of them this machine alone, without SSH.

Exit: 0 done, 1 an error of llmgw, 2 usage, 3 some nodes silent, 4 all silent, 5 plan refused,
6 node trouble, 7 launch failed, 8 no such engine, 9 stop incomplete, 10 gateway, 130 interrupted."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, found without loading shutil and the compressors it brings."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_width() - 2)


def _width() -> int:
    text = os.environ.get("COLUMNS", "")
    if text.isdecimal() and int(text) > 0:
        return max(int(text), _MIN_WIDTH)
    try:
        return max(os.get_terminal_size(1).columns, _MIN_WIDTH)
    except OSError:
        return 80


def build_parser(version: str, words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of `llmgw`.

    Args:
        words: the command line: verbs that are not in it get no options, which saves time. None: all get theirs.
    """
    parser = argparse.ArgumentParser(
        "llmgw",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=_Formatter,
        allow_abbrev=False,  # a script must not change its meaning when a flag is added
    )
    parser.add_argument("--version", action="version", version=f"llmgw {version}")
    _add_choice_of_nodes(parser, is_top=True)
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    _add_choice_of_nodes(common, is_top=False)
    _add_inventory(verbs, common)
    _add_launch(verbs, common, words)
    _add_engine_verbs(verbs, common)
    _add_gateway(verbs, words)
    _add_here(verbs)
    return parser


def _add_choice_of_nodes(parser: argparse.ArgumentParser, *, is_top: bool) -> None:
    """Before or after the verb: a verb's own default must not overwrite what was given before it."""
    default = None if is_top else argparse.SUPPRESS
    parser.add_argument("--nodes", metavar="SET", default=default, help="nodes to work on")
    parser.add_argument(
        "--cluster", metavar="FILE", type=_path, default=default, help="cluster.toml to read"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_positive,
        default=default,
        help="how long nodes may take to answer (45)",
    )


def _add_inventory(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    verb = verbs.add_parser("inventory", parents=[common], help="every node, GPU, port and engine")
    verb.add_argument("--json", action="store_true", help="the document llmgw.inventory/1")
    fabric = verbs.add_parser(
        "fabric", parents=[common], help="which nodes reach one another by InfiniBand or RoCE"
    )
    fabric.add_argument("pair", nargs="*", metavar="NODE", help="two nodes, with their ports")
    fabric.add_argument("--probe", action="store_true", help="try TCP where it is only possible")
    fabric.add_argument("--env", action="store_true", help="what NCCL must be told on each node")
    fabric.add_argument("--nccl", metavar="VERSION", help="with --env: NCCL's on the nodes, 2.27.3")
    fabric.add_argument("--tcp", action="store_true", help="with --env: plain TCP on all nodes")
    fabric.add_argument("--json", action="store_true", help="the document llmgw.fabric/1")
    for reader in (verb, fabric):
        _add_saved(reader)
    schema = verbs.add_parser("schema", help="JSON Schema of a document")
    schema.add_argument("document", choices=("inventory",))


def _add_saved(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--inventory", type=_path, metavar="FILE", help="a saved inventory instead of the nodes"
    )


def _add_launch(verbs: Verbs, common: argparse.ArgumentParser, words: Sequence[str] | None) -> None:
    plan = verbs.add_parser("plan", parents=[common], help="what a launch would run, exactly")
    plan.add_argument("--format", choices=("text", "json", "sh"), default="text")
    plan.add_argument("--json", dest="format", action="store_const", const="json")
    plan.add_argument("--explain", action="store_true", help="why each variable is set")
    _add_saved(plan)
    launch = verbs.add_parser("launch", parents=[common], help="start an engine")
    launch.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="return once it is ready (as usual), or once it is started",
    )
    launch.add_argument("--yes", "-y", action="store_true", help="do not ask about warnings")
    launch.add_argument("--json", action="store_true", help="the document llmgw.launch/1")
    launch.add_argument("--plan", metavar="HASH", help="start only the plan that was reviewed")
    preflight = verbs.add_parser(
        "preflight", parents=[common], help="what stands against a launch; starts nothing"
    )
    preflight.add_argument("--json", action="store_true", help="the document llmgw.preflight/1")
    for name, verb in (("plan", plan), ("launch", launch), ("preflight", preflight)):
        if words is None or name in words:
            _add_request(verb)


def _add_request(verb: argparse.ArgumentParser) -> None:
    """The fields of a launch request; None means not given."""
    verb.add_argument("spec", nargs="?", type=_path, metavar="SPEC", help="a launch spec (TOML)")
    words = (
        ("--name", "the engine's name"),
        ("--engine", "vllm or sglang"),
        ("--model", "a path on the node, or a hub name"),
        ("--node", "where, or n1,n2 for several in the order of ranks; else the best fit"),
        ("--fabric", "between nodes: a fabric's id, or tcp; else the best they share"),
        ("--gpu-class", "only GPUs of this class, e.g. h100-80g"),
        ("--served-model-name", "what clients ask for; else the name"),
        ("--host", "address the engine binds (127.0.0.1)"),
        ("--quantization", "as the engine names it"),
        ("--dtype", "as the engine names it"),
        ("--kv-cache-dtype", "as the engine names it"),
        ("--venv", "the engine's virtual environment on the node"),
        ("--workdir", "working directory on the node"),
    )
    numbers = (
        ("--gpu-count", "GPUs to take; 0 for a CPU engine"),
        ("--tensor-parallel", "degree (1)"),
        ("--pipeline-parallel", "degree (1)"),
        ("--data-parallel", "degree (1)"),
        ("--node-count", "over how many nodes; else as few as have the GPUs"),
        ("--port", "else the first free one from 8000 on"),
        ("--max-model-len", "tokens"),
    )
    fractions = (
        ("--gpu-memory-fraction", "0 to 1"),
        ("--grace-seconds", "between SIGTERM and SIGKILL (30)"),
        ("--load-deadline-seconds", "failed when not ready by then (3600)"),
    )
    for flag, text in words:
        verb.add_argument(flag, help=text)
    for flag, text in numbers:
        verb.add_argument(flag, type=int, metavar="N", help=text)
    for flag, text in fractions:
        verb.add_argument(flag, type=float, metavar="X", help=text)
    for flag, field in (
        ("--tp", "tensor_parallel"),
        ("--pp", "pipeline_parallel"),
        ("--dp", "data_parallel"),
    ):
        verb.add_argument(flag, dest=field, type=int, metavar="N", help=argparse.SUPPRESS)
    for flag, field in (("--grace", "grace_seconds"), ("--load-deadline", "load_deadline_seconds")):
        verb.add_argument(flag, dest=field, type=float, metavar="X", help=argparse.SUPPRESS)
    verb.add_argument("--gpus", type=_indices, metavar="I,J", help="exactly these GPUs")
    _add_lists(verb)


def _add_lists(verb: argparse.ArgumentParser) -> None:
    """Those of its fields that are switches, or may be given several times."""
    verb.add_argument(
        "--expert-parallel",
        action="store_true",
        default=None,
        help="experts of a layer on different GPUs",
    )
    verb.add_argument(
        "--no-api-key",
        dest="api_key",
        action="store_false",
        default=None,
        help="whoever reaches the engine may use it",
    )
    verb.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        default=None,
        help="do not ask for one token before calling it ready",
    )
    verb.add_argument(
        "--env",
        action="append",
        type=_assignment,
        metavar="K=V",
        help="more environment, no secrets",
    )
    verb.add_argument(
        "--env-from",
        action="append",
        metavar="NAME",
        help="a variable of your own environment, for secrets",
    )
    verb.add_argument(
        "--override",
        dest="overrides",
        action="append",
        metavar="CODE",
        help="take a finding upon yourself",
    )
    verb.add_argument(
        "--arg",
        dest="args",
        action="append",
        metavar="WORD",
        help="one more argument for the engine; write --arg=--flag, or all of them after --",
    )


def _add_engine_verbs(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    status = verbs.add_parser("status", parents=[common], help="every engine and its state")
    status.add_argument("name", nargs="?", help="name or id of one engine; else all")
    status.add_argument("--node", help="where, when several nodes have one of that name")
    status.add_argument("--json", action="store_true", help="the document llmgw.status/1")
    logs = verbs.add_parser("logs", parents=[common], help="an engine's log")
    logs.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    logs.add_argument(
        "-n",
        "--lines",
        type=_line_count,
        default=100,
        metavar="N",
        help="last N lines, or all (100)",
    )
    logs.add_argument("--raw", action="store_true", help="the bytes as they were printed")
    diagnose = verbs.add_parser(
        "diagnose", parents=[common], help="why an engine died, or is not ready"
    )
    diagnose.add_argument("name", nargs="?", help="name or id of the engine")
    diagnose.add_argument("--node", help="where, when several nodes have one of that name")
    diagnose.add_argument(
        "--log", type=_path, metavar="FILE", help="a saved log instead; - is stdin"
    )
    diagnose.add_argument("--engine", choices=("vllm", "sglang"), help="whose log FILE is")
    diagnose.add_argument("--json", action="store_true", help="the document llmgw.diagnosis/1")
    stop = verbs.add_parser("stop", parents=[common], help="stop an engine, leaving nothing behind")
    stop.add_argument("--grace", type=_positive_or_zero, metavar="S", help="before SIGKILL")
    stop.add_argument("--yes", "-y", action="store_true", help="do not ask")
    stop.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="return once nothing of it is left (as usual), or at once",
    )
    stop.add_argument("--json", action="store_true", help="the engine's status as JSON")
    forget = verbs.add_parser("forget", parents=[common], help="drop an ended engine and its log")
    key = verbs.add_parser("key", parents=[common], help="the API key that an engine asks for")
    for verb in (logs, stop, forget, key):
        verb.add_argument("name", help="name or id of the engine")
        verb.add_argument("--node", help="where, when several nodes have one of that name")


def _add_gateway(verbs: Verbs, words: Sequence[str] | None) -> None:
    gateway = verbs.add_parser("gateway", help="one address for every engine, fair to every tenant")
    queue = verbs.add_parser("queue", help="who waits at the gateway, and who runs")
    if words is None or "queue" in words:
        queue.add_argument("--json", action="store_true", help="the document llmgw.queue/1")
        queue.add_argument("--watch", action="store_true", help="again each second")
        for verb in ("pause", "resume", "drain"):
            queue.add_argument(f"--{verb}", metavar="KIND=NAME", help="model=, tenant= or engine=")
        queue.add_argument(
            "--socket", type=_path, metavar="PATH", help="the gateway's admin socket"
        )
        queue.add_argument("--port", type=int, default=8080, metavar="N", help="of the gateway")
    if words is not None and "gateway" not in words:
        return
    gateway.add_argument("--config", type=_path, metavar="FILE", help="gateway.toml")
    gateway.add_argument("--keys", type=_path, metavar="FILE", help="the file of API keys")
    for flag, kind, text in (
        ("--listen", str, "HOST:PORT (127.0.0.1:8080)"),
        ("--slots", int, "requests at once for each engine (128)"),
        ("--waiting", int, "requests that may wait for each model (512)"),
        ("--queue-timeout", float, "seconds a request may wait (60)"),
        ("--drain", float, "seconds those that run may take at the end (60)"),
        ("--tls-certificate", _path, "PEM"),
        ("--tls-key", _path, "PEM, without a password"),
        ("--access-log", str, "FILE, - for stdout, off"),
        ("--socket", _path, "the admin socket"),
    ):
        gateway.add_argument(flag, type=kind, metavar="X", help=text)
    gateway.add_argument(
        "--engine", action="append", metavar="URL", help="an engine; more than once"
    )
    for flag, text in (
        ("--allow-anonymous", "serve requests without a key"),
        ("--prefix-affinity", "like prompts to like engines"),
    ):
        gateway.add_argument(flag, action="store_true", default=None, help=text)
    inner = gateway.add_subparsers(dest="action", metavar="ACTION")
    key = inner.add_parser("add-key", help="make a key, keep its hash, print the key once")
    key.add_argument("tenant")
    key.add_argument("--keys", type=_path, default=argparse.SUPPRESS, metavar="FILE")
    key.add_argument("--band", default="normal", help="high, normal (as usual), low")
    key.add_argument("--weight", type=int, default=1, metavar="N", help="share in the band (1)")
    key.add_argument("--model", dest="models", action="append", metavar="PATTERN", help="else all")
    key.add_argument("--admin", action="store_true", help="it may steer the gateway")
    inner.add_parser("install", help="write a systemd user unit that runs it with these flags")


def _add_here(verbs: Verbs) -> None:
    agent = verbs.add_parser("agent", help="on a node: what a scheduler would see of it")
    inner = agent.add_subparsers(dest="agent_verb", metavar="COMMAND", required=True)
    inventory = inner.add_parser("inventory", help="this node, one element of `nodes`")
    inventory.add_argument("--json", action="store_true")
    demo = verbs.add_parser("demo", help="a simulated cluster on this machine", add_help=False)
    demo.add_argument("rest", nargs=argparse.REMAINDER)
    verbs.add_parser("version", help="the version")


def _path(text: str) -> Path:
    from pathlib import Path

    return Path(text)


def _indices(text: str) -> list[int]:
    """`0,1,4-7` → the numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            found += range(int(first), int(last) + 1) if dash else [int(first)]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is no GPU index; write 0,1,4-7") from None
    return found


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{name!r} has no value; write NAME=value")
    return name, value


def _positive(text: str) -> float:
    value = _positive_or_zero(text)
    if value == 0:
        raise argparse.ArgumentTypeError("it must be more than 0 seconds")
    return value


def _positive_or_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds")
    return value


def _line_count(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines, nor `all`")
    return int(text)


def strip_demo(argv: Sequence[str]) -> tuple[str, ...] | None:
    """The words after `demo`, when that is the verb: it reads its own."""
    return tuple(argv[1:]) if argv and argv[0] == "demo" else None


def split_engine_args(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words before `--`, and those after it, which are the engine's."""
    if "--" not in argv:
        return tuple(argv), ()
    place = list(argv).index("--")
    return tuple(argv[:place]), tuple(argv[place + 1 :])
