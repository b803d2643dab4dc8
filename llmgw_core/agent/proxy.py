"""The proxy: bytes between a console's channel and the daemon's socket, for as long as both ends are there."""

import contextlib
import os
import select
import socket
import sys
import time
from typing import Dict, Mapping

from llmgw_core.agent.frames import encode_frame
from llmgw_core.agent.paths import resolve_instance
from llmgw_core.agent.rpc import make_error
from llmgw_core.agent.start import reach_daemon
from llmgw_core.errors import LlmgwError, NodeError

_COPY_BYTES = 64 << 10
LINGER_S = 6.0  # for answers still under way when the console's side has closed
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def run_proxy(env: Mapping[str, str]) -> int:
    """Connect stdin and stdout with the daemon until one side is gone. Returns the exit status."""
    try:
        instance = resolve_instance(env)
        connection = reach_daemon(instance, env)
    except LlmgwError as error:
        return _fail(error)
    except OSError as error:
        return _fail(
            NodeError(
                "the agent's daemon cannot be reached",
                str(error),
                "see `df`, `ulimit -n` and the state directory's owner",
            )
        )
    with connection:
        copy_both_ways(connection, 0, 1)
    return 0


def copy_both_ways(connection: socket.socket, source: int, sink: int) -> None:
    """Copy source → connection → sink until the connection or the sink closes, or, some seconds at most, after the source has.

    Neither direction waits for the other: at most one piece is held each way.
    """
    for fd in (source, sink):
        os.set_blocking(fd, False)
    connection.setblocking(False)
    _Copier(connection, source, sink).run()


class _Copier:
    def __init__(self, connection: socket.socket, source: int, sink: int) -> None:
        self._connection = connection
        self._source = source
        self._sink = sink
        self._upward = b""  # read from source, not yet sent
        self._downward = b""
        self._source_open = True
        self._deadline = float("inf")

    def run(self) -> None:
        while time.monotonic() < self._deadline:
            events = self._wait()
            # The sink's reader is gone: nobody can be told anything any more.
            if events.get(self._sink, 0) & _GONE:
                return
            try:
                if not self._move_down(events) or not self._move_up(events):
                    return
            except BlockingIOError:
                continue
            except OSError:
                return

    def _wait(self) -> Dict[int, int]:
        poll = select.poll()
        wire = 0
        if self._upward:
            wire |= select.POLLOUT
        elif self._source_open:
            poll.register(self._source, select.POLLIN)
        if not self._downward:
            wire |= select.POLLIN
        poll.register(self._sink, select.POLLOUT if self._downward else 0)
        if wire:
            poll.register(self._connection, wire)
        left = self._deadline - time.monotonic()
        return dict(poll.poll(None if left == float("inf") else max(0, left * 1000)))

    def _move_down(self, events: Dict[int, int]) -> bool:
        if self._downward:
            if events.get(self._sink, 0) & select.POLLOUT:
                self._downward = self._downward[os.write(self._sink, self._downward) :]
            return True
        if events.get(self._connection.fileno(), 0) & (select.POLLIN | _GONE):
            self._downward = self._connection.recv(_COPY_BYTES)
            return bool(self._downward)
        return True

    def _move_up(self, events: Dict[int, int]) -> bool:
        if self._upward:
            if events.get(self._connection.fileno(), 0) & select.POLLOUT:
                self._upward = self._upward[self._connection.send(self._upward) :]
        elif events.get(self._source, 0):
            self._upward = os.read(self._source, _COPY_BYTES)
            if not self._upward:
                self._source_open = False
                self._deadline = time.monotonic() + LINGER_S
                self._connection.shutdown(socket.SHUT_WR)
        return True


def _fail(error: LlmgwError) -> int:
    """Say it twice: to a person on stderr, to a console as a frame."""
    sys.stderr.write(f"llmgw agent: {error}\n")
    with contextlib.suppress(OSError):
        os.write(1, encode_frame(make_error(None, error)))
    return 1
