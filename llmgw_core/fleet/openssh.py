"""A node over the system's `ssh`, for what asyncssh cannot do: GSSAPI, PKCS#11, FIDO keys, an operator's own connection
that others share (ControlPath), by which also a node that asks for a password or a code is reached.

The same bytes go through it, and the same messages come of it. It costs a process for each node.
"""

import asyncio
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from llmgw_core.errors import ConnectionDropped, LlmgwError, Unreachable
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.openssh_errors import explain_openssh, has_lost_connection
from llmgw_core.fleet.openssh_process import CONNECT_TIMEOUT_S, SshProcess, ssh_argv
from llmgw_core.fleet.ssh_config import Destination, SshSettings, resolve_settings
from llmgw_core.fleet.ssh_hops import Hops, SharedHops, find_hops, spell_hops
from llmgw_core.fleet.ssh_messages import Route, Trouble, entry_name, tell
from llmgw_core.fleet.transport import shell_command

SESSION_TIMEOUT_S = 30.0
LOST = 255  # what ssh ends with where it, and not the program on the node, failed
_ASK_BY_HAND = (
    "log in once by hand with ControlMaster and ControlPersist: llmgw shares that connection"
)
_NOT_FORWARDED = re.compile(r"open failed|stdio forwarding", re.IGNORECASE)
_jump_hosts: "WeakKeyDictionary[asyncio.AbstractEventLoop, OpenSshHops]" = WeakKeyDictionary()


class OpenSshTransport:
    """Reaches one node. Nothing is started before `open_shell`.

    Args:
        target: a target with an address.
        environ: the operator's environment; the process's own by default.
        jumps: jump hosts to share; by default all transports of one event loop share them.
    """

    def __init__(
        self,
        target: Target,
        environ: Mapping[str, str] | None = None,
        jumps: "OpenSshHops | None" = None,
    ) -> None:
        if target.address is None:
            raise ValueError(f"{target.name} has no address")
        self._target = target
        self._to = Destination(
            target.address, target.user, target.port, target.identity_file, target.jump
        )
        self._environ = os.environ if environ is None else environ
        self._jumps = jumps
        self._ending = AsyncExitStack()

    async def open_shell(self) -> "OpenSshChannel":
        """Return a channel to a fresh `sh -s` on the node.

        Raises:
            LlmgwError: one of the Unreachable classes or a ConfigError, with the node's name.
        """
        await self.close()
        jumps = self._jumps or _jump_hosts.setdefault(asyncio.get_running_loop(), OpenSshHops())
        way = await _find_way(
            self._target.name, self._to, self._environ, jumps, (), ending=self._ending
        )
        argv = [*ssh_argv(self._to, self._environ, way.options), shell_command(self._target.env)]
        process = await _start(argv, self._environ, way)
        self._ending.push_async_callback(process.close)
        await _wait_until_open(process, way)
        return OpenSshChannel(process, way)

    async def close(self) -> None:
        """End the process within some seconds, whatever the node does."""
        ending, self._ending = self._ending, AsyncExitStack()
        await ending.aclose()


class OpenSshChannel:
    """Bytes to and from one remote shell."""

    def __init__(self, process: SshProcess, way: "_Way") -> None:
        self._process = process
        self._way = way

    async def read(self, n: int) -> bytes:
        """Return 1 to `n` bytes; b"" at the end.

        Raises:
            LlmgwError: the connection went, or no session came about.
        """
        data = await self._process.channel.read(n)
        if not data:
            await self._raise_if_lost()
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the node does not take them.

        Raises:
            LlmgwError: the connection went, or the shell ended.
        """
        try:
            await self._process.channel.write(data)
        except ConnectionDropped as error:
            await self._raise_if_lost()
            raise tell(Trouble.DROPPED, self._way.route, "the shell there ended") from error

    def stderr_tail(self) -> bytes:
        """Return the last 8 KiB of what the shell said on stderr."""
        return self._process.channel.stderr_tail()

    async def close(self) -> None:
        """End the channel, and its process."""
        await self._process.close()

    async def _raise_if_lost(self) -> None:
        code = await self._process.wait_for_exit()
        if code is not None and code < 0:
            raise tell(Trouble.DROPPED, self._way.route, f"ssh was ended by signal {-code}")
        if code == LOST and has_lost_connection(self._process.read_log()):
            raise self._way.explain(self._process)


@dataclass(frozen=True)
class _Way:
    """How a destination is reached, with what an error will need."""

    route: Route
    settings: SshSettings
    options: Mapping[str, str]

    def explain(self, process: SshProcess) -> LlmgwError:
        """Return the error for an `ssh` that failed."""
        said = process.channel.stderr_tail().decode("utf-8", "replace")
        log = process.read_log()
        if self.settings.jump and _NOT_FORWARDED.search(said):
            return tell(Trouble.NO_FORWARDING, self.route, said.strip().splitlines()[-1][:300])
        return explain_openssh(log, said, self.route, self.settings, _ASK_BY_HAND)


@dataclass(frozen=True)
class OpenSshHop:
    """A connection to a jump host, which other processes share by its socket; without one, the operator's own is shared."""

    argv: tuple[str, ...]  # of an ssh by way of it, up to what it shall do
    ending: AsyncExitStack
    process: SshProcess | None = None

    def is_closed(self) -> bool:
        """Whether it is of no more use."""
        return self.process is not None and self.process.exit_code is not None

    async def close(self) -> None:
        """End it within some seconds."""
        if self.process is not None:
            self.process.end()
        await self.ending.aclose()


class OpenSshHops(SharedHops[OpenSshHop]):
    """Connections of the system's `ssh` to jump hosts."""

    async def open_hop(self, hops: Hops, environ: Mapping[str, str], behind: Hops) -> OpenSshHop:
        """Return a connection to the last of `hops`."""
        to = replace(hops[-1], jump=spell_hops(hops[:-1]))
        async with AsyncExitStack() as ending:
            way = await _find_way(to.host, to, environ, self, (*behind, hops[-1]), ending=ending)
            plain = {**way.options, "ControlMaster": "no", "LogLevel": "ERROR"}
            if way.settings.control_path:
                return OpenSshHop(tuple(ssh_argv(to, environ, plain)), ending.pop_all())
            folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="llmgw-hop-"))
            path = str(Path(folder, "s"))
            shared = {**way.options, "ControlMaster": "yes", "ControlPath": path}
            process = await _start(ssh_argv(to, environ, shared, "-N"), environ, way)
            ending.push_async_callback(process.close)
            await _wait_until_open(process, way)
            by_it = tuple(ssh_argv(to, environ, {**plain, "ControlPath": path}))
            return OpenSshHop(by_it, ending.pop_all(), process)


async def _find_way(
    node: str,
    to: Destination,
    environ: Mapping[str, str],
    jumps: OpenSshHops,
    behind: Hops,
    *,
    ending: AsyncExitStack,
) -> _Way:
    try:
        settings = await resolve_settings(to, environ)
    except LlmgwError as error:
        raise type(error)(error.what, error.why, error.fix, node) from error
    timeout_s = settings.connect_timeout_s or CONNECT_TIMEOUT_S
    name = entry_name(settings.host_key_alias or settings.host, settings.port)
    route = Route(node, to.host, settings.host, settings.port, settings.user, timeout_s, None, name)
    # Never the one that others share: it could not end before they do.
    options = {"ConnectTimeout": f"{timeout_s:.0f}", "ControlMaster": "no"}
    if settings.jump:
        hops = find_hops(settings.jump, behind, to.host, node)
        route = replace(route, via=f"jump host {hops[-1].host}")
        hop = await ending.enter_async_context(jumps.lease(node, hops, environ, behind))
        options["ProxyCommand"] = _forward_by(hop)
    elif settings.proxy_command:
        route = replace(route, via="its ProxyCommand")
    return _Way(route, settings, options)


def _forward_by(hop: OpenSshHop) -> str:
    """The ProxyCommand: ssh puts host and port in for %h and %p."""
    ssh, *words = (shlex.quote(word).replace("%", "%%") for word in hop.argv)
    return " ".join([ssh, "-W", "[%h]:%p", *words])


async def _start(argv: list[str], environ: Mapping[str, str], way: _Way) -> SshProcess:
    try:
        return await SshProcess.start(argv, environ)
    except OSError as error:
        raise Unreachable(
            "ssh cannot be started on this machine",
            error.strerror or str(error),
            "see `ulimit -u` and `ulimit -n`",
            way.route.node,
        ) from error


async def _wait_until_open(process: SshProcess, way: _Way) -> None:
    """Return once it is logged in, or the program on the node has ended already.

    Raises:
        LlmgwError: neither; the process has been ended or will be by its owner.
    """
    limit_s = way.route.timeout_s + SESSION_TIMEOUT_S
    if not await process.wait_until_open(limit_s):
        raise tell(Trouble.SILENT, replace(way.route, timeout_s=limit_s))
    if process.exit_code is not None and has_lost_connection(process.read_log()):
        # What a ProxyCommand said is on stderr, and may be a moment behind.
        await process.channel.read(1)
        raise way.explain(process)
