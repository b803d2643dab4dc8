"""This machine without SSH: the same shell, the same bootstrap, the same agent as on a node."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence

from llmgw_core.errors import ConnectionDropped, Unreachable

STDERR_TAIL_BYTES = 8 << 10
END_TIMEOUT_S = 2.0
STDERR_WAIT_S = 0.5


class LocalTransport:
    """Runs `sh -s`, or another shell, as a child process, with this process's environment and what `env` puts over it."""

    def __init__(
        self, env: Mapping[str, str] | None = None, shell: Sequence[str] = ("sh", "-s")
    ) -> None:
        self._env = dict(env or {})
        self._shell = shell
        self._channels: list[LocalChannel] = []

    async def open_shell(self) -> "LocalChannel":
        """Run `sh -s`.

        Raises:
            Unreachable: no process could be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *self._shell,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self._env},
                # Ctrl-C at the console is not meant for the agent.
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(
                "no shell can be started on this machine", str(error), "see `ulimit -u` and PATH"
            ) from error
        channel = LocalChannel(process)
        self._channels = [item for item in self._channels if not item.is_closed] + [channel]
        return channel

    async def close(self) -> None:
        """End every process started here; daemons and engines are none of them."""
        channels, self._channels = self._channels, []
        await asyncio.gather(*(channel.close() for channel in channels))


class LocalChannel:
    """The stdin and stdout of one child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - all three are pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._tail = bytearray()
        self._drain = asyncio.create_task(self._keep_tail(process.stderr))
        self._closing: asyncio.Future[None] | None = None

    async def read(self, n: int) -> bytes:
        """Return some bytes; b"" at the end."""
        data = await self._stdout.read(n)
        if not data:
            # Why it ended is on stderr, and may be a moment behind.
            await asyncio.wait([self._drain], timeout=STDERR_WAIT_S)
        return data

    async def write(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            ConnectionDropped: the process has ended.
        """
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise ConnectionDropped(
                "the process on this machine went away", str(error) or "its input is closed"
            ) from error

    def stderr_tail(self) -> bytes:
        """Return the last kilobytes of its stderr."""
        return bytes(self._tail)

    async def close(self) -> None:
        """Close its input; a process that does not end by that is ended."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._end())
        # Whoever gives up waiting does not keep the process from being ended, nor the next one from waiting for it.
        await asyncio.shield(self._closing)

    @property
    def is_closed(self) -> bool:
        """Whether the process has been ended, and reaped."""
        return self._closing is not None and self._closing.done()

    async def _end(self) -> None:
        self._stdin.close()
        # The exit status waits for the output's end; nobody wants what is still in there.
        reader = asyncio.create_task(self._discard_output())
        try:
            await self._wait_or_kill()
        finally:
            reader.cancel()
            self._drain.cancel()
            await asyncio.gather(reader, self._drain, return_exceptions=True)
            _close_pipes(self._process)

    async def _wait_or_kill(self) -> None:
        for end in (self._process.terminate, self._process.kill):
            try:
                async with asyncio.timeout(END_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                try:
                    end()
                except ProcessLookupError:
                    return
            else:
                return
        await self._process.wait()

    async def _discard_output(self) -> None:
        with contextlib.suppress(RuntimeError):  # somebody else reads it to its end
            while await self._stdout.read(64 << 10):
                pass

    async def _keep_tail(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(4096):
            self._tail += data
            del self._tail[:-STDERR_TAIL_BYTES]


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """A pipe that a grandchild still holds open would keep the transport, and a warning, alive."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
