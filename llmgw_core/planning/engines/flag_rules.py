"""Whether an engine's version takes the command line: before it has loaded for ten seconds to say that it does not. Pure.

Engines take shortened flags where only one begins so. A newer release may add a second, and the command that worked ends
with exit code 2: so shortened ones are refused. Source: argparse; `vllm/utils/argparse_utils.py` for `-O3`, dotted
flags and `_` for `-`.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.launch import RankPlan
from llmgw_core.domain.secret_names import is_secret_flag
from llmgw_core.planning.engines.base import find_owner
from llmgw_core.planning.engines.flag_table import load_flags
from llmgw_core.planning.versions import parse_version

_TITLES = {EngineKind.VLLM: "vLLM", EngineKind.SGLANG: "SGLang"}
_ENTRIES = {EngineKind.VLLM: "serve", EngineKind.SGLANG: "sglang.launch_server"}
VALUED_FLAGS = ("--quantization", "--dtype", "--kv-cache-dtype")
_LISTED = 4
# What does now what a flag did that is gone.
_INSTEAD: Mapping[EngineKind, Mapping[str, str]] = {
    EngineKind.VLLM: {
        "--disable-log-requests": "it is the default; --enable-log-requests is its opposite",
        "--swap-space": "leave it out: nothing is swapped any more",
        "--task": "--runner and --convert",
        "--cuda-graph-sizes": "--cudagraph-capture-sizes",
        "--rope-scaling": "--hf-overrides",
        "--rope-theta": "--hf-overrides",
        "--guided-decoding-backend": "--structured-outputs-config",
        "--max-seq-len-to-capture": "--max-cudagraph-capture-size",
        "--calculate-kv-scales": "leave it out",
        "--preemption-mode": "leave it out",
        "--scheduler-delay-factor": "leave it out",
        "--disable-async-output-proc": "leave it out",
    },
    EngineKind.SGLANG: {
        "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
        "--cuda-graph-bs": "--cuda-graph-bs-decode",
        "--enable-ep-moe": "--ep-size",
        "--enable-deepep-moe": "--moe-a2a-backend deepep",
        "--enable-flashinfer-mla": "--attention-backend flashinfer",
        "--enable-flashmla": "--attention-backend flashmla",
        "--max-micro-batch-size": "--pp-max-micro-batch-size",
        "--grpc-mode": "--smg-grpc-mode",
        "--stream-output": "--incremental-streaming-output",
    },
}


def check_commands(
    engine: EngineKind,
    ranks: Sequence[RankPlan],
    versions: Mapping[str, str],
    owned: Mapping[str, str],
) -> Iterator[Finding]:
    """Flags and values that the version on a rank's node does not take; what several ranks share is told once.

    Args:
        versions: of the engine, by node where it is known.
        owned: flag → field of those that llmgw sets itself: shortened ones are told elsewhere.
    """
    told: set[tuple[str, str]] = set()
    for rank in ranks:
        for finding in check_flags(engine, rank.argv, versions.get(rank.node), owned):
            if (finding.code, finding.what) not in told:
                told.add((finding.code, finding.what))
                yield replace(finding, node=rank.node)


def check_flags(
    engine: EngineKind, argv: Sequence[str], version: str | None, owned: Mapping[str, str]
) -> Iterator[Finding]:
    """Flags and a few values that this version does not take.

    Args:
        version: as installed; None: not known, and what no release had is only warned of.
    """
    words = _skip_program(engine, argv)
    table = load_flags(engine)
    parsed = parse_version(version)
    known = table.list_known(parsed)
    release = f"{_TITLES[engine]} {version}" if version else f"any {_TITLES[engine]} that is known"
    severity = Severity.ERROR if table.covers(parsed) else Severity.WARNING
    for flag in dict.fromkeys(_flags_of(engine, words)):
        if _is_known(engine, flag, known) or is_secret_flag(flag):
            continue
        longer = sorted(name for name in known if "=" not in name and name.startswith(flag))
        if longer and flag.startswith("--"):
            if find_owner(flag, owned) is None:
                yield _tell_short(flag, longer)
            continue
        history = table.tell_history(flag)
        why = f"it is one {history}" if history else ""
        what = f"{flag} is no flag of {release}"
        fix = _advise(engine, flag, known)
        yield Finding("args-unknown", severity, "args", what, fix, None, why)
    for flag, value in _find_values(words):
        allowed = sorted(name.partition("=")[2] for name in known if name.startswith(f"{flag}="))
        if value in allowed:
            continue
        history = table.tell_history(f"{flag}={value}")
        yield Finding(
            "value-unknown",
            severity,
            flag.removeprefix("--").replace("-", "_"),
            f"{value} is no value of {flag} in {release}",
            f"one of {', '.join(allowed)}; --override value-unknown if a plugin knows it",
            None,
            f"it is one {history}" if history else "",
        )


def _skip_program(engine: EngineKind, argv: Sequence[str]) -> Sequence[str]:
    """What the engine's own parser gets."""
    entry = _ENTRIES[engine]
    return argv[list(argv).index(entry) + 1 :] if entry in argv else argv


def _flags_of(engine: EngineKind, argv: Sequence[str]) -> Iterator[str]:
    for word in argv:
        if word == "--":
            return
        if not word.startswith("-") or word == "-" or word[1:2].isdecimal():
            continue
        flag = word.partition("=")[0]
        if engine is EngineKind.VLLM and flag.startswith("--"):
            flag = flag.replace("_", "-")
        yield flag


def _is_known(engine: EngineKind, flag: str, known: frozenset[str]) -> bool:
    if flag in known or flag in {"--help", "-h"}:
        return True
    if flag.startswith("--no-") and "--" + flag.removeprefix("--no-") in known:
        return True
    if engine is EngineKind.VLLM:
        # --compilation-config.level 3, -cc.mode=3, -O3
        return flag.partition(".")[0].rstrip("+") in known or flag.startswith("-O")
    return False


def _tell_short(flag: str, longer: Sequence[str]) -> Finding:
    shown = ", ".join(longer[:_LISTED]) + (", …" if len(longer) > _LISTED else "")
    if len(longer) > 1:
        what = f"{flag} is short for more than one flag: {shown}"
    else:
        what = f"{flag} is short for {shown}, in this version"
    return Finding(
        "args-abbreviated",
        Severity.ERROR,
        "args",
        what,
        "write it in full",
        None,
        "an engine refuses a shortened flag once a second one begins so",
    )


def _advise(engine: EngineKind, flag: str, known: frozenset[str]) -> str:
    instead = _INSTEAD[engine].get(flag)
    if instead is None:
        near = difflib.get_close_matches(flag, [name for name in known if "=" not in name], 1, 0.75)
        instead = f"did you mean {near[0]}?" if near else "remove it"
    return f"{instead}; --override args-unknown if you know better"


def _find_values(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(flag, value) of the flags whose values are in the tables."""
    for number, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        given = value if equals else "".join(argv[number + 1 : number + 2])
        if flag in VALUED_FLAGS and given:
            yield flag, given
