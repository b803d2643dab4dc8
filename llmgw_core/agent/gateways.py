"""Gateways of this user on this machine: where their admin sockets are by custom, and how one is asked.

By hand in HTTP/1.0, whose answer ends with the connection: the standard library's client takes longer to load than to use.
"""

import json
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from llmgw_core.errors import GatewayError

TIMEOUT_S = 5.0
MAX_BYTES = 900 << 10  # what fits into one frame to a console
MOST_TENANTS = 500  # of all models; a console shows no more
VERBS = ("pause", "resume", "drain")
_READ_BYTES = 64 << 10


def list_folders(env: Mapping[str, str]) -> Tuple[Path, ...]:
    """Where gateways of this user put their sockets, the likeliest first.

    A service of systemd knows $XDG_RUNTIME_DIR where a login over SSH may not: both places are looked at.
    """
    if env.get("LLMGW_GATEWAY_DIR"):
        return (Path(env["LLMGW_GATEWAY_DIR"]),)
    uid = os.getuid()
    runtime = [env.get("XDG_RUNTIME_DIR"), f"/run/user/{uid}"]
    found = [Path(item) / "llmgw" for item in runtime if item]
    return tuple(dict.fromkeys([*found, Path(f"/tmp/llmgw-gateway-{uid}")]))  # noqa: S108 - checked by is_safe


def is_safe(folder: Path) -> bool:
    """Whether it is a folder of this user into which nobody else may write."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o022


def find_gateways(env: Mapping[str, str]) -> Tuple[str, ...]:
    """The sockets at which a gateway listens now."""
    found = []
    for folder in list_folders(env):
        if is_safe(folder):
            found += [str(path) for path in sorted(folder.glob("gateway-*.sock")) if _hears(path)]
    return tuple(found)


def _hears(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            connection.connect(str(path))
    except OSError:
        return False
    return True


def read_queue(path: str, most_tenants: Optional[int] = None) -> Dict[str, Any]:
    """The document llmgw.queue/1 of the gateway at that socket.

    Raises:
        GatewayError: it does not answer, or not so.
    """
    query = "" if most_tenants is None else f"?tenants={most_tenants}"
    limit = None if most_tenants is None else MAX_BYTES
    return _ask(path, "GET", f"/admin/queue{query}", None, limit)


def steer_gateway(path: str, verb: str, kind: str, name: str) -> Dict[str, Any]:
    """Pause, resume or drain a model, a tenant or an engine. Done twice it is done once.

    Raises:
        GatewayError: it refuses, or does not answer.
    """
    if verb not in VERBS:
        raise GatewayError(f"a gateway does not {verb[:40]!a}", "", "it pauses, resumes and drains")
    return _ask(path, "POST", f"/admin/{verb}", {kind: name}, MAX_BYTES)


def _ask(
    path: str, method: str, target: str, value: Optional[Dict[str, str]], limit: Optional[int]
) -> Dict[str, Any]:
    body = b"" if value is None else json.dumps(value).encode()
    head = f"{method} {target} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    try:
        data = _exchange(path, head + body, limit)
    except OSError as error:
        raise GatewayError(
            f"no gateway answers at {path}",
            error.strerror or "it does not answer in time",
            "is it running? name its --port or --socket, on its node and as its user",
        ) from None
    answer, _, text = data.partition(b"\r\n\r\n")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise GatewayError(
            "the gateway's answer is no document", ascii(text[:80]), "is it of another version?"
        )
    if b" 200 " not in answer.split(b"\r\n")[0]:
        error_ = parsed.get("error")
        said = error_.get("message") if isinstance(error_, dict) else None
        raise GatewayError(
            "the gateway refused", str(said or ""), "llmgw queue shows what there is"
        )
    return parsed


def _exchange(path: str, request: bytes, limit: Optional[int]) -> bytes:
    deadline = time.monotonic() + TIMEOUT_S
    data = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(path)
        connection.sendall(request)
        while True:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            piece = connection.recv(_READ_BYTES)
            if not piece:
                return data
            data += piece
            if limit is not None and len(data) > limit:
                raise GatewayError(
                    f"the gateway at {path} says too much",
                    f"more than {limit >> 10} KiB at once",
                    "llmgw queue --json on its node shows all of it",
                )
