"""One agent as its console sees it: typed requests and states over a channel, and one clear error for whatever else comes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import llmgw_core
from llmgw_core.agent.frames import FrameDecoder, encode_frame
from llmgw_core.agent.protocol import DELTAS_SINCE, PROTOCOL_MAX, PROTOCOL_MIN, Hello
from llmgw_core.agent.rpc import make_request
from llmgw_core.domain.engine import ApiKey, EngineStatus, LogChunk
from llmgw_core.domain.findings import Finding
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.launch import RankPlan
from llmgw_core.domain.model import LaunchFacts
from llmgw_core.domain.network import NodeNetwork
from llmgw_core.domain.reach import FabricConnection, FabricListener
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.errors import (
    AgentTimeout,
    ConnectionDropped,
    LlmgwError,
    NodeError,
    ProtocolError,
    from_wire,
)
from llmgw_core.fleet.long_numbers import refuse_long_numbers
from llmgw_core.fleet.printable import read_error
from llmgw_core.fleet.schema import find_strangeness, misfit, parse_changes, parse_reply
from llmgw_core.fleet.transport import Channel

T = TypeVar("T")
TIMEOUT_S = 15.0
LAUNCH_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 5.0
_READ_BYTES = 64 << 10
_TAIL_BYTES = 300
_MAX_TEXT = 500


class AgentClient:
    """Speaks with the agent behind a channel that carries frames. Safe for any number of tasks of one event loop."""

    def __init__(
        self, channel: Channel, node: str, bundle: str = "", timeout_s: float = TIMEOUT_S
    ) -> None:
        self._channel = channel
        self._node = node
        self._bundle = bundle
        self._timeout_s = timeout_s
        self._write_turn = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._state: Node | None = None  # the latest that was told
        self._sequence = 0  # of that
        self._news = asyncio.Event()
        self._failure: LlmgwError | None = None
        self._reader: asyncio.Task[None] | None = None
        self._hello: Hello | None = None

    @property
    def hello(self) -> Hello:
        """Who the agent is; known once `start` has returned."""
        if self._hello is None:
            raise RuntimeError("the client was not started")
        return self._hello

    @property
    def failure(self) -> LlmgwError | None:
        """Why the connection is of no more use; None while it is."""
        return self._failure

    async def start(self) -> Hello:
        """Greet the agent. Returns its answer.

        Raises:
            ProtocolError: no common version, or no agent at all.
            AgentTimeout, ConnectionDropped: it did not answer.
        """
        self._reader = asyncio.create_task(self._read_messages())
        params = {
            "protocol": [PROTOCOL_MIN, PROTOCOL_MAX],
            "version": llmgw_core.__version__,
            "bundle": self._bundle,
        }
        hello = await self._ask(Hello, "hello", params)
        _check_version(hello, self._node)
        self._hello = hello
        return hello

    async def inventory(self, max_age_s: float = 1.0) -> Node:
        """Return the node, by a reading of at most that age."""
        return await self._ask(Node, "inventory", {"max_age_s": max_age_s})

    async def preflight(self, rank: RankPlan) -> tuple[Finding, ...]:
        """Return what the node has against this rank."""
        params = {"rank": to_jsonable(rank)}
        return await self._ask(tuple[Finding, ...], "engine.preflight", params)

    async def launch_facts(self, rank: RankPlan) -> LaunchFacts:
        """Return what the node's files say of the rank's model, and which packages would run it."""
        params = {"rank": to_jsonable(rank)}
        return await self._ask(LaunchFacts, "engine.facts", params, LAUNCH_TIMEOUT_S)

    async def launch(
        self, key: str, rank: RankPlan, secrets: Mapping[str, str], gang_key: str = ""
    ) -> EngineStatus:
        """Start the rank; the same key again gives the same engine.

        Args:
            gang_key: hex; what the ranks of this launch know each other by. Empty for an engine of one rank.

        Raises:
            LaunchError: the node refuses, or could not; its kind says why.
        """
        params = {"key": key, "rank": to_jsonable(rank), "secrets": dict(secrets)}
        if gang_key:
            params["gang_key"] = gang_key
        timeout_s = max(LAUNCH_TIMEOUT_S, self._timeout_s)
        return await self._ask(EngineStatus, "engine.launch", params, timeout_s)

    async def engines(self) -> tuple[EngineStatus, ...]:
        """Return the node's engines, ended ones included until they are forgotten."""
        return await self._ask(tuple[EngineStatus, ...], "engine.list", {})

    async def stop(self, key: str, engine: str, grace_seconds: float | None) -> EngineStatus:
        """Ask the node to stop an engine, by id or name. Returns at once; the node finishes it alone.

        Raises:
            EngineNotFound: there is none.
        """
        params = {"key": key, "engine": engine, "grace_seconds": grace_seconds}
        return await self._ask(EngineStatus, "engine.stop", params)

    async def forget(self, key: str, engine: str) -> None:
        """Remove an ended engine's records and log from the node."""
        await self._request("engine.forget", {"key": key, "engine": engine}, self._timeout_s)

    async def read_plan(self, engine: str) -> RankPlan:
        """Return what was launched as that engine.

        Raises:
            EngineNotFound: there is none.
            ProtocolError: the agent is too old to tell.
        """
        return await self._ask(RankPlan, "engine.plan", {"engine": engine})

    async def read_api_key(self, engine: str) -> str | None:
        """Return what that engine asks its callers for; None: nothing, as far as is known.

        Raises:
            EngineNotFound: there is none.
            ProtocolError: the agent is too old to tell.
        """
        return (await self._ask(ApiKey, "engine.key", {"engine": engine})).api_key

    async def read_log(self, engine: str, offset: int, max_bytes: int) -> LogChunk:
        """Return log bytes from that offset on; a negative one counts from the end."""
        params = {"engine": engine, "offset": offset, "max_bytes": max_bytes}
        chunk = await self._ask(LogChunk, "log.read", params)
        strange = find_strangeness(chunk, offset, max_bytes)
        if strange:
            error = misfit("log.read", strange, self._node)
            self._fail(error)
            raise error
        return chunk

    async def network_facts(
        self, venv: str | None = None, conf_file: str | None = None
    ) -> NodeNetwork | None:
        """Return what decides whether ranks there reach others; None: the agent is of an earlier version.

        Args:
            venv: of the engine, for the versions in it.
            conf_file: the engine's NCCL_CONF_FILE.
        """
        params = {"venv": venv, "conf_file": conf_file}
        try:
            return await self._ask(NodeNetwork, "network.facts", params)
        except ProtocolError:
            self._raise_failure()  # it answered, and what it said does not fit
            return None

    async def ask_gateways(self, answer: type[T], method: str, /, **params: str) -> T:
        """Return the answer of gateway.list, gateway.queue or gateway.steer as that type.

        Raises:
            ProtocolError: the agent is too old to know of gateways.
        """
        return await self._ask(answer, f"gateway.{method}", dict(params))

    async def fabric_listen(
        self, token: str, address: str | None, netdev: str | None
    ) -> FabricListener:
        """Let the node wait some seconds for one connection on an address of its fabric."""
        params = {"token": token, "address": address, "netdev": netdev}
        return await self._ask(FabricListener, "fabric.listen", params)

    async def fabric_connect(
        self, token: str, peer: str, port: int, address: str | None, netdev: str | None
    ) -> FabricConnection:
        """Let the node connect to another one's listener, from an address of its fabric."""
        params = {
            "token": token,
            "peer": peer,
            "port": port,
            "address": address,
            "netdev": netdev,
        }
        return await self._ask(FabricConnection, "fabric.connect", params)

    async def answer_pingpong(self, hca: str, port: int, gid_index: int | None) -> FabricListener:
        """Let the node wait some seconds for an RDMA ping on a port."""
        params = {"hca": hca, "port": port, "gid_index": gid_index}
        return await self._ask(FabricListener, "fabric.pingpong", params)

    async def call_pingpong(
        self, hca: str, port: int, gid_index: int | None, peer: str, tcp_port: int
    ) -> FabricConnection:
        """Let the node ping another one's port by RDMA."""
        params = {
            "hca": hca,
            "port": port,
            "gid_index": gid_index,
            "peer": peer,
            "tcp_port": tcp_port,
        }
        return await self._ask(FabricConnection, "fabric.pingpong", params)

    async def watch(self, interval_s: float) -> AsyncIterator[Node]:
        """Yield the node as it changes, and now and then unchanged so that its age is known. Only the latest counts.

        One watch at a time: a second one replaces the first one's interval and shares its states.

        Raises:
            ConnectionDropped, ProtocolError: the connection is over.
        """
        params: dict[str, Any] = {"interval_s": interval_s}
        if self.hello.protocol[1] >= DELTAS_SINCE:
            params["deltas"] = True
        await self._request("watch", params, self._timeout_s)
        try:
            while True:
                await self._news.wait()
                self._raise_failure()
                self._news.clear()
                if self._state is not None:
                    yield self._state
        finally:
            if self._failure is None:
                with suppress(LlmgwError, asyncio.CancelledError):
                    await self._request("unwatch", {}, CLOSE_TIMEOUT_S)

    async def close(self) -> None:
        """Let go of the agent; engines and daemon go on. May be called twice."""
        self._fail(ConnectionDropped("the console closed the connection", node=self._node))
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._close_channel()

    async def _ask(
        self, kind: type[T], method: str, params: dict[str, Any], timeout_s: float | None = None
    ) -> T:
        result = await self._request(method, params, timeout_s or self._timeout_s)
        return self._checked(kind, result, method)

    def _checked(self, kind: type[T], data: object, method: str) -> T:
        """The data as `kind`; one wrong answer makes all others doubtful, so it ends the connection."""
        try:
            return parse_reply(kind, data, method, self._node)
        except ProtocolError as error:
            self._fail(error)
            raise

    async def _request(self, method: str, params: dict[str, Any], timeout_s: float) -> Any:
        self._raise_failure()
        self._last_id += 1
        number = self._last_id
        frame = encode_frame(make_request(number, method, params))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(frame, answer)
        except TimeoutError:
            raise AgentTimeout(
                f"the agent did not answer {method} in {timeout_s:g} s",
                "the connection is there; the node is overloaded, or its daemon is stopped",
                "try again; look at the node's load and its daemon.log",
                self._node,
            ) from None
        finally:
            self._waiting.pop(number, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # seen, also when nobody waited any longer

    async def _exchange(self, frame: bytes, answer: "asyncio.Future[Any]") -> Any:
        try:
            async with self._write_turn:
                await self._channel.write(frame)
        except OSError as error:
            self._fail(self._dropped(str(error)))
        except NodeError as error:
            self._fail(error)
        return await answer

    async def _read_messages(self) -> None:
        """Until the connection ends; then everybody who waits is told why."""
        decoder = FrameDecoder(refuse_long_numbers)
        try:
            while data := await self._channel.read(_READ_BYTES):
                for message in decoder.feed(data):
                    self._take(message)
            torn = " in the middle of a message" if decoder.is_mid_frame else ""
            self._fail(self._dropped(f"it ended{torn}"))
        except NodeError as error:
            error.node = error.node or self._node
            self._fail(error)
        except OSError as error:
            self._fail(self._dropped(str(error) or type(error).__name__))
        await self._close_channel()

    def _take(self, message: dict[str, Any]) -> None:
        """Hand one message to whoever waits for it.

        Raises:
            NodeError: it ends the connection.
        """
        number = message.get("id")
        if message.get("jsonrpc") != "2.0":
            raise misfit("a request", "a message is not JSON-RPC 2.0", self._node)
        if number is None and "error" in message:
            raise self._as_node_error(message["error"])
        if "method" in message:
            # Unknown notifications are those of a newer agent.
            if message["method"] == "state":
                self._take_state(message.get("params"))
            return
        if not isinstance(number, int) or not 0 < number <= self._last_id:
            raise misfit(
                "a request", f"it answers {str(number)[:40]!a}, which was not asked", self._node
            )
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return  # nobody waits for it any more
        if "error" in message:
            answer.set_exception(self._as_error(message["error"]))
        elif "result" in message:
            answer.set_result(message["result"])
        else:
            raise misfit("a request", "an answer has neither result nor error", self._node)

    def _take_state(self, params: object) -> None:
        """A state as a whole, or what changed since the one before it.

        Raises:
            ProtocolError: neither, or it does not fit.
        """
        told = params if isinstance(params, dict) else {}
        if "changes" in told:
            sequence = told.get("seq")
            if self._state is None or sequence != self._sequence + 1:
                why = f"changes of state {str(sequence)[:40]}, and {self._sequence} is known"
                raise misfit("watch", why, self._node)
            self._state = parse_changes(self._state, told["changes"], "watch", self._node)
        else:
            self._state = parse_reply(Node, told.get("node"), "watch", self._node)
        number = told.get("seq")
        self._sequence = number if isinstance(number, int) else 0
        self._news.set()

    def _as_error(self, error: object) -> LlmgwError:
        data = error.get("data") if isinstance(error, dict) else None
        if not isinstance(data, dict):
            return misfit(
                "a request", f"an error without data: {ascii(error)[:_MAX_TEXT]}", self._node
            )
        # The name is ours: the node knows itself by another, or claims to be somebody else.
        return read_error(data, self._node)

    def _as_node_error(self, error: object) -> NodeError:
        read = self._as_error(error)
        return (
            read if isinstance(read, NodeError) else misfit("a request", read.message, self._node)
        )

    def _dropped(self, why: str) -> ConnectionDropped:
        tail = self._channel.stderr_tail()[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
        return ConnectionDropped(
            "the connection to the agent went away",
            f"{why}; stderr: {tail!a}" if tail else why,
            "engines go on without it; llmgw connects anew",
            self._node,
        )

    def _fail(self, error: LlmgwError) -> None:
        """The first reason counts, for those who wait and for all who come."""
        if self._failure is not None:
            return
        self._failure = error
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_copy(error))
        self._news.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise _copy(self._failure)

    async def _close_channel(self) -> None:
        with suppress(OSError, NodeError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._channel.close()


def _copy(error: LlmgwError) -> LlmgwError:
    """The same error once more: each raise of one object would lengthen its traceback."""
    return from_wire(error.to_wire())


def _check_version(hello: Hello, node: str) -> None:
    if len(hello.protocol) != 2:  # noqa: PLR2004 - (min, max)
        raise misfit("hello", "protocol: expected two numbers", node)
    lowest, highest = hello.protocol
    if highest < PROTOCOL_MIN or lowest > PROTOCOL_MAX:
        raise ProtocolError(
            f"the agent speaks protocol {lowest} to {highest}, this llmgw {PROTOCOL_MIN} to {PROTOCOL_MAX}",
            f"the agent is of llmgw {hello.version}",
            "use an llmgw of that version or newer",
            node,
        )
