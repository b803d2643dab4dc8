"""One client of the daemon: its frames in, its answers and states out, within bounds that keep it from hurting others."""

import asyncio
import socket
import struct
from typing import Any, Dict, Mapping, Optional, Set, Tuple, Type

from llmgw_core.agent.connection_params import (
    BadRequest,
    HandoverParams,
    HelloParams,
    NoParams,
    WatchParams,
    read_params,
)
from llmgw_core.agent.frames import FrameDecoder, encode_frame
from llmgw_core.agent.protocol import (
    APPLICATION_ERROR,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
)
from llmgw_core.agent.rpc import Request, make_error, make_result, parse_request
from llmgw_core.agent.sampler import Watcher
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.errors import LlmgwError, NodeError, ProtocolError

MAX_OUTSTANDING = 64
WRITE_BUFFER_BYTES = 256 << 10
DRAIN_TIMEOUT_S = 10.0
FINISH_TIMEOUT_S = 5.0
_READ_BYTES = 64 << 10
# Answered here, without a thread, and before the daemon has loaded anything else.
_OWN_METHODS: Mapping[str, Type[Any]] = {
    "hello": HelloParams,
    "watch": WatchParams,
    "unwatch": NoParams,
    "daemon.stop": NoParams,
    "handover": HandoverParams,
}
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid. Source: unix(7), SO_PEERCRED


class ClientGone(Exception):
    """Nothing can be sent to this client any more; the text says why."""


class Connection:
    """Serves one client until it goes, sends rubbish, or stops reading.

    `host` is the daemon: it does the work, and is told of watchers and of the wish to end.
    """

    def __init__(
        self, host: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer
        self._number = number
        self._write_turn = asyncio.Lock()
        self._free = asyncio.Semaphore(MAX_OUTSTANDING)
        self._tasks: Set[asyncio.Task[None]] = set()
        self._watching: Optional[Tuple[Watcher, asyncio.Task[None]]] = None
        writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    async def serve(self) -> None:
        """Until the connection is over. Never raises for anything the client does."""
        pid, uid = read_peer(self._writer.get_extra_info("socket"))
        self._host.log.write("client-came", client=self._number, pid=pid, uid=uid)
        reason = "closed"
        try:
            await self._read_requests()
            await self._finish_tasks()
        except ProtocolError as error:
            reason = error.message
            await self._say_goodbye(error)
        except (OSError, ClientGone) as error:
            reason = str(error) or type(error).__name__
        finally:
            self._close()
            self._host.log.write("client-went", client=self._number, reason=reason)

    def abort(self) -> None:
        """Cut the connection at once."""
        self._writer.transport.abort()

    async def finish(self) -> None:
        """Let what was written go out, then close; for a daemon that ends."""
        self._stop_watching()
        try:
            async with self._write_turn:
                self._writer.close()
                await asyncio.wait_for(self._writer.wait_closed(), 1.0)
        except (OSError, asyncio.TimeoutError):
            self.abort()

    async def _read_requests(self) -> None:
        decoder = FrameDecoder()
        while True:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                return
            for message in decoder.feed(data):
                # Whoever has too much under way is read no further until some of it is done.
                await self._free.acquire()
                self._start(parse_request(message))

    def _start(self, request: Request) -> None:
        task = asyncio.ensure_future(self._handle(request))
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._free.release()

    async def _finish_tasks(self) -> None:
        """A client that only sends and closes its side still gets its answers."""
        self._stop_watching()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=FINISH_TIMEOUT_S)

    async def _handle(self, request: Request) -> None:
        try:
            answer = await self._answer(request)
            if request.id is not None:
                await self._send(answer)
        except (OSError, ClientGone):
            self.abort()
            return
        if request.method in ("daemon.stop", "handover") and "result" in answer:
            self._host.end(request.method)

    async def _answer(self, request: Request) -> Dict[str, Any]:
        try:
            if request.method in _OWN_METHODS:
                params = read_params(_OWN_METHODS[request.method], request)
                return make_result(request.id, self._answer_here(request.method, params))
            return make_result(request.id, await self._host.answer(request))
        except BadRequest as error:
            return make_error(request.id, error.error, error.code)
        except LlmgwError as error:
            return make_error(request.id, error, APPLICATION_ERROR)
        except Exception as error:  # noqa: BLE001 - an edge: a bug in one method must not end the daemon
            self._host.log.write(
                "internal-error", method=request.method, kind=type(error).__name__, error=error
            )
            return make_error(request.id, _internal(request.method, error), INTERNAL_ERROR)

    def _answer_here(self, method: str, params: Any) -> Dict[str, Any]:
        if method == "hello":
            hello: Dict[str, Any] = to_jsonable(self._host.hello)
            return hello
        if method == "watch":
            self._watch(params)
        elif method == "unwatch":
            self._stop_watching()
        elif method == "handover":
            self._host.check_handover(params.bundle)
        return {}

    def _watch(self, params: WatchParams) -> None:
        self._stop_watching()
        watcher = Watcher(params.interval_s, self._send, deltas=params.deltas)
        task = asyncio.ensure_future(self._push_states(watcher))
        self._watching = (watcher, task)
        self._host.sampler.add(watcher)

    async def _push_states(self, watcher: Watcher) -> None:
        try:
            await watcher.run()
        except (OSError, ClientGone, ProtocolError) as error:
            self._host.log.write("watch-ended", client=self._number, reason=error)
            self.abort()

    def _stop_watching(self) -> None:
        if self._watching is not None:
            watcher, task = self._watching
            self._watching = None
            self._host.sampler.remove(watcher)
            task.cancel()

    async def _send(self, message: Dict[str, Any]) -> None:
        """Write one message and wait until the client takes it.

        Raises:
            ClientGone: it took nothing for too long.
        """
        frame = _encode(message)
        async with self._write_turn:
            if self._writer.is_closing():
                raise ClientGone("the connection is closed")
            self._writer.write(frame)
            try:
                await asyncio.wait_for(self._writer.drain(), DRAIN_TIMEOUT_S)
            except asyncio.TimeoutError:
                # Seen by the reading side too, which then closes everything of this client.
                self.abort()
                raise ClientGone(f"took nothing for {DRAIN_TIMEOUT_S:g} s") from None

    async def _say_goodbye(self, error: ProtocolError) -> None:
        is_torn = error.what.startswith("the connection carries")
        try:
            await self._send(make_error(None, error, PARSE_ERROR if is_torn else INVALID_REQUEST))
        except (OSError, ClientGone):
            return

    def _close(self) -> None:
        self._stop_watching()
        for task in self._tasks:
            task.cancel()
        self._writer.close()


def read_peer(connection: socket.socket) -> Tuple[int, int]:
    """(pid, uid) of the process at the other end of a Unix socket."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(data)
    return pid, uid


def _encode(message: Dict[str, Any]) -> bytes:
    """The frame of a message; one that is too long becomes an error that says so, where somebody waits for an answer."""
    try:
        return encode_frame(message)
    except ProtocolError as error:
        if "id" not in message:
            raise
        return encode_frame(make_error(message["id"], error, INTERNAL_ERROR))


def _internal(method: str, error: Exception) -> NodeError:
    return NodeError(
        f"{method} ended in an error of the agent's own",
        f"{type(error).__name__}: {error}",
        "report it with the node's daemon.log",
    )
