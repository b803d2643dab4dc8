"""Ports that are no sshd: one that says nothing, one that cuts each connection, one that speaks HTTP."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port whose every connection is handed to `answer`; kept open until the end unless it closes it."""
    server = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection = server.accept()[0]
            except OSError:
                return
            kept.append(connection)
            try:
                answer(connection)
            except OSError:
                continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for connection in kept:
            connection.close()


def say_nothing(_: socket.socket) -> None:
    """Leave it open and silent."""


def cut(connection: socket.socket) -> None:
    """Hang up at once."""
    connection.close()


def speak_http(connection: socket.socket) -> None:
    """Answer as a web server does."""
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    connection.close()
