"""Whether a fabric address of this node and one of another reach each other by TCP, as an ordinary user can try.

A listener answers with a token that only the console's two nodes know: on a network that is reused on other cables,
somebody else may have the address.
"""

import errno
import ipaddress
import os
import socket
import struct
import threading
import time
from typing import Optional, Tuple

from llmgw_core.domain.reach import FabricConnection, FabricListener

WAIT_S = 5.0
MAX_LISTENERS = 32
MAX_TOKEN_BYTES = 64
_MAX_GUESTS = (
    8  # connections that a listener looks at: a port scanner must not use up the one that is meant
)
_SIOCGIFADDR = 0x8915  # Source: include/uapi/linux/sockios.h
_IFREQ = struct.Struct("16s2xH4s8x")  # name, then a sockaddr_in: family is skipped, port, address
_slots = threading.BoundedSemaphore(MAX_LISTENERS)


def listen_fabric(
    token: str, address: Optional[str] = None, netdev: Optional[str] = None
) -> FabricListener:
    """Wait for a connection in a thread, for 5 s. Returns at once, with the port."""
    where = address or _find_address(netdev)
    if where is None:
        return FabricListener(error="EADDRNOTAVAIL")
    if not _slots.acquire(blocking=False):
        return FabricListener(where, None, "EMFILE")
    try:
        listener = socket.socket(_family(where), socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        _slots.release()
        return FabricListener(where, None, _name(error))
    try:
        _bind_device(listener, netdev)
        listener.bind((where, 0))
        listener.listen(_MAX_GUESTS)
    except OSError as error:
        listener.close()
        _slots.release()
        return FabricListener(where, None, _name(error))
    port = int(listener.getsockname()[1])
    threading.Thread(target=_serve, args=(listener, token), daemon=True).start()
    return FabricListener(where, port)


def connect_fabric(
    token: str,
    peer: str,
    port: int,
    address: Optional[str] = None,
    netdev: Optional[str] = None,
) -> FabricConnection:
    """Connect to a listener, from an address of ours or of the netdev. At most 5 s."""
    began = time.monotonic()
    source = address or _find_address(netdev)
    is_bound = False
    try:
        with socket.socket(_family(peer), socket.SOCK_STREAM) as client:
            client.settimeout(WAIT_S)
            is_bound = _bind_device(client, netdev)
            if source is not None:
                client.bind((source, 0))
            client.connect((peer, port))
            said = _receive(client, began + WAIT_S)
    except (OSError, OverflowError, ValueError) as error:
        return FabricConnection(False, is_bound, None, _name(error))
    if said != token.encode("utf-8", "replace")[:MAX_TOKEN_BYTES]:
        return FabricConnection(False, is_bound, None, "wrong-peer")
    spent_ms = round((time.monotonic() - began) * 1000, 1)
    return FabricConnection(True, is_bound, spent_ms)


def _serve(listener: socket.socket, token: str) -> None:
    deadline = time.monotonic() + WAIT_S
    try:
        with listener:
            for _ in range(_MAX_GUESTS):
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                guest, _ = listener.accept()
                with guest:
                    guest.settimeout(1.0)
                    guest.sendall(token.encode("utf-8", "replace")[:MAX_TOKEN_BYTES])
    except OSError:
        pass  # nobody came, or went at once: the other side tells
    finally:
        _slots.release()


def _receive(client: socket.socket, deadline: float) -> bytes:
    """Until the other side closes."""
    said = b""
    while len(said) < MAX_TOKEN_BYTES:
        client.settimeout(max(0.01, deadline - time.monotonic()))
        chunk = client.recv(MAX_TOKEN_BYTES)
        if not chunk:
            break
        said += chunk
    return said


def _bind_device(sock: socket.socket, netdev: Optional[str]) -> bool:
    """Whether the socket now uses that netdev alone. Kernels before 5.7 let only root do it."""
    if not netdev:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, netdev.encode() + b"\0")
    except OSError:
        return False
    return True


def _find_address(netdev: Optional[str]) -> Optional[str]:
    """The netdev's first IPv4 address; None when it has none."""
    if not netdev:
        return None
    from fcntl import ioctl

    request = _IFREQ.pack(os.fsencode(netdev)[:15], 0, b"")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            answer: Tuple[bytes, int, bytes] = _IFREQ.unpack(
                ioctl(sock.fileno(), _SIOCGIFADDR, request)
            )
    except OSError:
        return None
    return socket.inet_ntoa(answer[2])


def _family(address: str) -> int:
    is_ipv6 = isinstance(ipaddress.ip_address(address), ipaddress.IPv6Address)
    return socket.AF_INET6 if is_ipv6 else socket.AF_INET


def _name(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not error.errno:
        return "ETIMEDOUT"
    return errno.errorcode.get(getattr(error, "errno", None) or 0, "EINVAL")
