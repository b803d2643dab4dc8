"""Channels for tests: a scripted one that says what the test wants, and a real one that counts."""

import asyncio
from collections.abc import Callable
from typing import Any

from llmgw_core.agent.frames import FrameDecoder, encode_frame
from llmgw_core.fleet.transport import Channel


class ScriptedChannel:
    """A node that answers each request by the test's function; a test may also say bytes at any time."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any] | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.is_closed = False
        self.stderr = b""
        self._answer = answer or (lambda _: None)
        self._decoder = FrameDecoder()
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()

    def say(self, message: dict[str, Any] | bytes) -> None:
        """Send a message, or bytes, to the client; b"" is the end."""
        self._inbox.put_nowait(message if isinstance(message, bytes) else encode_frame(message))

    async def read(self, n: int) -> bytes:
        """Return the next bytes said."""
        data = await self._inbox.get()
        assert len(data) <= n or not data or self._put_back(data[n:])
        return data[:n]

    async def write(self, data: bytes) -> None:
        """Take a request and answer it."""
        for message in self._decoder.feed(data):
            self.requests.append(message)
            answer = self._answer(message)
            if answer is not None:
                self.say(answer)

    def stderr_tail(self) -> bytes:
        """Return what the test set."""
        return self.stderr

    async def close(self) -> None:
        """Note it."""
        self.is_closed = True

    def _put_back(self, data: bytes) -> bool:
        rest = [data]
        while not self._inbox.empty():
            rest.append(self._inbox.get_nowait())
        for item in rest:
            self._inbox.put_nowait(item)
        return True


class CountingChannel:
    """Passes everything on, and counts what was sent."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.sent_bytes = 0

    async def read(self, n: int) -> bytes:
        """Read from the channel."""
        return await self._channel.read(n)

    async def write(self, data: bytes) -> None:
        """Count and send."""
        self.sent_bytes += len(data)
        await self._channel.write(data)

    def stderr_tail(self) -> bytes:
        """Return the channel's."""
        return self._channel.stderr_tail()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()
