"""How each launch gets an API key of its own: by environment, or by a file that the node alone can read. Pure.

Without one, every user of the node reaches an engine on its loopback address. The key itself is in no plan: it is made when
the plan is launched, and goes to the node apart from it.

Source: vllm/entrypoints/openai/api_server.py (VLLM_API_KEY, guards /v1); sglang/srt/server_args_config_parser.py of 0.5.3, the
first with `--config FILE`, whose keys are flags without dashes.
"""

from dataclasses import replace
from typing import Mapping, Optional, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.launch import KEY_BY_FILE, KEY_BY_VARIABLE, LaunchPlan, LaunchRequest
from llmgw_core.planning.versions import parse_version

_LOOPBACK = ("127.", "::1", "localhost")
_SGLANG_READS_FILES = (0, 5, 3)


def give_api_keys(
    request: LaunchRequest, plan: LaunchPlan, versions: Mapping[str, str]
) -> Tuple[LaunchPlan, Tuple[Finding, ...]]:
    """The plan whose serving rank asks for a key, and a finding where that cannot be.

    Args:
        versions: the engine's version by node, where it is known; of an unknown one, a current one is assumed.
    """
    serving = next((rank for rank in plan.ranks if rank.port is not None), None)
    if serving is None or KEY_BY_VARIABLE in request.env_from:
        return plan, ()  # nothing to guard, or the operator's own key does
    why = _why_none(request, versions.get(serving.node))
    if why is not None:
        return plan, _tell_none(request, why)
    way = KEY_BY_VARIABLE if request.engine is EngineKind.VLLM else KEY_BY_FILE
    ranks = tuple(replace(rank, api_key=way) if rank is serving else rank for rank in plan.ranks)
    return replace(plan, ranks=ranks), ()


def _why_none(request: LaunchRequest, version: Optional[str]) -> Optional[str]:
    if not request.api_key:
        return "the launch asks for none"
    if request.engine is EngineKind.VLLM:
        return None
    if any(word.partition("=")[0] == KEY_BY_FILE for word in request.args):
        return "SGLang takes one --config, and args have it"
    number = parse_version(version or "")
    if number is not None and number < _SGLANG_READS_FILES:
        return f"SGLang {version} takes one on its command line alone, where every user of the node sees it"
    return None


def _tell_none(request: LaunchRequest, why: str) -> Tuple[Finding, ...]:
    """A warning where others than the node's own users reach the engine."""
    is_local = request.host.startswith(_LOOPBACK)
    if is_local and not request.api_key:
        return ()  # as asked for
    whom = "every user of the node" if is_local else f"whoever reaches {request.host or 'it'}"
    severity = Severity.INFO if is_local else Severity.WARNING
    fix = "let a gateway ask for the key, and bind 127.0.0.1 where it runs on the same node"
    what = f"the engine asks {whom} for no API key"
    return (Finding("no-api-key", severity, "api_key", what, fix, why=why),)
