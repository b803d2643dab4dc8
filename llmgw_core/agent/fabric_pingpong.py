"""Whether two ports reach each other by RDMA, by `ibv_rc_pingpong` of the libibverbs utilities.

It needs no rights but to open the adapter. Both sides first meet by TCP on any network.
Source: rdma-core, libibverbs/man/ibv_rc_pingpong.1
"""

import os
import re
import shutil
import socket
import threading
import time
from typing import List, Mapping, NamedTuple, Optional

from llmgw_core.agent.probes.commands import run_together
from llmgw_core.domain.reach import FabricConnection, FabricListener

PROGRAM = "ibv_rc_pingpong"
NOT_INSTALLED = "not-installed"
WAIT_S = 8.0
CALL_S = 5.0
_ROUNDS = 100
_RETRY_S = 0.2  # the other side may not listen yet
_HCA = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PEER = re.compile(r"[A-Za-z0-9:][A-Za-z0-9_.:%-]{0,254}")
_MAX_SAID = 120
_slots = threading.BoundedSemaphore(8)


class PingpongPort(NamedTuple):
    """A port of this node."""

    hca: str
    port: int
    gid_index: Optional[int]  # None: by LID, as on InfiniBand


def answer_pingpong(port: PingpongPort, env: Mapping[str, str]) -> FabricListener:
    """Wait for a caller in a thread, for 8 s. Returns at once, with the TCP port where they meet."""
    words = _command(port, env)
    if words is None:
        return FabricListener(error=NOT_INSTALLED)
    if not _slots.acquire(blocking=False):
        return FabricListener(error="EMFILE")
    tcp_port = _find_free_port()

    def serve() -> None:
        try:
            run_together([[*words, "-p", str(tcp_port)]], WAIT_S, env)
        finally:
            _slots.release()

    threading.Thread(target=serve, daemon=True).start()
    return FabricListener(port=tcp_port)


def call_pingpong(
    port: PingpongPort, peer: str, tcp_port: int, env: Mapping[str, str]
) -> FabricConnection:
    """Ping the port that waits there. At most some 5 s; `error` is the tool's last words."""
    words = _command(port, env)
    if words is None:
        return FabricConnection(error=NOT_INSTALLED)
    if not _PEER.fullmatch(peer):
        return FabricConnection(error="EINVAL")
    deadline = time.monotonic() + CALL_S
    while True:
        began = time.monotonic()
        left_s = max(0.5, deadline - began)
        (result,) = run_together([[*words, "-p", str(tcp_port), peer]], left_s, env)
        if result.code == 0:
            return FabricConnection(True, True, round((time.monotonic() - began) * 1000, 1))
        said = (result.stderr or result.stdout).strip().splitlines()
        is_early = bool(said) and "connect" in said[-1].lower()
        if not is_early or time.monotonic() + _RETRY_S > deadline:
            last = "timed out" if result.timed_out else (said or ["no words"])[-1]
            return FabricConnection(False, True, None, f"{PROGRAM}: {last[:_MAX_SAID]}")
        time.sleep(_RETRY_S)


def _command(port: PingpongPort, env: Mapping[str, str]) -> Optional[List[str]]:
    """The words that both sides share; None where it is not installed, or no such port can be."""
    program = shutil.which(PROGRAM, path=env.get("PATH", os.defpath))
    if program is None or not _HCA.fullmatch(port.hca):
        return None
    words = [program, "-d", port.hca, "-i", str(port.port), "-n", str(_ROUNDS)]
    return words if port.gid_index is None else [*words, "-g", str(port.gid_index)]


def _find_free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        return int(sock.getsockname()[1])
