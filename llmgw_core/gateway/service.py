"""The gateway as a whole: put together, opened, reloaded, drained and closed."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from llmgw_core.errors import ConfigError, GatewayError
from llmgw_core.gateway.access_log import AccessLog
from llmgw_core.gateway.admin import Admin, link_socket, name_socket, prepare_socket
from llmgw_core.gateway.edge import Edge, EdgeServer, Visit
from llmgw_core.gateway.gate import Gates
from llmgw_core.gateway.keys import load_keys
from llmgw_core.gateway.metrics import Metrics, Picture
from llmgw_core.gateway.picture import Rates
from llmgw_core.gateway.probing import Prober
from llmgw_core.gateway.relay import Relay, make_session
from llmgw_core.gateway.replies import Refused
from llmgw_core.gateway.routing import Replica, ReplicaState, Table
from llmgw_core.gateway.settings import EngineEntry, Settings

TICK_S = 1.0
DRAIN_LOOK_S = 0.05
_RETRY_S = 5
_BACKLOG = 1024
_CLOSE_S = 2.0


class Gateway:
    """Entered, it serves; left, it is closed. Everything happens on the loop it was entered on."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] | None = None) -> None:
        self.settings = settings
        self.table = Table(has_affinity=settings.prefix_affinity)
        self.port = settings.port  # the real one, once it is open
        self._environ = os.environ if environ is None else environ
        self._probers: dict[str, tuple[Prober, asyncio.Task[None]]] = {}
        self._progress: dict[Visit, tuple[int, float]] = {}
        self._ending = AsyncExitStack()
        self._rates = Rates()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._ending = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._ending.aclose()

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        keys = load_keys(
            settings.keys, settings.queue.bands, allow_anonymous=settings.allow_anonymous
        )
        self.log = AccessLog(settings.access_log)
        stack.callback(self.log.close)
        self.gates = Gates(self.table, settings.queue, loop.time, keys.weights)
        self._session = await stack.enter_async_context(make_session(settings.stall_timeout_s))
        self.metrics = Metrics(self._look)
        relay = Relay(self._session, self._on_broken)
        self.edge = Edge(
            settings,
            keys,
            self.table,
            self.gates,
            relay=relay,
            metrics=self.metrics,
            log=self.log,
        )
        admin = Admin(self.gates, self._rates, self.metrics, lambda: self.edge.is_draining)
        self.edge.admin = admin.handle
        self._tls = _load_tls(settings)
        stack.push_async_callback(self._stop_probers)
        for entry in settings.engines:
            self.add_engine(entry)
        self._server = EdgeServer(self.edge)
        runner = web.ServerRunner(self._server, shutdown_timeout=_CLOSE_S)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        self._site = web.TCPSite(
            runner, settings.host, settings.port, ssl_context=self._tls, backlog=_BACKLOG
        )
        await _listen(self._site, f"{settings.host}:{settings.port}")
        self.port = runner.addresses[0][1]
        await self._open_admin(stack, admin)
        ticking = asyncio.create_task(self._tick(), name="gateway tick")
        stack.push_async_callback(_end, ticking)

    async def _open_admin(self, stack: AsyncExitStack, admin: Admin) -> None:
        admin.identity["address"] = f"{self.settings.host}:{self.port}"
        usual = name_socket(self.port, self._environ)
        self.socket = self.settings.admin_socket or usual
        prepare_socket(self.socket)
        runner = web.ServerRunner(web.Server(admin.handle, access_log=None))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        mask = os.umask(0o177)  # it must not be open to others for a moment
        try:
            await _listen(web.UnixSite(runner, str(self.socket)), str(self.socket))
        finally:
            os.umask(mask)
        stack.callback(_remove, self.socket)
        if self.socket != usual and link_socket(self.socket, usual):
            stack.callback(_remove, usual)

    def add_engine(self, entry: EngineEntry, name: str = "") -> Prober:
        """Take an engine in; it gets requests once it has proven itself.

        Raises:
            ConfigError: the file of its key cannot be read.
        """
        replica = Replica(
            entry.url,
            name or entry.url,
            entry.slots or self.settings.slots,
            (entry.model,) if entry.model else (),
            _read_secret(entry.api_key_file),
        )
        self.table.add(replica)
        prober = Prober(self._session, replica, self.on_table_change)
        task = asyncio.create_task(prober.run(), name=f"probe {entry.url}")
        self._probers[entry.url] = (prober, task)
        return prober

    def remove_engine(self, url: str) -> None:
        """Take an engine out. What runs at it goes on."""
        found = self._probers.pop(url, None)
        if found is not None:
            found[1].cancel()
        self.table.remove(url)
        self.gates.review()

    def on_table_change(self) -> None:
        """A replica's state or models changed."""
        self.table.index()
        self.gates.review()

    def reload(self, settings: Settings) -> None:
        """Take over keys, limits, engines and certificates. Streams go on; address and bands stay.

        Raises:
            ConfigError: something of it is wrong; then nothing has changed.
        """
        keys = load_keys(
            settings.keys, self.settings.queue.bands, allow_anonymous=settings.allow_anonymous
        )
        for entry in settings.engines:
            _read_secret(entry.api_key_file)
        if self._tls is not None and settings.tls_certificate and settings.tls_key:
            _load_certificate(self._tls, settings.tls_certificate, settings.tls_key)
        self.log.reopen()
        former = {entry.url: entry for entry in self.settings.engines}
        wanted = {entry.url: entry for entry in settings.engines}
        for url in former.keys() - wanted.keys():
            self.remove_engine(url)
        for url, entry in wanted.items():
            if url not in former:
                self.add_engine(entry)
                continue
            replica = self._probers[url][0].replica
            replica.slots = entry.slots or settings.slots
            replica.api_key = _read_secret(entry.api_key_file)
        self.settings = self.edge.settings = settings
        self.edge.keys = keys
        self.gates.set_weights(keys.weights)
        self.gates.set_limits(settings.queue)
        self.gates.review()

    async def drain(self) -> None:
        """Take no new requests, let those that run and wait come to their end, and end the rest after `drain_s`."""
        self.edge.is_draining = True
        await self._site.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_s):
                while self.edge.open or self.gates.waiting:  # noqa: ASYNC110 - seen by whoever ends last, in many places
                    await asyncio.sleep(DRAIN_LOOK_S)
        self.gates.refuse_all(_shutting_down)
        for visit in tuple(self.edge.open):
            if visit.passage is not None:
                visit.passage.stop(_shutting_down())
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                while self.edge.open:  # noqa: ASYNC110 - same
                    await asyncio.sleep(DRAIN_LOOK_S)

    def _on_broken(self, replica: Replica, why: str) -> None:
        """Nothing more goes to an engine that failed a request, before it has proven itself anew."""
        if replica.state is ReplicaState.READY:
            replica.state, replica.trouble = ReplicaState.SUSPECT, why
        found = self._probers.get(replica.url)
        if found is not None:
            found[0].poke()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            self._rates.sample(now, [queue.state(now) for queue in self.gates.queues])
            self._end_stuck(now)
            await asyncio.sleep(TICK_S)

    def _end_stuck(self, now: float) -> None:
        """Neither an engine that tears its answer nor a client that takes nothing of it any more keeps a slot for ever."""
        progress = {}
        for visit in tuple(self.edge.open):
            passage = visit.passage
            if passage is not None:
                passage.end_if_torn()
            transport = None if passage is None else passage.request.transport
            if passage is None or transport is None or not transport.get_write_buffer_size():
                continue
            done, since = self._progress.get(visit, (-1, now))
            progress[visit] = (passage.meter.bytes, since if done == passage.meter.bytes else now)
            if now - progress[visit][1] > self.settings.stall_timeout_s:
                transport.abort()
        self._progress = progress

    def _look(self) -> Picture:
        now = asyncio.get_running_loop().time()
        states = tuple(queue.state(now) for queue in self.gates.queues)
        return Picture(states, self.table.replicas, self.log.dropped)

    async def _stop_probers(self) -> None:
        tasks = [task for _, task in self._probers.values()]
        self._probers.clear()
        for task in tasks:
            await _end(task)


def _shutting_down() -> Refused:
    return Refused(503, "draining", "the gateway is shutting down", retry_after_s=_RETRY_S)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _listen(site: web.BaseSite, where: str) -> None:
    try:
        await site.start()
    except OSError as error:
        raise GatewayError(
            f"the gateway cannot listen at {where}",
            error.strerror or str(error),
            "name another address: --listen HOST:PORT",
        ) from None


def _load_tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_certificate(context, settings.tls_certificate, settings.tls_key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        raise ConfigError(
            f"cannot use the certificate {certificate} with the key {key}",
            error.strerror or str(error),
            "both in PEM, the key without a password",
        ) from None


def _read_secret(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot read the engine's key in {path}", why, "name another file"
        ) from None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
