"""What the agent does when asked: each method of docs/agent-protocol.md that needs no connection, as a blocking call."""

import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Type

import llmgw_core
from llmgw_core.agent.connection_params import BadRequest, NoParams, read_params
from llmgw_core.agent.fabric_pingpong import PingpongPort, answer_pingpong, call_pingpong
from llmgw_core.agent.fabric_probe import connect_fabric, listen_fabric
from llmgw_core.agent.inventory import NodeProbe
from llmgw_core.agent.params import (
    EngineParams,
    FabricConnectParams,
    FabricListenParams,
    FabricPingpongParams,
    ForgetParams,
    GatewayParams,
    InventoryParams,
    LaunchParams,
    LogReadParams,
    NetworkFactsParams,
    PreflightParams,
    SteerParams,
    StopParams,
)
from llmgw_core.agent.paths import InstancePaths
from llmgw_core.agent.protocol import MAX_LOG_CHUNK_BYTES, METHOD_NOT_FOUND
from llmgw_core.agent.rpc import Request
from llmgw_core.agent.supervisor import Supervisor
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.errors import ProtocolError

HURRIED_TICK_S = 0.2  # while an engine is being stopped
BUSY_TICK_S = 1.0
IDLE_TICK_S = 5.0


@dataclass(frozen=True)
class _Method:
    params: Type[Any]
    do: Callable[[Any], Any]


class AgentService:
    """The supervisor and the probe behind the methods' names. Every call may block; all are thread-safe."""

    def __init__(
        self, supervisor: Supervisor, probe: NodeProbe, env: Optional[Mapping[str, str]] = None
    ) -> None:
        self.supervisor = supervisor
        self._env = os.environ if env is None else env
        self._probe = probe
        self._methods: Dict[str, _Method] = {
            "inventory": _Method(InventoryParams, lambda p: self.read_node(p.max_age_s)),
            "engine.preflight": _Method(PreflightParams, lambda p: supervisor.preflight(p.rank)),
            "engine.facts": _Method(PreflightParams, self._read_facts),
            "engine.launch": _Method(
                LaunchParams, lambda p: supervisor.launch(p.key, p.rank, p.secrets, p.gang_key)
            ),
            "engine.list": _Method(NoParams, lambda _: supervisor.list()),
            "engine.stop": _Method(
                StopParams, lambda p: supervisor.stop(p.key, p.engine, p.grace_seconds)
            ),
            "engine.forget": _Method(ForgetParams, self._forget),
            "engine.key": _Method(EngineParams, lambda p: supervisor.read_api_key(p.engine)),
            "engine.plan": _Method(EngineParams, lambda p: supervisor.read_plan(p.engine)),
            "log.read": _Method(LogReadParams, self._read_log),
            "network.facts": _Method(NetworkFactsParams, self._read_network),
            "fabric.listen": _Method(
                FabricListenParams, lambda p: listen_fabric(p.token, p.address, p.netdev)
            ),
            "fabric.pingpong": _Method(FabricPingpongParams, self._pingpong),
            "gateway.list": _Method(NoParams, lambda _: self._list_gateways()),
            "gateway.queue": _Method(GatewayParams, self._read_queue),
            "gateway.steer": _Method(SteerParams, self._steer_gateway),
            "fabric.connect": _Method(
                FabricConnectParams,
                lambda p: connect_fabric(p.token, p.peer, p.port, p.address, p.netdev),
            ),
        }

    def answer(self, request: Request) -> Any:
        """The JSON-ready result of a request.

        Raises:
            BadRequest: unknown method, or parameters that do not fit.
            LlmgwError: it was understood, and could not or must not be done.
        """
        method = self._methods.get(request.method)
        if method is None:
            raise BadRequest(METHOD_NOT_FOUND, _unknown(request.method))
        return to_jsonable(method.do(read_params(method.params, request)))

    def read_node(self, max_age_s: float, *, is_watched: bool = False) -> Node:
        """This node as a scheduler would see it, at most so many seconds old.

        Watched, what runs for watchers alone is kept running, until `end_watch`.
        """
        supervisor = self.supervisor
        self._probe.refresh_gpus(max_age_s, is_watched=is_watched)
        # After the GPUs: a process that a loading engine has just started is then known as its own.
        return self._probe.assess(supervisor.list(), supervisor.owners(), supervisor.taken_gpus())

    def end_watch(self) -> None:
        """Nobody watches any more."""
        self._probe.end_watch()

    def close(self) -> None:
        """End what asks engines and drivers. No engine is touched."""
        self.supervisor.close()
        self._probe.close()

    def tick(self, is_watched: bool) -> "Tick":
        """One step of the supervisor, and what it means for the next."""
        changed = self.supervisor.tick(is_watched)
        live = sum(not engine.state.is_over for engine in self.supervisor.list())
        if self.supervisor.is_busy():
            return Tick(changed, live, HURRIED_TICK_S)
        is_calm = not is_watched and self.supervisor.is_steady()
        return Tick(changed, live, BUSY_TICK_S if live and not is_calm else IDLE_TICK_S)

    def _read_network(self, params: NetworkFactsParams) -> Any:
        from llmgw_core.agent.network_facts import read_network_facts

        return read_network_facts(self._env, params.venv, params.conf_file)

    def _pingpong(self, params: FabricPingpongParams) -> Any:
        port = PingpongPort(params.hca, params.port, params.gid_index)
        if params.peer is None or params.tcp_port is None:
            return answer_pingpong(port, os.environ)
        return call_pingpong(port, params.peer, params.tcp_port, os.environ)

    def _read_facts(self, params: PreflightParams) -> Any:
        from llmgw_core.agent.launch_facts import read_launch_facts  # a launch alone needs it

        return read_launch_facts(params.rank, self._env)

    def _list_gateways(self) -> Any:
        from llmgw_core.agent.gateways import find_gateways  # a console that shows queues needs it

        return find_gateways(self._env)

    def _read_queue(self, params: GatewayParams) -> Any:
        from llmgw_core.agent.gateways import MOST_TENANTS, read_queue

        return read_queue(params.socket, MOST_TENANTS)

    def _steer_gateway(self, params: SteerParams) -> Any:
        from llmgw_core.agent.gateways import steer_gateway

        return steer_gateway(params.socket, params.verb, params.kind, params.name)

    def _forget(self, params: ForgetParams) -> Dict[str, Any]:
        self.supervisor.forget(params.key, params.engine)
        return {}

    def _read_log(self, params: LogReadParams) -> Any:
        wanted = max(1, min(params.max_bytes, MAX_LOG_CHUNK_BYTES))
        return self.supervisor.read_log(params.engine, params.offset, wanted)


@dataclass(frozen=True)
class Tick:
    """What a step of the supervisor found."""

    changed: bool
    live_engines: int
    pause_s: float  # until the next is due


def _unknown(method: str) -> ProtocolError:
    return ProtocolError(
        f"the agent has no method {method[:64]!r}",
        f"it is of llmgw {llmgw_core.__version__}",
        "use the llmgw of that version, or let the newer one take over: connect with it",
    )


def load_service(instance: InstancePaths, env: Mapping[str, str]) -> AgentService:
    """The service of this instance; adopts every engine that lives."""
    probe = NodeProbe(env)
    return AgentService(Supervisor(instance, env, probe.list_gpu_pids), probe, env)
