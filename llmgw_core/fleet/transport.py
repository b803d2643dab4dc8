"""How bytes get to a node and back: what every way of reaching one offers, and nothing of how it does."""

import shlex
from collections.abc import Mapping
from typing import Protocol


class Channel(Protocol):
    """A program's stdin and stdout on the node."""

    async def read(self, n: int) -> bytes:
        """Return some bytes, at most n; b"" once the other side is gone.

        Raises:
            OSError or NodeError: the connection broke.
        """

    async def write(self, data: bytes) -> None:
        """Send all of it; waits while the other side does not take it.

        Raises:
            OSError or NodeError: the connection broke.
        """

    def stderr_tail(self) -> bytes:
        """Return the last kilobytes of what the program wrote to stderr."""

    async def close(self) -> None:
        """End the program's input and let go of it. May be called twice."""


class Transport(Protocol):
    """A way to a node."""

    async def open_shell(self) -> Channel:
        """Run `sh -s` on the node.

        Raises:
            NodeError: the node cannot be reached; says what to do.
        """

    async def close(self) -> None:
        """Give up the connection and all channels on it. May be called twice."""


class PrefixedChannel:
    """A channel of which some bytes were read too early: they come first."""

    def __init__(self, channel: Channel, prefix: bytes) -> None:
        self._channel = channel
        self._prefix = prefix

    async def read(self, n: int) -> bytes:
        """Return the bytes held back, then the channel's."""
        if self._prefix:
            data, self._prefix = self._prefix[:n], self._prefix[n:]
            return data
        return await self._channel.read(n)

    async def write(self, data: bytes) -> None:
        """Send all of it."""
        await self._channel.write(data)

    def stderr_tail(self) -> bytes:
        """Return the last kilobytes of the program's stderr."""
        return self._channel.stderr_tail()

    async def close(self) -> None:
        """Let go of the channel."""
        await self._channel.close()


def shell_command(env: Mapping[str, str]) -> str:
    """Return the command to run on the node: a POSIX shell, whatever the login shell is, with `env` set.

    By env(1) and not as `A=b sh`, which csh and fish do not understand.
    """
    if not env:
        return "sh -s"
    return f"env {' '.join(shlex.quote(f'{name}={value}') for name, value in env.items())} sh -s"
