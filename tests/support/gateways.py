"""A gateway on real sockets, and engines that do to it what engines do on bad days."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from llmgw_core.gateway.routing import ReplicaState
from llmgw_core.gateway.service import Gateway
from llmgw_core.gateway.settings import load_settings

DEADLINE_S = 20.0
EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}\n\n'
)
DONE = b"data: [DONE]\n\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
# What it says instead of an answer, and then hangs up.
_REFUSALS = {
    "close": b"",
    "garbage": b"\x00\xff this is no HTTP\r\n\r\n",
    "torn": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
    "torn-file": b"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
}
# The same in the middle of a stream.
_BREAKS = {"die-mid": b"9\r\ndata: ha", "garbage-mid": b"zz\r\nno chunk\r\n"}
ANSWER = {
    "choices": [{"text": "x"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
}


async def wait_for(claim: Callable[[], bool], what: str) -> None:
    """Return as soon as the claim is true; an AssertionError when it never is."""
    async with asyncio.timeout(DEADLINE_S):
        while not claim():  # noqa: ASYNC110 - what is waited for happens in many places
            await asyncio.sleep(0.01)
    assert claim(), what


@dataclass
class Engine:
    """One engine. What a request's `prompt` says is what it does to it; else it answers."""

    models: tuple[str, ...] = ("m",)
    port: int = 0
    is_healthy: bool = True
    is_dead: bool = False  # the core: /health and the list go on saying 200
    metrics: bytes = b""
    requests: list[dict[str, Any]] = field(default_factory=list)  # but those of probes
    heads: list[bytes] = field(default_factory=list)
    open: int = 0
    aborted: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, at the former port if there was one; nothing happens if it does."""
        if self.server is not None:
            return
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 26)
        self.port = self.server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        """Be gone at once, with every connection."""
        if self.server is not None:
            self.server.close()
        for writer in tuple(self.writers):
            writer.transport.abort()
        self.server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        body = await reader.readexactly(length)
        path = head.split(b" ")[1].decode()
        if path == "/health":
            return _send(writer, 200 if self.is_healthy else 503, b"")
        if path == "/v1/models":
            cards = [{"id": model, "object": "model", "max_model_len": 99} for model in self.models]
            return _send(writer, 200, json.dumps({"data": cards}).encode())
        if path == "/metrics":
            return _send(writer, 200, self.metrics)
        asked = json.loads(body)
        if self.is_dead:
            self.requests += [asked] if asked.get("prompt") != "Hi" else []
            return _send(writer, 500, b'{"error": {"message": "EngineCore encountered an issue"}}')
        if asked.get("prompt") == "Hi":
            return _send(writer, 200, json.dumps(ANSWER).encode())
        self.requests.append(asked)
        self.heads.append(head)
        self.open += 1
        try:
            return await self._do(asked, reader, writer)
        finally:
            self.open -= 1

    async def _do(
        self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        todo = str(asked.get("prompt", ""))
        if todo in ("hold", "hold-head"):
            return await self._hold(todo, asked, reader, writer)
        if todo in _REFUSALS:
            writer.write(_REFUSALS[todo])
            return False
        if todo in ("500", "503", "400"):
            return _send(writer, int(todo), b'{"error": {"message": "no"}}')
        if asked.get("stream"):
            return await self._stream(todo, writer)
        return _send(writer, 200, json.dumps(ANSWER).encode())

    async def _stream(self, todo: str, writer: asyncio.StreamWriter) -> bool:
        writer.write(STREAM_HEAD)
        for piece in (EVENT, EVENT, EVENT):
            _chunk(writer, piece)
            await writer.drain()
        if todo in _BREAKS:
            await self.go_on.wait()
            writer.write(_BREAKS[todo])
            await writer.drain()
            return False
        if todo == "flood":
            return await self._flood(writer)
        for piece in (USAGE, DONE, b""):
            _chunk(writer, piece)
        return True

    async def _hold(
        self,
        todo: str,
        asked: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Say nothing, or not all, before `go_on`; notice when the other side goes away."""
        if todo == "hold" and asked.get("stream"):
            writer.write(STREAM_HEAD)
            _chunk(writer, EVENT)
        gone = asyncio.create_task(reader.read(1))
        told = asyncio.create_task(self.go_on.wait())
        try:
            await asyncio.wait((gone, told), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.aborted += 1
                return False
        finally:
            gone.cancel()
            told.cancel()
            await asyncio.gather(gone, told, return_exceptions=True)
        if todo == "hold" and asked.get("stream"):
            _chunk(writer, DONE)
            _chunk(writer, b"")
        else:
            _send(writer, 200, json.dumps(ANSWER).encode())
        await writer.drain()
        return False

    async def _flood(self, writer: asyncio.StreamWriter) -> bool:
        piece = b"data: " + b"x" * 60_000 + b"\n\n"
        try:
            while True:
                _chunk(writer, piece)
                await writer.drain()
        except ConnectionError:
            self.aborted += 1
            raise


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _send(writer: asyncio.StreamWriter, status: int, body: bytes) -> bool:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return True


@dataclass
class Bench:
    """A gateway under test, its engines, and a client."""

    gateway: Gateway
    engines: tuple[Engine, ...]
    client: aiohttp.ClientSession

    @property
    def url(self) -> str:
        """Where the gateway is."""
        return f"http://127.0.0.1:{self.gateway.port}"

    async def ask(
        self, prompt: str = "plain", path: str = "/v1/completions", **fields: Any
    ) -> tuple[int, bytes, Any]:
        """(status, body, headers) of one request."""
        body = {"model": "m", "prompt": prompt, **fields}
        async with self.client.post(self.url + path, json=body) as answer:
            return answer.status, await answer.read(), answer.headers

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection."""
        return await asyncio.open_connection("127.0.0.1", self.gateway.port)

    async def settle(self) -> None:
        """Return once nothing runs and nothing waits; a slot that leaked keeps it from returning."""

        def is_still() -> bool:
            return (
                not any(queue.running or queue.waiting for queue in self.gateway.gates.queues)
                and not any(replica.running for replica in self.gateway.table.replicas)
                and not self.gateway.edge.open
                and self.gateway.edge.held_bytes == 0
            )

        await wait_for(is_still, "slots were left behind")

    async def wait_ready(self) -> None:
        """Return once all engines are ready."""
        replicas = self.gateway.table.replicas
        await wait_for(lambda: all(r.state is ReplicaState.READY for r in replicas), "ready")


@asynccontextmanager
async def open_bench(
    folder: Path,
    *engines: Engine,
    on_open: Callable[[Bench], Awaitable[None]] | None = None,
    **changes: Any,
) -> AsyncIterator[Bench]:
    """Engines that listen and a gateway that knows them all to be ready. At the end no slot may be left."""
    for engine in engines:
        await engine.start()
    settings = load_settings(
        None,
        {
            "listen": "127.0.0.1:0",
            "allow_anonymous": "keys" not in changes,
            "admin_socket": str(folder / "admin.sock"),
            "access_log": str(folder / "access.log"),
            "engines": [{"url": engine.url} for engine in engines],
            **changes,
        },
    )
    try:
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            Gateway(settings, {"LLMGW_GATEWAY_DIR": str(folder / "usual")}) as gateway,
            aiohttp.ClientSession(connector=connector) as client,
        ):
            bench = Bench(gateway, engines, client)
            await (bench.wait_ready() if on_open is None else on_open(bench))
            yield bench
            for engine in engines:
                engine.go_on.set()
            await bench.settle()
    finally:
        for engine in engines:
            await engine.kill()
