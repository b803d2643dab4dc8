"""What the chosen nodes say of the network between them, asked before ranks are told how to meet."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmgw_core.domain.network import NodeNetwork
from llmgw_core.errors import LlmgwError
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.planning.interfaces import InterfaceHint, choose_interfaces
from llmgw_core.planning.ranks import Between

_NCCL_PACKAGE = "nvidia-nccl"  # nvidia-nccl-cu12, nvidia-nccl-cu13
_NCCL = re.compile(r"\d+(?:\.\d+){1,3}")


async def look_between(
    fleet: Fleet, names: Sequence[str], venv: str | None, known: Between
) -> Between:
    """Return what is known with each node's facts, and the interface by which its peers come to it.

    Args:
        venv: the engine's virtual environment, where the launch names one; else each node's own.
    """
    targets = {target.name: target for target in fleet.targets}
    facts = await ask_facts(fleet, names, venv)
    hints = {
        name: InterfaceHint(
            targets[name].cluster_address, targets[name].interface, targets[name].address
        )
        for name in names
    }
    choice = choose_interfaces(facts, hints)
    return replace(
        known,
        facts=facts,
        links=choice.chosen,
        findings=choice.findings,
        nccl=find_oldest_nccl(facts),
    )


async def ask_facts(
    fleet: Fleet, names: Sequence[str], venv: str | None
) -> dict[str, NodeNetwork | None]:
    """Return each node's facts; None where it does not tell. `venv` as of `look_between`."""
    own = {target.name: target.venv for target in fleet.targets}
    asked = await asyncio.gather(*(_ask(fleet, name, venv or own[name]) for name in names))
    return dict(zip(names, asked, strict=True))


async def _ask(fleet: Fleet, name: str, venv: str | None) -> NodeNetwork | None:
    try:
        return await fleet.client(name).network_facts(venv)
    except LlmgwError:
        return None  # its own preflight tells that it does not answer


def find_oldest_nccl(facts: Mapping[str, NodeNetwork | None]) -> tuple[int, ...] | None:
    """The oldest NCCL among the nodes, which sets what all can be told; None: no node knows."""
    texts = [
        version
        for item in facts.values()
        for package, version in ((item.packages if item else None) or {}).items()
        if package.startswith(_NCCL_PACKAGE)
    ]
    found = [match.group() for text in texts if (match := _NCCL.match(text))]
    return min((tuple(map(int, text.split("."))) for text in found), default=None)
