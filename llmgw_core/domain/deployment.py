"""A deployment: the ranks of one launch seen together, whichever nodes they are on. Pure."""

from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from llmgw_core.domain.engine import Diagnosis, EngineState, EngineStatus
from llmgw_core.domain.strict import STRICT

# The first of these that a rank is in is the whole's state: the worst is what an operator must know.
_WORST_FIRST = (
    EngineState.FAILED,
    EngineState.ORPHANS,
    EngineState.STUCK,
    EngineState.UNKNOWN,
    EngineState.STOPPING,
    EngineState.STOPPED,
    EngineState.UNREACHABLE,
    EngineState.UNREADY,
    EngineState.PENDING,
    EngineState.STARTING,
    EngineState.LOADING,
)
_ECHO = "gang-rank-lost"  # says only that another rank ended
Located = Tuple[str, EngineStatus]  # (node, one rank)


@dataclass(frozen=True)
class Deployment:
    """All ranks of a launch that are known of, by rank, and what they add up to."""

    __pydantic_config__ = STRICT

    id: str  # what the ids of its ranks begin with
    name: str
    state: EngineState
    ready: bool
    ranks: int  # of the launch; more than `nodes` has where some were not heard of
    nodes: Tuple[str, ...]  # of the ranks known of, by rank
    url: Optional[str] = None
    diagnosis: Optional[Diagnosis] = None  # of the rank that is the cause, if one is


def deployment_id(engine: EngineStatus) -> str:
    """What all ranks of its launch have in common."""
    return engine.id.removesuffix(f"-r{engine.rank}") if engine.ranks > 1 else engine.id


def group_ranks(found: Iterable[Located]) -> Dict[Tuple[str, str], List[Located]]:
    """The ranks by (deployment, node where a name alone would join strangers), each in order.

    Engines of one rank stand for themselves: two nodes may each have one of the same id.
    """
    groups: Dict[Tuple[str, str], List[Located]] = {}
    for node, engine in found:
        alone = "" if engine.ranks > 1 else node
        groups.setdefault((deployment_id(engine), alone), []).append((node, engine))
    for group in groups.values():
        group.sort(key=lambda item: item[1].rank)
    return groups


def sum_up(ranks: Sequence[Located]) -> Deployment:
    """The deployment of these ranks, of which there is at least one."""
    head = ranks[0][1]
    missing = head.ranks - len({engine.rank for _, engine in ranks})
    states = {engine.state for _, engine in ranks}
    if head.ranks > 1 and any(_is_lost(engine) for _, engine in ranks):
        states.add(EngineState.FAILED)
    if missing > 0:
        states.add(EngineState.UNREACHABLE)
    worst = next((state for state in _WORST_FIRST if state in states), EngineState.READY)
    ready = worst is EngineState.READY and all(engine.ready for _, engine in ranks)
    _, cause = find_failing_rank(ranks)
    return Deployment(
        deployment_id(head),
        head.name,
        worst,
        ready,
        head.ranks,
        tuple(node for node, _ in ranks),
        next((engine.url for _, engine in ranks if engine.url), None),
        cause.diagnosis,
    )


def _is_lost(engine: EngineStatus) -> bool:
    """Whether it says that the whole is over: ranks that are still being ended do not change that."""
    told = engine.diagnosis
    return engine.state is EngineState.ORPHANS or (told is not None and told.code == _ECHO)


def find_failing_rank(ranks: Sequence[Located]) -> Located:
    """The rank that says best why the whole is as it is; the first where none says anything."""
    told = [item for item in ranks if item[1].diagnosis is not None]
    causes = [item for item in told if item[1].diagnosis and item[1].diagnosis.code != _ECHO]
    return (causes or told or list(ranks))[0]
