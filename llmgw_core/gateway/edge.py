"""The HTTP edge: from a connection to an answer. Who asks, for what, is there room, where to; then the relay."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from llmgw_core.gateway.access_log import AccessLog
from llmgw_core.gateway.asked import PATHS, Asked, parse_body
from llmgw_core.gateway.gate import Claim, Gates
from llmgw_core.gateway.keys import ApiKey, KeyRing
from llmgw_core.gateway.metrics import Ended, Metrics
from llmgw_core.gateway.relay import NotStarted, Passage, Relay
from llmgw_core.gateway.replies import Refused, reply_error
from llmgw_core.gateway.routing import ModelStatus, Table
from llmgw_core.gateway.settings import Settings
from llmgw_core.gateway.usage import OutputGuess

TRIES = 2  # a request of which no answer came is sent once more
MAX_HEADERS = 128
MAX_HEADER_BYTES = 8190  # of one line
LINGER_S = 5.0  # for what a refused client still sends
_MAX_ID_CHARS = 128
_RETRY_S = 5
_CLIENT_GONE = 499  # in the log, as nginx has it


@dataclass(eq=False)
class Visit:
    """One request, for the log and the metrics."""

    request_id: str
    method: str
    path: str
    client: str
    began_at: float  # on the loop's clock
    model: str = ""
    tenant: str = ""
    band: str = ""
    engine: str = ""
    status: int = 0
    outcome: str = "ok"
    is_stream: bool = False
    waited_s: float = 0.0
    first_byte_s: float | None = None
    body_bytes: int = 0
    answer_bytes: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    retries: int = 0
    was_admitted: bool = False
    passage: Passage | None = field(default=None, repr=False)


class Edge:
    """Answers requests."""

    def __init__(
        self,
        settings: Settings,
        keys: KeyRing,
        table: Table,
        gates: Gates,
        *,
        relay: Relay,
        metrics: Metrics,
        log: AccessLog,
    ) -> None:
        self.settings = settings
        self.keys = keys
        self.is_draining = False
        self.open: set[Visit] = set()
        self.held_bytes = 0  # of bodies
        self.admin: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None = None
        self._table = table
        self._gates = gates
        self._relay = relay
        self._metrics = metrics
        self._log = log
        self._guesses: dict[str, OutputGuess] = {}
        self._now = asyncio.get_running_loop().time

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        visit = Visit(
            _request_id(request),
            request.method,
            request.path,
            request.remote or "",
            self._now(),
        )
        try:
            response = await self._answer(request, visit)
            visit.status = response.status
        except Refused as error:
            visit.status, visit.outcome = error.status, error.reason
            response = reply_error(error, visit.path, visit.request_id)
            if self.is_draining or not request.content.is_eof():
                response.force_close()
        except (asyncio.CancelledError, ConnectionError):
            visit.status, visit.outcome = _CLIENT_GONE, "client_gone"
            raise
        finally:
            self._note(visit)
        return response

    async def _answer(self, request: web.BaseRequest, visit: Visit) -> web.StreamResponse:
        path = visit.path
        if path == "/health":
            return self._health()
        key = self.keys.find(_secret_of(request))
        if key is None:
            text = "no valid API key: send one as Authorization: Bearer KEY"
            raise Refused(401, "invalid_api_key", text)
        visit.tenant, visit.band = key.tenant, key.band
        if path.startswith("/admin/") and key.is_admin and self.admin is not None:
            return await self.admin(request)
        if path in PATHS:
            if request.method != "POST":
                raise Refused(405, "method_not_allowed", f"{path} takes POST")
            return await self._complete(request, visit, key)
        if request.method != "GET":
            raise Refused(404, "not_found", f"there is no POST {path[:200]} here")
        if path == "/v1/models":
            return self._list_models(key)
        if path.startswith("/v1/models/"):
            return self._show_model(key, path.removeprefix("/v1/models/"))
        if path == "/metrics" and (key.is_admin or self.settings.open_metrics):
            return web.Response(body=self._metrics.render(), content_type="text/plain")
        raise Refused(404, "not_found", f"there is no {path[:200]} here")

    async def _complete(
        self, request: web.BaseRequest, visit: Visit, key: ApiKey
    ) -> web.StreamResponse:
        if self.is_draining:
            text = "the gateway is shutting down"
            raise Refused(503, "draining", text, retry_after_s=_RETRY_S)
        body = await self._read_body(request)
        visit.body_bytes = len(body)
        self.held_bytes += len(body)
        try:
            asked = parse_body(visit.path, body, wants_prefix=self._table.has_affinity)
            self._check_model(asked.model, key)
            visit.model, visit.is_stream = asked.model, asked.is_stream
            visit.band = self._choose_band(request, key)
            visit.passage = Passage(request, visit.path, body, visit.request_id)
            return await self._run(visit, asked, visit.passage)
        finally:
            self.held_bytes -= len(body)

    async def _run(self, visit: Visit, asked: Asked, passage: Passage) -> web.StreamResponse:
        """Wait for a slot and pass the request on; once more, if nothing of an answer came."""
        guess = self._guesses.setdefault(visit.tenant, OutputGuess())
        cost = asked.prompt_tokens + guess.guess(asked.most_tokens, asked.answers)
        claim = Claim(
            asked.model,
            visit.band,
            visit.tenant,
            cost,
            len(passage.body),
            visit.began_at + self.settings.queue.timeout_s,
            asked.prefix,
        )
        for _ in range(TRIES):
            lease = await self._gates.enter(claim)
            visit.waited_s += lease.waited_s
            visit.was_admitted = True
            visit.engine = lease.replica.name
            self.open.add(visit)
            began_at = self._now()
            with lease:
                try:
                    response = await self._relay.pass_on(passage, lease)
                    if response.status < 400:  # noqa: PLR2004
                        visit.prompt_tokens, visit.answer_tokens = passage.meter.tokens(
                            asked.prompt_tokens
                        )
                        guess.learn(visit.answer_tokens)
                    lease.used_tokens = visit.prompt_tokens + visit.answer_tokens
                    visit.outcome = passage.outcome if response.status < 500 else "engine_error"  # noqa: PLR2004
                except NotStarted:
                    visit.retries += 1
                    lease.used_tokens = 0
                    lease.has_failed = True
                    continue
                except asyncio.CancelledError:
                    prompt, answer = passage.meter.tokens(asked.prompt_tokens)
                    visit.prompt_tokens, visit.answer_tokens = prompt, answer
                    lease.used_tokens = prompt + answer
                    raise
                finally:
                    self.open.discard(visit)
                    visit.answer_bytes = passage.meter.bytes
                    if passage.first_byte_at is not None:
                        visit.first_byte_s = passage.first_byte_at - began_at
                return response
        text = f"{TRIES} engines of {asked.model!r} failed before they answered"
        raise Refused(502, "engine_failed", text, retry_after_s=_RETRY_S)

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        settings = self.settings
        length = request.content_length
        if length is not None and length > settings.max_body_bytes:
            raise self._too_large()
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Refused(415, "unsupported_encoding", "send the body as it is, not compressed")
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        content = request.content
        if content.is_eof():
            return content.read_nowait(-1)
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(settings.body_timeout_s):
                while piece := await content.readany():
                    pieces.append(piece)
                    size += len(piece)
                    self.held_bytes += len(piece)
                    if size > settings.max_body_bytes:
                        raise self._too_large()
                    if self.held_bytes > settings.held_body_bytes:
                        text = "the gateway holds too many large requests"
                        raise Refused(429, "bytes_full", text, retry_after_s=_RETRY_S)
        except TimeoutError:
            text = f"the body did not come within {settings.body_timeout_s:g} s"
            raise Refused(408, "body_timeout", text) from None
        except web.RequestPayloadError:
            raise Refused(400, "invalid_body", "the body is torn") from None
        finally:
            self.held_bytes -= size
        return b"".join(pieces)

    def _too_large(self) -> Refused:
        most = self.settings.max_body_bytes >> 20
        return Refused(413, "body_too_large", f"the body is larger than {most} MiB")

    def _check_model(self, model: str, key: ApiKey) -> None:
        """A model that a key may not use looks as if it were not there. Past this, a name is one of ours."""
        if self._table.status(model) is ModelStatus.UNKNOWN or not key.allows(model):
            text = f"there is no model {model!r} here"
            raise Refused(404, "model_not_found", text, param="model")

    def _choose_band(self, request: web.BaseRequest, key: ApiKey) -> str:
        """The key's band, or a lower one that the request names."""
        wanted = request.headers.get("X-Llmgw-Band")
        if wanted is None:
            return key.band
        bands = self.settings.queue.bands
        if wanted not in bands:
            raise Refused(400, "unknown_band", f"the bands are {', '.join(bands)}")
        return max(wanted, key.band, key=bands.index)

    def _health(self) -> web.Response:
        state = "draining" if self.is_draining else "ok"
        return _json({"status": state}, 503 if self.is_draining else 200)

    def _list_models(self, key: ApiKey) -> web.Response:
        cards = [
            self._card(model)
            for model in self._table.models
            if key.allows(model) and self._table.status(model) is ModelStatus.OPEN
        ]
        return _json({"object": "list", "data": cards})

    def _show_model(self, key: ApiKey, model: str) -> web.Response:
        self._check_model(model, key)
        if self._table.status(model) is not ModelStatus.OPEN:
            raise Refused(
                404, "model_not_found", f"there is no model {model!r} here", param="model"
            )
        return _json(self._card(model))

    def _card(self, model: str) -> dict[str, object]:
        replicas = self._table.of_model(model)
        card = next((item.cards[model] for item in replicas if model in item.cards), {})
        return {"object": "model", "created": 0, "owned_by": "llmgw", **card, "id": model}

    def _note(self, visit: Visit) -> None:
        now = self._now()
        seconds = now - visit.began_at
        if visit.was_admitted or visit.model:
            self._metrics.note(
                Ended(
                    visit.model,
                    visit.band,
                    visit.tenant,
                    visit.outcome,
                    visit.waited_s,
                    visit.first_byte_s,
                    seconds,
                    visit.prompt_tokens,
                    visit.answer_tokens,
                    visit.retries,
                )
            )
        elif visit.outcome != "ok":
            self._metrics.note_refused(visit.outcome)
        if visit.path in ("/health", "/metrics"):
            return
        self._log.write(_log_line(visit, seconds))


class EdgeServer(web.Server):
    """aiohttp's server with errors in our shape: what is no HTTP at all is told so too."""

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge.handle, handler_cancellation=True)
        self._edge = edge

    def __call__(self) -> RequestHandler:
        """One connection."""
        return _Connection(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self._edge.settings.head_timeout_s,
            access_log=None,  # type: ignore[arg-type]  # None is how it is switched off
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER_S,
            auto_decompress=False,
        )


class _Connection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - the base class's
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no HTTP, or to a bug of ours."""
        if self.transport is None:
            raise ConnectionResetError("the client is gone")
        if status == 500:  # noqa: PLR2004
            logging.getLogger(__name__).error("a bug of llmgw", exc_info=exc)
            error = Refused(500, "internal", "an error of the gateway itself")
        else:
            error = Refused(
                status, "invalid_http", "the request is no valid HTTP, or its head too large"
            )
        del message
        response = reply_error(error, "", "-")
        response.force_close()
        return response


def _json(value: dict[str, object], status: int = 200) -> web.Response:
    return web.Response(
        body=json.dumps(value).encode(), status=status, content_type="application/json"
    )


def _secret_of(request: web.BaseRequest) -> str | None:
    text = request.headers.get("Authorization")
    if text is None:
        return request.headers.get("X-Api-Key")
    kind, _, secret = text.partition(" ")
    return secret.strip() if kind.lower() == "bearer" else text


def _request_id(request: web.BaseRequest) -> str:
    given = request.headers.get("X-Request-Id", "")
    if 0 < len(given) <= _MAX_ID_CHARS and given.isascii() and given.isprintable():
        return given
    return os.urandom(12).hex()


def _log_line(visit: Visit, seconds: float) -> dict[str, object]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "id": visit.request_id,
        "client": visit.client,
        "method": visit.method,
        "path": visit.path,
        "status": visit.status,
        "outcome": visit.outcome,
        "tenant": visit.tenant,
        "band": visit.band,
        "model": visit.model,
        "engine": visit.engine,
        "stream": visit.is_stream,
        "wait_s": round(visit.waited_s, 4),
        "first_byte_s": None if visit.first_byte_s is None else round(visit.first_byte_s, 4),
        "seconds": round(seconds, 4),
        "body_bytes": visit.body_bytes,
        "answer_bytes": visit.answer_bytes,
        "prompt_tokens": visit.prompt_tokens,
        "answer_tokens": visit.answer_tokens,
        "retries": visit.retries,
    }
