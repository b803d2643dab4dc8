"""One request passed to its engine, and the answer passed back as it comes. Bodies are never decoded or written anew."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from llmgw_core.gateway.gate import Lease
from llmgw_core.gateway.replies import SERVER, Refused, format_event
from llmgw_core.gateway.routing import Replica
from llmgw_core.gateway.usage import AnswerMeter

WHOLE_BYTES = (
    8 << 20
)  # an answer up to this size is passed on in one piece, or as an error if the engine fails in it
CONNECT_TIMEOUT_S = 5.0
# Below the 5 s after which uvicorn, and so vLLM and SGLang, closes an idle connection.
IDLE_CONNECTION_S = 3.0
_SUSPECT_STATUS = 500
_UNAVAILABLE = 503
_RETRY_S = 5
# Of one connection, or written by us. Source: RFC 9110, 7.6.1.
_HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_NOT_ASKED = _HOP_BY_HOP | frozenset(
    [
        "accept-encoding",  # what an engine compressed could not be passed on event by event
        "authorization",
        "content-length",
        "cookie",
        "expect",
        "host",
        "x-api-key",
        "x-llmgw-band",
        "x-request-id",
    ]
)
_NOT_ANSWERED = _HOP_BY_HOP | frozenset(["content-length", "date", "server", "x-request-id"])


class NotStarted(Exception):
    """Nothing of an answer came: the request may be tried elsewhere."""


@dataclass
class Passage:
    """One request on its way, and what became of it."""

    request: web.BaseRequest
    path: str
    body: bytes
    request_id: str
    meter: AnswerMeter = field(default_factory=AnswerMeter)
    first_byte_at: float | None = None  # on the loop's clock
    outcome: str = "ok"
    upstream: aiohttp.ClientResponse | None = None
    stop_reason: Refused | None = None

    def stop(self, reason: Refused) -> None:
        """End it from outside: the engine's side is closed, and the client is told the reason."""
        self.stop_reason = reason
        if self.upstream is not None:
            self.upstream.close()

    def end_if_torn(self) -> None:
        """Wake who reads, if the connection is gone and nobody told him: aiohttp 3.14 does not when an engine sends
        within its answer what is no HTTP."""
        upstream = self.upstream
        connection = None if upstream is None else upstream.connection
        if upstream is None or connection is None:
            return
        protocol, content = connection.protocol, upstream.content
        is_torn = protocol is None or not protocol.is_connected()
        if is_torn and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("what came was no HTTP"))


def make_session(stall_timeout_s: float) -> aiohttp.ClientSession:
    """The client towards the engines: no limit on connections, for admission has one."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=stall_timeout_s
        ),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
    )


class Relay:
    """Passes requests on."""

    def __init__(
        self, session: aiohttp.ClientSession, on_broken: Callable[[Replica, str], None]
    ) -> None:
        """Take a session of `make_session`.

        Args:
            on_broken: called in the same turn of the loop in which an engine fails, with the reason.
        """
        self._session = session
        self._on_broken = on_broken

    async def pass_on(self, passage: Passage, lease: Lease) -> web.StreamResponse:
        """Ask the engine of the lease, and pass its answer to the client.

        Raises:
            NotStarted: nothing of an answer came.
            Refused: 502 or 504, while nothing of it was passed on.
        """
        replica = lease.replica
        upstream = passage.upstream = await self._ask(passage, replica)
        try:
            if upstream.status >= _SUSPECT_STATUS:
                self._on_broken(replica, f"it answered {upstream.status}")
                lease.has_failed = True
                if upstream.status == _UNAVAILABLE:
                    raise NotStarted(f"{replica.name} answered 503")
            passage.first_byte_at = asyncio.get_running_loop().time()
            length = upstream.content_length
            is_whole = length is not None and length <= WHOLE_BYTES
            if is_whole and upstream.content_type != "text/event-stream":
                return await self._pass_whole(passage, lease, upstream)
            return await self._pass_stream(passage, lease, upstream)
        finally:
            # Unless it was read to its end, the connection is closed with it: the engine sees that nobody listens.
            upstream.close() if not upstream.content.at_eof() else upstream.release()

    async def _ask(self, passage: Passage, replica: Replica) -> aiohttp.ClientResponse:
        try:
            return await self._session.request(
                "POST",
                replica.url + passage.path,
                data=passage.body,
                headers=_headers_for(passage, replica),
                allow_redirects=False,
            )
        except aiohttp.SocketTimeoutError as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                why = f"it took no connection in {CONNECT_TIMEOUT_S:g} s"
                self._on_broken(replica, why)
                raise NotStarted(why) from None
            self._on_broken(replica, "it was silent for too long")
            text = "the engine did not begin to answer in time"
            raise Refused(504, "engine_timeout", text, retry_after_s=_RETRY_S) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            self._on_broken(replica, why)
            raise NotStarted(why) from None

    async def _pass_whole(
        self, passage: Passage, lease: Lease, upstream: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        try:
            data = await upstream.content.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._fail(passage, lease, error) from None
        passage.meter.feed(data)
        response = web.Response(body=data, status=upstream.status)
        response.headers.clear()
        response.headers.update(_headers_back(upstream.headers, passage.request_id))
        await response.prepare(passage.request)
        await response.write_eof()
        return response

    async def _pass_stream(
        self, passage: Passage, lease: Lease, upstream: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            status=upstream.status, headers=_headers_back(upstream.headers, passage.request_id)
        )
        await response.prepare(passage.request)
        content, meter = upstream.content, passage.meter
        while True:
            try:
                data = await content.readany()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                failure = self._fail(passage, lease, error)
                await _end_broken(passage, response, upstream, failure)
                return response
            if not data:
                break
            meter.feed(data)
            await response.write(data)
        await response.write_eof()
        return response

    def _fail(self, passage: Passage, lease: Lease, error: Exception) -> Refused:
        """The engine failed within its answer, or was left."""
        if passage.stop_reason is not None:
            passage.outcome = passage.stop_reason.reason
            return passage.stop_reason
        is_stall = isinstance(error, TimeoutError)
        why = "it fell silent" if is_stall else f"{type(error).__name__}: {error}"
        self._on_broken(lease.replica, why)
        lease.has_failed = True
        passage.outcome = "engine_stalled" if is_stall else "engine_failed"
        if is_stall:
            return Refused(504, "engine_stalled", "the engine fell silent within its answer")
        return Refused(502, "engine_failed", "the engine failed within its answer")


async def _end_broken(
    passage: Passage,
    response: web.StreamResponse,
    upstream: aiohttp.ClientResponse,
    failure: Refused,
) -> None:
    """A stream of events ends with the error as an event; of anything else the client must see that it is torn."""
    if upstream.content_type == "text/event-stream":
        gap = b"" if passage.meter.is_at_event_end else b"\n\n"
        await response.write(gap + format_event(failure, passage.path))
        await response.write_eof()
    elif passage.request.transport is not None:
        passage.request.transport.abort()


def _headers_for(passage: Passage, replica: Replica) -> CIMultiDict[str]:
    kept = CIMultiDict(_end_to_end(passage.request.headers, _NOT_ASKED))
    kept["X-Request-Id"] = passage.request_id
    if replica.api_key is not None:
        kept["Authorization"] = f"Bearer {replica.api_key}"
    return kept


def _headers_back(headers: CIMultiDictProxy[str], request_id: str) -> CIMultiDict[str]:
    kept = CIMultiDict(_end_to_end(headers, _NOT_ANSWERED))
    kept["X-Request-Id"] = request_id
    kept["Server"] = SERVER
    return kept


def _end_to_end(headers: CIMultiDictProxy[str], dropped: frozenset[str]) -> list[tuple[str, str]]:
    """The headers that are not of one connection alone; `Connection` may name more of them."""
    named = headers.get("Connection", "")
    if "," in named or named.lower() not in ("", "close", "keep-alive"):
        dropped |= {word.strip().lower() for word in named.split(",")}
    return [(name, value) for name, value in headers.items() if name.lower() not in dropped]
