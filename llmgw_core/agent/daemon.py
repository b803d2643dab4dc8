"""The daemon: one per node, user, boot and namespaces. It serves consoles, keeps engines observed, and can be killed at any time."""

import asyncio
import os
import signal
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Set

from llmgw_core.agent.connection import Connection, read_peer
from llmgw_core.agent.event_log import EventLog
from llmgw_core.agent.identity import bundle_hash, code_root, make_hello
from llmgw_core.agent.instance_lock import is_same_file, note_holder, try_lock
from llmgw_core.agent.paths import InstancePaths, resolve_instance
from llmgw_core.agent.rpc import Request
from llmgw_core.agent.sampler import Sampler
from llmgw_core.errors import NodeError

if TYPE_CHECKING:  # loaded once the daemon listens: half of what starting it costs
    from llmgw_core.agent.service import AgentService
    from llmgw_core.domain.inventory import Node

IDLE_EXIT_S = 15 * 60.0
# Two consoles of one version and different code would otherwise take the node from each other without end: whoever is
# thrown out is back within seconds.
MIN_REIGN_S = 10.0
TOUCH_BUNDLE_S = 3600.0
MAX_CLIENTS = 64
# Until somebody asks for more than a hello, or this long: whoever starts a daemon waits for its first answer.
LOAD_AFTER_S = 0.3
_RETRY_TICK_S = 1.0
# After these the engines may look different.
_CHANGING_METHODS = frozenset(["engine.launch", "engine.stop", "engine.forget"])
_ENGINE_THREADS = 4
_NETWORK_THREADS = 8  # tries of peers that do not answer: 5 s each
_LAST_CALLS_S = 10.0


@dataclass(frozen=True)
class DaemonSettings:
    """What tests shorten."""

    idle_exit_s: float = IDLE_EXIT_S
    min_reign_s: float = MIN_REIGN_S


def run_daemon(
    env: Mapping[str, str],
    lock_fd: Optional[int] = None,
    settings: DaemonSettings = DaemonSettings(),
) -> int:
    """Be the daemon of this instance until told to end. Returns 0, or 1 when another one holds the lock.

    `lock_fd` is the lock as the proxy took it; None: take it here.
    """
    instance = resolve_instance(env)
    lock = lock_fd if lock_fd is not None else try_lock(instance.lock)
    if lock is None:
        return 1
    os.set_inheritable(lock, False)
    os.umask(0o077)
    os.chdir("/")
    note_holder(lock, os.getpid())
    log = EventLog(instance.log)
    if lock_fd is not None:
        log.hold_standard_streams()
    asyncio.run(_serve(instance, env, lock, log, settings))
    # A probe that hangs in a driver must not keep this process, and with it the lock, from ending.
    os._exit(0)


async def _serve(
    instance: InstancePaths,
    env: Mapping[str, str],
    lock: int,
    log: EventLog,
    settings: DaemonSettings,
) -> None:
    daemon = Daemon(instance, env, lock, log, settings)
    await daemon.run()


class Daemon:
    """The event loop's side: sockets, clients, turns. Everything that blocks is done in threads."""

    def __init__(
        self,
        instance: InstancePaths,
        env: Mapping[str, str],
        lock: int,
        log: EventLog,
        settings: DaemonSettings,
    ) -> None:
        self.log = log
        self._instance = instance
        self._lock = lock
        self._settings = settings
        self._started = time.monotonic()
        started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.hello = make_hello(instance, started_at)
        self._env = env
        self._loading: Optional[asyncio.Future[AgentService]] = None
        self._engine_threads = ThreadPoolExecutor(_ENGINE_THREADS, "engines")
        # Apart from the engines', because a driver that hangs must not hold them up.
        self._probe_threads = ThreadPoolExecutor(2, "probe")
        self._network_threads = ThreadPoolExecutor(_NETWORK_THREADS, "network")
        self.sampler = Sampler(self._read_watched, log, self._end_watch)
        self._connections: Dict[int, Connection] = {}
        self._serving: Set[asyncio.Future[Any]] = set()
        self._calls: Set[asyncio.Future[Any]] = set()  # those that change something
        self._count = 0
        self._poke = asyncio.Event()
        self._ending = asyncio.Event()
        self._reason = ""

    async def run(self) -> None:
        """Serve until `end`; then leave socket and lock to the next. Engines are not touched."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end, signal.Signals(number).name)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        server = await asyncio.start_unix_server(self._accept, sock=self._bind())
        self.log.write("started", pid=os.getpid(), bundle=bundle_hash() or "checkout")
        turns = [
            asyncio.ensure_future(turn())
            for turn in (self._tick_in_turns, self.sampler.run, self._touch_bundle)
        ]
        await self._ending.wait()
        server.close()
        for task in turns:
            task.cancel()
        await self._leave()

    def end(self, reason: str) -> None:
        """Ask the daemon to end."""
        self._reason = self._reason or reason
        self._ending.set()

    async def answer(self, request: Request) -> Any:
        """The result of a request, done in a thread; see `AgentService.answer`."""
        threads = self._engine_threads
        if request.method == "inventory":
            threads = self._probe_threads
        elif request.method.startswith(("fabric.", "network.", "gateway.")):
            threads = self._network_threads
        loop = asyncio.get_running_loop()
        service = await self._load()
        call = loop.run_in_executor(threads, service.answer, request)
        if request.method in _CHANGING_METHODS:
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        result = await call
        if request.method in _CHANGING_METHODS:
            self._poke.set()
            self.sampler.hurry()
        return result

    def check_handover(self, bundle: str) -> None:
        """Agree to be replaced by that bundle.

        Raises:
            NodeError: it is this one's own, or this one has only just begun.
        """
        age_s = time.monotonic() - self._started
        if bundle == bundle_hash() or age_s < self._settings.min_reign_s:
            raise NodeError(
                "the agent does not hand over",
                f"bundle {bundle or 'checkout'} asks, {bundle_hash() or 'checkout'} runs since {age_s:.1f} s",
                "use it as it is",
            )
        self.log.write("handover", to=bundle)

    def _bind(self) -> socket.socket:
        """The listening socket, 0600. Whoever holds the lock may remove what a dead daemon left."""
        path = self._instance.socket
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
        listener.setblocking(False)
        return listener

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, uid = read_peer(writer.get_extra_info("socket"))
        if uid not in (os.getuid(), 0) or len(self._connections) >= MAX_CLIENTS:
            self.log.write("client-refused", uid=uid, clients=len(self._connections))
            writer.transport.abort()
            return
        self._count += 1
        number = self._count
        connection = self._connections[number] = Connection(self, reader, writer, number)
        if len(self._connections) == 1:
            self._poke.set()  # nobody looked for seconds
        serving = asyncio.ensure_future(connection.serve())
        self._serving.add(serving)
        try:
            await serving
        finally:
            self._serving.discard(serving)
            del self._connections[number]

    def _load(self) -> "asyncio.Future[AgentService]":
        """The service, loaded once, in a thread; shielded, for whoever waits may go."""
        if self._loading is None:
            loop = asyncio.get_running_loop()
            self._loading = loop.run_in_executor(
                self._engine_threads, _load_service, self._instance, self._env
            )
            self._loading.add_done_callback(self._end_if_not_loaded)
        return asyncio.shield(self._loading)

    def _end_if_not_loaded(self, loading: "asyncio.Future[AgentService]") -> None:
        """Useless without it: those who wait are told, and the next proxy starts anew."""
        error = None if loading.cancelled() else loading.exception()
        if error is not None:
            self.log.write("load-failed", kind=type(error).__name__, error=error)
            self.end("load-failed")

    async def _read_watched(self, max_age_s: float) -> "Node":
        service = await self._load()
        read = partial(service.read_node, max_age_s, is_watched=True)
        return await asyncio.get_running_loop().run_in_executor(self._probe_threads, read)

    async def _end_watch(self) -> None:
        (await self._load()).end_watch()

    async def _tick_in_turns(self) -> None:
        """Observe engines about once a second while there are any; notice when nobody needs this daemon."""
        loop = asyncio.get_running_loop()
        busy_at = time.monotonic()
        await asyncio.sleep(LOAD_AFTER_S)
        while not self._ending.is_set():
            pause_s, live = _RETRY_TICK_S, 1  # unknown counts as some
            try:
                service = await self._load()
                is_watched = bool(self._connections)
                tick = await loop.run_in_executor(self._engine_threads, service.tick, is_watched)
                pause_s, live = tick.pause_s, tick.live_engines
                if tick.changed:
                    self.sampler.hurry()
            except Exception as error:  # noqa: BLE001 - an edge: a failed step is told and tried again
                self.log.write("tick-failed", kind=type(error).__name__, error=error)
            if live or self._connections:
                busy_at = time.monotonic()
            self._end_if_useless(busy_at)
            try:
                await asyncio.wait_for(self._poke.wait(), min(pause_s, self._settings.idle_exit_s))
            except asyncio.TimeoutError:
                continue
            self._poke.clear()

    def _end_if_useless(self, busy_at: float) -> None:
        if time.monotonic() - busy_at >= self._settings.idle_exit_s:
            self.end("idle")
        # Somebody removed our directory: the next proxy starts a daemon that can be reached, we no longer can.
        elif not is_same_file(self._lock, self._instance.lock) or not _is_socket(self._instance):
            self.end("files-gone")

    async def _touch_bundle(self) -> None:
        """Show that the bundle is in use, to consoles that prune a cache which several nodes share."""
        while True:
            if bundle_hash():
                try:
                    os.utime(code_root())
                except OSError as error:
                    self.log.write("bundle-not-touched", error=error)
            await asyncio.sleep(TOUCH_BUNDLE_S)

    async def _leave(self) -> None:
        if is_same_file(self._lock, self._instance.lock):
            self._instance.socket.unlink(missing_ok=True)
        if self._calls:
            _, late = await asyncio.wait(set(self._calls), timeout=_LAST_CALLS_S)
            if late:
                self.log.write("calls-cut-off", count=len(late), after_s=_LAST_CALLS_S)
        await asyncio.gather(*(item.finish() for item in list(self._connections.values())))
        if self._serving:
            await asyncio.wait(set(self._serving), timeout=1.0)
        if self._loading is not None and self._loading.done() and not self._loading.exception():
            self._loading.result().close()
        self.log.write("ended", reason=self._reason)


def _load_service(instance: InstancePaths, env: Mapping[str, str]) -> "AgentService":
    from llmgw_core.agent.service import load_service

    return load_service(instance, env)


def _is_socket(instance: InstancePaths) -> bool:
    try:
        return stat.S_ISSOCK(instance.socket.stat().st_mode)
    except OSError:
        return False
