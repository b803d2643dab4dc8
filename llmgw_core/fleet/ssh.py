"""A node over SSH: one connection, on it one session that runs `sh -s`."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

import asyncssh

from llmgw_core.errors import LlmgwError
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.ssh_config import Destination
from llmgw_core.fleet.ssh_dial import JumpHosts, SshConnection, open_connection
from llmgw_core.fleet.ssh_errors import explain_session_error
from llmgw_core.fleet.ssh_messages import Route, Trouble, tell
from llmgw_core.fleet.transport import shell_command

SESSION_TIMEOUT_S = 30.0
_STDERR_TAIL_BYTES = 8192
_jump_hosts: "WeakKeyDictionary[asyncio.AbstractEventLoop, JumpHosts]" = WeakKeyDictionary()


class SshTransport:
    """Reaches one node. Nothing is opened before `open_shell`.

    Args:
        target: a target with an address.
        environ: the operator's environment, for ssh's configuration and the agent; the process's own by default.
        jumps: jump hosts to share; by default all transports of one event loop share them.
    """

    def __init__(
        self,
        target: Target,
        environ: Mapping[str, str] | None = None,
        jumps: JumpHosts | None = None,
    ) -> None:
        if target.address is None:
            raise ValueError(f"{target.name} has no address")
        self._target = target
        self._to = Destination(
            target.address, target.user, target.port, target.identity_file, target.jump
        )
        self._environ = os.environ if environ is None else environ
        self._jumps = jumps
        self._connection: SshConnection | None = None

    async def open_shell(self) -> "SshChannel":
        """Return a channel to a fresh `sh -s` on the node; connects first if need be.

        Raises:
            LlmgwError: one of the Unreachable classes or a ConfigError, with the node's name.
        """
        if self._connection is None or self._connection.ssh.is_closed():
            await self.close()
            self._connection = await open_connection(
                self._target.name, self._to, self._environ, self._jumps or _shared_jump_hosts()
            )
        route = self._connection.route
        try:
            async with asyncio.timeout(SESSION_TIMEOUT_S):
                process = await self._connection.ssh.create_process(
                    shell_command(self._target.env), encoding=None, request_pty=False
                )
        except TimeoutError as error:
            raise tell(
                Trouble.NO_SESSION_IN_TIME, replace(route, timeout_s=SESSION_TIMEOUT_S)
            ) from error
        except (asyncssh.Error, OSError) as error:
            raise explain_session_error(error, route) from error
        return SshChannel(process, route)

    async def close(self) -> None:
        """Close the connection within some seconds, whatever the node does."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class SshChannel:
    """Bytes to and from one remote shell."""

    def __init__(self, process: "asyncssh.SSHClientProcess[bytes]", route: Route) -> None:
        self._process = process
        self._route = route
        self._tail = b""
        # stderr has to be read: a full window would stop the whole channel.
        self._draining = asyncio.create_task(self._drain_stderr())

    async def read(self, n: int) -> bytes:
        """Return 1 to `n` bytes; b"" at the end.

        Raises:
            ConnectionDropped: the connection went.
        """
        try:
            data: bytes = await self._process.stdout.read(n)
        except (asyncssh.Error, OSError) as error:
            raise self._explain(error) from error
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the node does not take them.

        Raises:
            ConnectionDropped: the connection went, or the shell ended.
        """
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise self._explain(error) from error

    def stderr_tail(self) -> bytes:
        """Return the last 8 KiB of what the shell said on stderr."""
        return self._tail

    async def close(self) -> None:
        """End the channel; the connection stays."""
        self._process.close()
        self._draining.cancel()
        await asyncio.gather(self._draining, return_exceptions=True)

    def _explain(self, error: Exception) -> LlmgwError:
        return explain_session_error(error, self._route)

    async def _drain_stderr(self) -> None:
        try:
            while chunk := await self._process.stderr.read(4096):
                self._tail = (self._tail + chunk)[-_STDERR_TAIL_BYTES:]
        except (asyncssh.Error, OSError):
            return  # the reader of stdout tells it


def _shared_jump_hosts() -> JumpHosts:
    return _jump_hosts.setdefault(asyncio.get_running_loop(), JumpHosts())
