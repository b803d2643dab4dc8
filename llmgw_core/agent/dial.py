"""Talking to this node's daemon without asyncio: for the proxy's greeting and for one-shot commands."""

import socket
import time
from typing import Any, Dict, Optional

from llmgw_core.agent.frames import FrameDecoder, encode_frame
from llmgw_core.agent.paths import InstancePaths
from llmgw_core.agent.rpc import make_request
from llmgw_core.errors import AgentTimeout, ConnectionDropped, ProtocolError, from_wire

_READ_BYTES = 64 << 10


def dial(instance: InstancePaths, timeout_s: float) -> Optional[socket.socket]:
    """A connection to the daemon; None when none listens.

    Raises:
        OSError: something else is wrong, e.g. no permission.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(str(instance.socket))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BlockingIOError:  # a backlog that is full
        connection.close()
        raise _no_answer("connect", timeout_s) from None
    except OSError:
        connection.close()
        raise
    return connection


def ask(connection: socket.socket, method: str, params: Dict[str, Any], timeout_s: float) -> Any:
    """The result of one request; nothing else may be under way on the connection.

    Raises:
        LlmgwError: what the daemon answered; AgentTimeout, ConnectionDropped or ProtocolError where it did not.
    """
    deadline = time.monotonic() + timeout_s
    try:
        connection.settimeout(timeout_s)
        connection.sendall(encode_frame(make_request(1, method, params)))
        message = _receive(connection, method, deadline, timeout_s)
    except socket.timeout:  # another class than TimeoutError until 3.10
        raise _no_answer(method, timeout_s) from None
    except OSError as error:
        raise _gone(method, str(error)) from None
    if "error" in message:
        raise from_wire(_error_data(message["error"]))
    return message.get("result")


def _receive(
    connection: socket.socket, method: str, deadline: float, timeout_s: float
) -> Dict[str, Any]:
    decoder = FrameDecoder()
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise _no_answer(method, timeout_s)
        connection.settimeout(left)
        data = connection.recv(_READ_BYTES)
        if not data:
            raise _gone(method, "it closed the connection")
        for message in decoder.feed(data):
            if message.get("id") == 1 or "error" in message:
                return message


def _error_data(error: Any) -> Dict[str, Any]:
    data = error.get("data") if isinstance(error, dict) else None
    if isinstance(data, dict):
        return data
    return ProtocolError("the agent answered with an error", ascii(error)[:200]).to_wire()


def _no_answer(method: str, timeout_s: float) -> AgentTimeout:
    return AgentTimeout(
        "the agent's daemon does not answer",
        f"nothing within {timeout_s:g} s of asking `{method}`",
        "kill the process named in the instance's `lock` file; engines go on, and the next connection starts a new daemon",
    )


def _gone(method: str, why: str) -> ConnectionDropped:
    return ConnectionDropped(
        "the agent's daemon went away", f"while it was asked `{method}`: {why}", "connect anew"
    )
