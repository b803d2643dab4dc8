"""Opening SSH connections: directly, through jump hosts that nodes share, or through a ProxyCommand of the operator's."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import asyncssh

from llmgw_core.errors import ConfigError, ConnectTimeout, LlmgwError
from llmgw_core.fleet.known_hosts import read_known_hosts
from llmgw_core.fleet.ssh_config import Destination, parse_jump, resolve_settings
from llmgw_core.fleet.ssh_errors import Attempt, explain_connect_error
from llmgw_core.fleet.ssh_keys import load_keys

CONNECT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
KEEPALIVE_S = 5.0
KEEPALIVE_COUNT = 3
JUMP_TIMEOUT_S = 30.0
_PROXY_TAIL_BYTES = 2048
Hops = tuple[Destination, ...]
# asyncssh prefers chacha20, which costs half the throughput.
_CIPHERS = ("aes256-gcm@openssh.com", "aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com")
_MORE_CIPHERS = ("aes256-ctr", "aes192-ctr", "aes128-ctr")

# Without a handler Python would print asyncssh's complaints over the console.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())
logging.getLogger("asyncssh").setLevel(logging.ERROR)


@dataclass(frozen=True)
class SshConnection:
    """An open connection, and what ends with it: its lease of a jump host, or its proxy."""

    ssh: asyncssh.SSHClientConnection
    place: str  # as dialled, for messages
    _ending: AsyncExitStack

    async def close(self) -> None:
        """Close within some seconds, whatever the other side does."""
        await self._ending.aclose()


async def open_connection(
    node: str, to: Destination, environ: Mapping[str, str], jumps: "JumpHosts", behind: Hops = ()
) -> SshConnection:
    """Return an open, logged-in connection whose host key was verified.

    Args:
        behind: the jump hosts that wait for this one, so that a loop of them is seen.

    Raises:
        LlmgwError: one of the Unreachable classes or a ConfigError, with the node's name.
    """
    attempt = await _prepare(node, to, environ)
    async with AsyncExitStack() as ending:
        route, proxy = await _open_route(attempt, environ, jumps, behind, ending)
        try:
            ssh = await _log_in(attempt, route)
        # ValueError: what asyncssh says of a name or an option it cannot take.
        except (asyncssh.Error, OSError, ValueError) as error:
            attempt.proxy_said = await proxy.read_last_words() if proxy else ""
            raise explain_connect_error(error, attempt) from error
        ending.push_async_callback(_close_bounded, ssh)
        return SshConnection(ssh, attempt.place, ending.pop_all())


async def _log_in(
    attempt: Attempt,
    route: dict[str, Any],  # Any: keyword arguments of asyncssh.connect
) -> asyncssh.SSHClientConnection:
    options = _options(attempt)
    try:
        return await asyncssh.connect(**options, **route)
    except (asyncssh.ConnectionLost, ConnectionError):
        if "sock" in route or not attempt.has_greeted or not attempt.is_known():
            raise
    # asyncssh asks for keys of the recorded kinds alone, and a node that has none hangs up. Asked for any kind it shows
    # the one it has, which is refused as changed, by its fingerprint.
    return await asyncssh.connect(**options, **route, server_host_key_algs="default")


async def _prepare(node: str, to: Destination, environ: Mapping[str, str]) -> Attempt:
    try:
        settings = await resolve_settings(to, environ)
    except LlmgwError as error:
        raise type(error)(error.what, error.why, error.fix, node) from error
    known, keys = await asyncio.gather(
        asyncio.to_thread(read_known_hosts, settings.known_hosts_files),
        asyncio.to_thread(load_keys, settings),
    )
    timeout = settings.connect_timeout_s or CONNECT_TIMEOUT_S
    return Attempt(node, to.host, settings, known, keys, timeout)


async def _open_route(
    attempt: Attempt,
    environ: Mapping[str, str],
    jumps: "JumpHosts",
    behind: Hops,
    ending: AsyncExitStack,
) -> tuple[dict[str, Any], "_Proxy | None"]:  # Any: keyword arguments of asyncssh.connect
    settings = attempt.settings
    if settings.jump:
        hops = parse_jump(settings.jump)
        attempt.via = hops[-1].host
        if hops[-1] in behind:
            raise ConfigError(
                f"the jump hosts on the way to {attempt.written} form a loop",
                f"{hops[-1].host} is to be reached through itself",
                "correct the ProxyJump lines of the ssh configuration",
                attempt.node,
            )
        lease = jumps.lease(attempt.node, hops, environ, behind)
        return {"tunnel": (await ending.enter_async_context(lease)).ssh}, None
    if settings.proxy_command:
        attempt.via = "its ProxyCommand"
        proxy = await _Proxy.start(settings.proxy_command, environ)
        ending.push_async_callback(proxy.close)
        return {"sock": proxy.socket}, proxy
    return {}, None


def _options(attempt: Attempt) -> dict[str, Any]:  # Any: keyword arguments of asyncssh.connect
    settings, keys = attempt.settings, attempt.keys
    return {
        "host": settings.host,
        "port": settings.port,
        "username": settings.user,
        "config": None,  # everything in it was resolved before
        "client_factory": lambda: _Client(attempt),
        "known_hosts": attempt.known_hosts.merged,
        "host_key_alias": settings.host_key_alias,
        "client_keys": list(keys.pairs) or (),
        "agent_path": keys.agent,
        "agent_identities": list(keys.agent_identities) if keys.agent_identities else None,
        "agent_forwarding": False,
        "connect_timeout": attempt.timeout_s,
        "login_timeout": attempt.timeout_s,
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVE_COUNT,
        "encryption_algs": [*_CIPHERS, *_MORE_CIPHERS],
    }


class _Client(asyncssh.SSHClient):
    """Notes on the way what an error will have to say."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn
        self._attempt.is_connected = True
        peer = conn.get_extra_info("peername")
        self._attempt.peer = peer[0] if isinstance(peer, tuple) else ""

    def connection_lost(self, _exc: Exception | None) -> None:
        self._attempt.has_greeted = self._connection.get_extra_info("server_version") is not None

    def validate_host_public_key(
        self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey
    ) -> bool:
        self._attempt.offered = key
        return False

    def validate_host_ca_key(
        self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey
    ) -> bool:
        self._attempt.offered = key
        return False

    # asyncssh asks for these as far as the node offers them and what came before was refused.
    def public_key_auth_requested(self) -> None:
        self._attempt.methods.add("publickey")

    def password_auth_requested(self) -> None:
        self._attempt.methods.add("password")

    def kbdint_auth_requested(self) -> None:
        self._attempt.methods.add("keyboard-interactive")


class JumpHosts:
    """Connections to jump hosts, one for all the nodes behind it.

    One login per node would run into the jump host's MaxStartups, which drops logins at random.
    """

    def __init__(self) -> None:
        self._tunnels: dict[Hops, _Tunnel] = {}

    @asynccontextmanager
    async def lease(
        self, node: str, hops: Hops, environ: Mapping[str, str], behind: Hops
    ) -> AsyncIterator[SshConnection]:
        """The connection to the last of `hops`; closed when the last node has given it back.

        Raises:
            LlmgwError: what is wrong with the jump host, under the name of the node.
        """
        tunnel = self._tunnels.setdefault(hops, _Tunnel())
        tunnel.users += 1
        try:
            yield await self._reach(tunnel, node, hops, environ, behind)
        finally:
            tunnel.users -= 1
            if tunnel.users == 0:
                self._tunnels.pop(hops, None)
                await tunnel.close()

    async def _reach(
        self,
        tunnel: "_Tunnel",
        node: str,
        hops: Hops,
        environ: Mapping[str, str],
        behind: Hops,
    ) -> SshConnection:
        if tunnel.is_lost():
            tunnel.dialling = asyncio.create_task(self._open(hops, environ, behind))
        assert tunnel.dialling is not None  # noqa: S101 - for mypy
        try:
            # Shielded: that one node stops waiting must not take the jump host from the others.
            async with asyncio.timeout(JUMP_TIMEOUT_S):
                return await asyncio.shield(tunnel.dialling)
        except TimeoutError as error:
            raise ConnectTimeout(
                f"jump host {hops[-1].host} did not answer in {JUMP_TIMEOUT_S:.0f} s",
                "it, or one before it, is slow",
                f"try: ssh {hops[-1].host}",
                node,
            ) from error
        except LlmgwError as error:
            what = f"jump host {hops[-1].host}: {error.what}"
            raise type(error)(what, error.why, error.fix, node) from error

    async def _open(self, hops: Hops, environ: Mapping[str, str], behind: Hops) -> SshConnection:
        before = ",".join(_spell(hop) for hop in hops[:-1])
        last = replace(hops[-1], jump=before or None)
        return await open_connection(last.host, last, environ, self, (*behind, hops[-1]))


@dataclass
class _Tunnel:
    """One jump host: dialled once for all who wait for it, and again after it was lost."""

    users: int = 0
    dialling: "asyncio.Task[SshConnection] | None" = field(default=None)

    def is_lost(self) -> bool:
        """True where there is nothing to wait for or to use."""
        task = self.dialling
        if task is None or not task.done():
            return task is None
        return task.cancelled() or task.exception() is not None or task.result().ssh.is_closed()

    async def close(self) -> None:
        task, self.dialling = self.dialling, None
        if task is None:
            return
        task.cancel()  # of no effect once it is done
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await task.result().close()


class _Proxy:
    """A ProxyCommand on a socket pair, its stderr apart.

    asyncssh would feed the command's stderr into the SSH stream, and take the closing of any pipe for the end.
    """

    def __init__(self, process: asyncio.subprocess.Process, ours: socket.socket) -> None:
        self.socket = ours
        self._process = process
        self._tail = b""
        self._reading = asyncio.create_task(self._read_stderr())

    @classmethod
    async def start(cls, command: str, environ: Mapping[str, str]) -> "_Proxy":
        """Run the command as ssh does: by the shell, which it replaces."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_shell(
                f"exec {command}",
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=asyncio.subprocess.PIPE,
                env=dict(environ),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, ours)

    async def read_last_words(self) -> str:
        """Return what the command said on stderr, waiting a moment for it to finish."""
        await asyncio.wait([self._reading], timeout=0.5)
        return " / ".join(self._tail.decode(errors="replace").split("\n")).strip(" /")

    async def close(self) -> None:
        """End the command and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        self._reading.cancel()
        self.socket.close()

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - for mypy: it was asked for
        while chunk := await self._process.stderr.read(4096):
            self._tail = (self._tail + chunk)[-_PROXY_TAIL_BYTES:]


def _spell(hop: Destination) -> str:
    user = f"{hop.user}@" if hop.user else ""
    host = f"[{hop.host}]" if ":" in hop.host else hop.host
    return f"{user}{host}:{hop.port}" if hop.port else f"{user}{host}"


async def _close_bounded(ssh: asyncssh.SSHClientConnection) -> None:
    ssh.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await ssh.wait_closed()
    except TimeoutError:  # a channel whose far side ignores the end of file
        ssh.abort()
