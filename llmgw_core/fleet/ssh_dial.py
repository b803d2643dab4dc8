"""Opening SSH connections: directly, through jump hosts that nodes share, or through a ProxyCommand of the operator's."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import asyncssh

from llmgw_core.errors import LlmgwError
from llmgw_core.fleet.known_hosts import read_known_hosts
from llmgw_core.fleet.ssh_config import Destination, resolve_settings
from llmgw_core.fleet.ssh_errors import Attempt, explain_connect_error
from llmgw_core.fleet.ssh_hops import Hops, SharedHops, find_hops, spell_hops
from llmgw_core.fleet.ssh_keys import load_keys
from llmgw_core.fleet.ssh_messages import Route

CONNECT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
KEEPALIVE_S = 4.0
KEEPALIVE_COUNT = 2  # asked so often after one interval of silence: gone after DEAD_AFTER_S
_PROXY_TAIL_BYTES = 2048
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
    route: Route  # as dialled, for messages
    _ending: AsyncExitStack

    def is_closed(self) -> bool:
        """Whether it is of no more use."""
        return bool(self.ssh.is_closed())

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
        return SshConnection(ssh, attempt.route, ending.pop_all())


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
        hops = find_hops(settings.jump, behind, attempt.written, attempt.node)
        attempt.via = f"jump host {hops[-1].host}"
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


class JumpHosts(SharedHops[SshConnection]):
    """Connections of asyncssh's to jump hosts."""

    async def open_hop(self, hops: Hops, environ: Mapping[str, str], behind: Hops) -> SshConnection:
        """Return a connection to the last of `hops`."""
        last = replace(hops[-1], jump=spell_hops(hops[:-1]))
        return await open_connection(last.host, last, environ, self, (*behind, hops[-1]))


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


async def _close_bounded(ssh: asyncssh.SSHClientConnection) -> None:
    ssh.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await ssh.wait_closed()
    except TimeoutError:  # a channel whose far side ignores the end of file
        ssh.abort()
