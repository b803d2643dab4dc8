"""Reaching the daemon, whatever it takes: connect, or start one where the lock is free, or have an older one hand over."""

import os
import re
import socket
import sys
import time
from typing import Any, Dict, Mapping, Optional, Tuple

import llmgw_core
from llmgw_core.agent.dial import ask, dial
from llmgw_core.agent.identity import agent_command, bundle_hash
from llmgw_core.agent.instance_lock import read_holder, try_lock
from llmgw_core.agent.paths import InstancePaths
from llmgw_core.agent.protocol import PROTOCOL_MAX, PROTOCOL_MIN
from llmgw_core.errors import (
    AgentTimeout,
    BootstrapFailed,
    ConnectionDropped,
    LlmgwError,
    NodeError,
    ProtocolError,
)

REACH_TIMEOUT_S = 20.0
HELLO_TIMEOUT_S = 5.0
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1
_MAX_STARTS = 2
_TAIL_BYTES = 600


def reach_daemon(instance: InstancePaths, env: Mapping[str, str]) -> socket.socket:
    """A connection to a daemon that said hello. Of any number of callers at once, one starts it.

    Raises:
        BootstrapFailed: it was started, and ended at once; says what it left in its log.
        AgentTimeout: one holds the lock and does not answer.
        OSError: the lock or the socket cannot be used.
    """
    deadline = time.monotonic() + REACH_TIMEOUT_S
    pause_s = _FIRST_PAUSE_S
    starts = 0
    log_size = _log_size(instance)
    while time.monotonic() < deadline:
        connection = _greet(instance)
        if connection is not None:
            return connection
        lock = try_lock(instance.lock)
        if lock is not None:
            if starts == _MAX_STARTS:
                os.close(lock)
                raise _ended_at_once(instance, log_size)
            starts += 1
            pause_s = _FIRST_PAUSE_S
            _start_daemon(instance, env, lock)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, _LONGEST_PAUSE_S)
    raise AgentTimeout(
        "the agent's daemon does not listen",
        f"process {read_holder(instance.lock)} holds {instance.lock} since at least {REACH_TIMEOUT_S:g} s",
        "kill that process; engines go on, and the next connection starts a new daemon",
    )


def wants_handover(hello: Mapping[str, Any], version: str, bundle: str) -> bool:
    """Whether code of this version and bundle shall replace the daemon that said hello. Never by an older version."""
    if hello.get("bundle") == bundle:
        return False
    return parse_version(str(hello.get("version"))) <= parse_version(version)


def parse_version(text: str) -> Tuple[int, ...]:
    """The numbers of a version, for comparing: `0.10.2` → (0, 10, 2). What is no number ends it."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^0-9.]", text)[0]))


def _greet(instance: InstancePaths) -> Optional[socket.socket]:
    """A connection to a daemon that we want to keep; None: there is none, try again."""
    connection = dial(instance, HELLO_TIMEOUT_S)
    if connection is None:
        return None
    bundle = bundle_hash()
    try:
        hello = ask(connection, "hello", _hello_params(bundle), HELLO_TIMEOUT_S)
        if not isinstance(hello, dict):
            raise ProtocolError("the agent's daemon does not say who it is", ascii(hello)[:100])
        if not wants_handover(hello, llmgw_core.__version__, bundle):
            return connection
        if not _ask_handover(connection, bundle):
            return connection
    except ConnectionDropped:
        # It was just about to end: the next round finds the lock free.
        connection.close()
        return None
    except LlmgwError:
        connection.close()
        raise
    connection.close()
    return None


def _hello_params(bundle: str) -> Dict[str, Any]:
    return {
        "protocol": [PROTOCOL_MIN, PROTOCOL_MAX],
        "version": llmgw_core.__version__,
        "bundle": bundle,
    }


def _ask_handover(connection: socket.socket, bundle: str) -> bool:
    """Whether it agreed. One that refuses is used as it is: the console sees its version in `hello`."""
    try:
        ask(connection, "handover", {"bundle": bundle}, HELLO_TIMEOUT_S)
    except (ConnectionDropped, AgentTimeout):
        raise
    except NodeError:
        return False
    return True


def _start_daemon(instance: InstancePaths, env: Mapping[str, str], lock: int) -> None:
    """Start it in a session of its own, with the lock handed to it: at no instant is the lock free, or held by two."""
    child = os.fork()
    if child == 0:
        try:
            _become_daemon(instance, env, lock)
        finally:
            os._exit(127)
    os.close(lock)
    os.waitpid(child, 0)


def _become_daemon(instance: InstancePaths, env: Mapping[str, str], lock: int) -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        log = os.open(instance.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:  # a full or read-only disk must not keep engines from being stopped
        log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.set_inheritable(lock, True)
    for fd in (null, log):
        if fd > 2:  # noqa: PLR2004 - beyond the standard streams
            os.close(fd)
    os.chdir("/")
    command = agent_command("daemon", "--lock-fd", str(lock))
    os.execve(sys.executable, command, dict(env))  # noqa: S606 - no shell is meant


def _log_size(instance: InstancePaths) -> int:
    try:
        return instance.log.stat().st_size
    except OSError:
        return 0


def _ended_at_once(instance: InstancePaths, log_size: int) -> BootstrapFailed:
    try:
        tail = instance.log.read_bytes()[log_size:][-_TAIL_BYTES:].decode("utf-8", "replace")
    except OSError as error:
        tail = str(error)
    return BootstrapFailed(
        "the agent's daemon ends as soon as it is started",
        " | ".join(tail.split("\n")).strip(" |") or "it left nothing in its log",
        f"see {instance.log} on the node",
    )
