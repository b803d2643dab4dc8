"""This node seen once, without becoming a client that stays: by the daemon where one runs, else by what is on disk.

Starts no daemon, writes nothing, signals nobody.
"""

import os
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from llmgw_core.agent.dial import ask, dial
from llmgw_core.agent.paths import InstancePaths, is_engine_id, resolve_instance
from llmgw_core.agent.probes.smi_start import StartedReading, begin_reading
from llmgw_core.domain.engine import Diagnosis, EngineState, EngineStatus
from llmgw_core.domain.hardware import Unit
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.wire import WireError, from_jsonable
from llmgw_core.errors import DiskFull, HomeUnwritable, LlmgwError

ANSWER_TIMEOUT_S = 1.0
INVENTORY_TIMEOUT_S = 13.0  # a hung nvidia-smi takes the daemon ten


@dataclass(frozen=True)
class EnginesHere:
    """The engines of this instance, and what is theirs."""

    engines: Tuple[EngineStatus, ...] = ()
    owners: Dict[int, str] = field(default_factory=dict)  # pid → engine id
    taken_gpus: Dict[Unit, str] = field(default_factory=dict)  # GPU or slice → engine id


def list_engines_here(env: Mapping[str, str]) -> Tuple[EngineStatus, ...]:
    """The engines of this instance: as the daemon says within a second, else as their records say."""
    instance = _find_instance(env)
    if instance is None:
        return ()
    answer = _ask_daemon(instance, "engine.list", {}, ANSWER_TIMEOUT_S)
    if isinstance(answer, list):
        try:
            return tuple(
                from_jsonable(EngineStatus, item, f"engines.{number}")
                for number, item in enumerate(answer)
            )
        except WireError:
            pass  # a daemon of another version: the records say it too
    return read_engines_on_disk(instance).engines


def read_node_here(
    env: Mapping[str, str], max_age_s: float = 1.0, started: Optional[StartedReading] = None
) -> Node:
    """This node as a scheduler would see it: the daemon's reading where one runs, else one made now.

    Args:
        started: a reading that was begun because no daemon runs; it is ended here.
    """
    instance = _find_instance(env)
    if (
        started is None
        and instance is not None
        and _ask_daemon(instance, "engine.list", {}, ANSWER_TIMEOUT_S) is not None
    ):
        answer = _ask_daemon(instance, "inventory", {"max_age_s": max_age_s}, INVENTORY_TIMEOUT_S)
        try:
            return from_jsonable(Node, answer, "node")
        except WireError:
            pass  # a daemon of another version: read it ourselves
    # nvidia-smi takes its time: meanwhile the rest is loaded, and the engines are looked at.
    started = started or begin_reading(env)
    from llmgw_core.agent.inventory import read_node

    here = EnginesHere() if instance is None else read_engines_on_disk(instance)
    return read_node(env, here.engines, here.owners, here.taken_gpus, started)


def read_engines_on_disk(instance: InstancePaths) -> EnginesHere:
    """What records and /proc say of the engines, when nobody watches them."""
    if not any(instance.engines.iterdir()):
        return EnginesHere()
    from llmgw_core.agent.members import Census
    from llmgw_core.agent.observation import Engine

    census = Census()
    engines: List[EngineStatus] = []
    owners: Dict[int, str] = {}
    taken: Dict[Unit, str] = {}
    for path in instance.engines.iterdir():
        if not is_engine_id(path.name) or not path.is_dir():
            continue
        engine = Engine(instance.engine(path.name), adopted=True)
        members = engine.scan(census, with_markers=True)
        owners.update((stat.pid, engine.id) for stat in members)
        engine.state = _judge(engine, has_members=bool(members))
        if engine.spec is not None and not engine.is_over:
            taken.update((unit, engine.id) for unit in engine.spec.rank.units)
        engines.append(_unwatched(engine.status()))
    engines.sort(key=lambda engine: engine.id)
    return EnginesHere(tuple(engines), owners, taken)


def _judge(engine: Any, has_members: bool) -> EngineState:  # Any: observation.Engine
    if engine.torn:
        return EngineState.UNKNOWN
    if engine.leader_lives:
        if engine.wants_stop:
            return EngineState.STOPPING
        engine.read_progress()
        if engine.ready is not None:
            return EngineState.UNREADY
        return EngineState.LOADING if engine.phases.is_loading else EngineState.STARTING
    if has_members:
        return EngineState.ORPHANS
    if engine.run is None and engine.ended is None:
        return EngineState.PENDING
    stopped = engine.ended.reason == "stopped" if engine.ended else engine.wants_stop
    return EngineState.STOPPED if stopped else EngineState.FAILED


def _unwatched(status: EngineStatus) -> EngineStatus:
    """Ready is what was asked a moment ago: here nobody asked."""
    if status.state is not EngineState.UNREADY:
        return status
    note = Diagnosis(
        "unwatched",
        "it was ready once, and no agent runs here that would ask it now",
        "start one: llmgw status",
    )
    return replace(status, diagnosis=note)


def _find_instance(env: Mapping[str, str]) -> Optional[InstancePaths]:
    """The instance; None where nothing can be written, and so no engine can have been launched."""
    try:
        return resolve_instance(env)
    except (HomeUnwritable, DiskFull):
        return None


def _ask_daemon(
    instance: InstancePaths, method: str, params: Dict[str, Any], timeout_s: float
) -> Any:
    """The daemon's answer; None when there is none of any use."""
    if not os.path.lexists(instance.socket):
        return None
    try:
        connection = dial(instance, timeout_s)
        if connection is None:
            return None
        with connection:
            return ask(connection, method, params, timeout_s)
    except (LlmgwError, OSError):
        return None
