"""How the ranks of one launch know of one another while no console is connected.

Rank 0 alone goes on answering 200 when another rank is dead, and engines of several nodes do not watch each other. So
the agents of a gang's nodes tell one another by UDP, once a second and at each change: every follower tells rank 0,
rank 0 tells every follower. A rank that is told to be over ends the gang; one that is only silent makes it unready,
for a node that does not answer is not dead.

A message carries an HMAC over a key made for this launch, and the last nonce its receiver sent: one that was recorded
and sent again is too old to be believed, whatever the clocks say.
"""

import contextlib
import hashlib
import hmac
import json
import os
import select
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Deque, Dict, Mapping, Optional, Tuple

from llmgw_core.domain.launch import RankPlan

BEAT_S = 1.0
SILENT_AFTER_S = 15.0  # a daemon that is replaced is away for a second or two
MAX_MESSAGE_BYTES = 2048
KEY_BYTES = 32
_NONCES_KEPT = 16
_WHY_LENGTH = 400
_DIGEST = 32

LOADING, READY, FAILED, STOPPED = "loading", "ready", "failed", "stopped"
_STATES = frozenset((LOADING, READY, FAILED, STOPPED))


@dataclass
class Peer:
    """What one other rank said last, and when that was."""

    address: str
    state: str = LOADING
    why: str = ""
    gang_ready: bool = False  # rank 0 alone knows of all
    heard_at: Optional[float] = None  # monotonic, of the last message that was believed
    nonce: str = ""  # its last, to be given back
    issued: Deque[str] = field(default_factory=lambda: deque(maxlen=_NONCES_KEPT))  # ours to it


@dataclass(frozen=True)
class GangView:
    """How the gang stands, as this rank knows it."""

    ended: Optional[Tuple[int, str, str]] = (
        None  # (rank, FAILED or STOPPED, why) of one that is over
    )
    silent: Tuple[int, ...] = ()  # ranks that were heard and are not any more
    missing: Tuple[int, ...] = ()  # ranks that were never heard of
    all_ready: bool = False
    trouble: str = ""  # why nothing can be heard here
    is_new: bool = False  # it has not listened for long: that nobody was heard says little


class Ledger:
    """The messages of one rank: made, read and judged. No socket, no clock of its own."""

    def __init__(self, rank: RankPlan, key: bytes, began_at: float) -> None:
        gang = rank.gang
        members = gang.members if gang else ()
        self.rank = rank.rank
        self._launch = _launch_of(rank)
        self._key = key
        self._began_at = began_at
        others = range(1, len(members)) if rank.rank == 0 else (0,)
        self.peers: Dict[int, Peer] = {number: Peer(members[number].address) for number in others}
        self.state, self.why = LOADING, ""

    def compose(self, to: int, now: float) -> bytes:
        """The next message for that rank."""
        peer = self.peers[to]
        nonce = os.urandom(8).hex()
        peer.issued.append(nonce)
        view = self.judge(now)
        state, why = self.state, self.why
        if self.rank == 0 and state not in (FAILED, STOPPED) and view.ended is not None:
            number, state, said = view.ended  # a follower hears of another one by rank 0
            why = f"rank {number}: {said}" if number != to else said
        body = {
            "launch": self._launch,
            "from": self.rank,
            "to": to,
            "state": state,
            "why": why[:_WHY_LENGTH],
            "gang_ready": self.rank == 0 and self.state == READY and view.all_ready,
            "nonce": nonce,
            "echo": peer.nonce,
        }
        data = json.dumps(body).encode("ascii")
        return hmac.new(self._key, data, hashlib.sha256).digest() + data

    def take(self, message: bytes, now: float) -> bool:
        """Believe a message, if it is to be believed. Returns whether its state or ours towards it is news."""
        digest, data = message[:_DIGEST], message[_DIGEST:]
        wanted = hmac.new(self._key, data, hashlib.sha256).digest()
        if not hmac.compare_digest(digest, wanted):
            return False
        try:
            body = json.loads(data.decode("ascii"))
        except (ValueError, RecursionError):
            return False
        if not isinstance(body, dict) or not self._is_for_us(body):
            return False
        peer = self.peers[body["from"]]
        is_first = not peer.nonce
        peer.nonce = body["nonce"]
        if body.get("echo") not in peer.issued:
            return is_first  # perhaps an old one; it is answered with a nonce, and the next will be believed
        is_news = is_first or (peer.state, peer.gang_ready) != (body["state"], body["gang_ready"])
        peer.state, peer.why = body["state"], str(body.get("why", ""))[:_WHY_LENGTH]
        peer.gang_ready = body["gang_ready"]
        peer.heard_at = now
        return is_news

    def judge(self, now: float) -> GangView:
        """How the gang stands."""
        ended: Optional[Tuple[int, str, str]] = None
        silent, missing = [], []
        for number, peer in self.peers.items():
            if peer.state in (FAILED, STOPPED) and (ended is None or ended[1] == STOPPED):
                ended = (number, peer.state, peer.why)
            if peer.heard_at is None:
                missing.append(number)
            elif now - peer.heard_at > SILENT_AFTER_S:
                silent.append(number)
        heard = not silent and not missing and ended is None
        ready = heard and all(peer.state == READY for peer in self.peers.values())
        if self.rank != 0:
            ready = ready and self.peers[0].gang_ready
        is_new = now - self._began_at < SILENT_AFTER_S
        return GangView(ended, tuple(silent), tuple(missing), ready, is_new=is_new)

    def _is_for_us(self, body: Mapping[str, object]) -> bool:
        return (
            body.get("launch") == self._launch
            and body.get("to") == self.rank
            and isinstance(body.get("from"), int)
            and body["from"] in self.peers
            and body.get("state") in _STATES
            and isinstance(body.get("gang_ready"), bool)
            and isinstance(body.get("nonce"), str)
            and len(str(body["nonce"])) <= 2 * KEY_BYTES
        )


class GangLink:
    """The ledger of one rank behind a socket and a thread, until closed. `view` and `tell` never wait."""

    def __init__(self, rank: RankPlan, key: bytes) -> None:
        self._plan = rank
        self._ledger = Ledger(rank, key, time.monotonic())
        self._lock = threading.Lock()
        self._trouble = ""
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, name=f"gang-{rank.engine_id}", daemon=True
        )
        self._thread.start()

    def view(self) -> GangView:
        """How the gang stands now."""
        with self._lock:
            view = self._ledger.judge(time.monotonic())
            if not self._trouble:
                return view
            return replace(view, all_ready=False, trouble=self._trouble)

    def tell(self, state: str, why: str = "") -> None:
        """Say how this rank is; at once when that is news. What is over stays over."""
        with self._lock:
            ledger = self._ledger
            if (ledger.state, ledger.why) == (state, why) or ledger.state in (FAILED, STOPPED):
                return
            ledger.state, ledger.why = state, why
        self._wake()

    def close(self, wait_s: float = 0.0) -> None:
        """Listen no more."""
        self._closed = True
        self._wake()
        if wait_s > 0:
            self._thread.join(wait_s)

    def _wake(self) -> None:
        with self._lock:
            if self._wake_out >= 0:
                with contextlib.suppress(BlockingIOError):  # it is awake
                    os.write(self._wake_out, b"x")

    def _run(self) -> None:
        try:
            while not self._closed:
                self._listen()
        finally:
            with self._lock:
                os.close(self._wake_in)
                os.close(self._wake_out)
                self._wake_out = -1

    def _listen(self) -> None:
        """Bind, then beat and hear until closed or the socket fails."""
        try:
            bound = _bind(self._plan)
        except OSError as error:
            self._set_trouble(f"{_own_address(self._plan)}: {error.strerror or error}")
            select.select([self._wake_in], [], [], BEAT_S)
            self._drain_wakes()
            return
        self._set_trouble("")
        with bound:
            next_beat = 0.0
            while not self._closed:
                now = time.monotonic()
                if now >= next_beat:
                    self._beat(bound, now)
                    next_beat = now + BEAT_S
                wake = self._wake_in
                ready, _, _ = select.select([bound.fileno(), wake], [], [], next_beat - now)
                if wake in ready:
                    self._drain_wakes()
                    next_beat = 0.0
                if bound.fileno() in ready and self._hear(bound):
                    next_beat = 0.0

    def _beat(self, bound: socket.socket, now: float) -> None:
        port = self._plan.gang.port if self._plan.gang else 0
        for number, peer in self._ledger.peers.items():
            with self._lock:
                message = self._ledger.compose(number, now)
            try:
                bound.sendto(message, (peer.address, port))
            except OSError:
                continue  # no route now; its silence will tell

    def _hear(self, bound: socket.socket) -> bool:
        try:
            message = bound.recv(MAX_MESSAGE_BYTES)
        except OSError:
            return False  # ICMP's answer to what was sent to a node that does not listen yet
        with self._lock:
            return self._ledger.take(message, time.monotonic())

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_in, 4096)

    def _set_trouble(self, text: str) -> None:
        with self._lock:
            self._trouble = text


def _launch_of(rank: RankPlan) -> str:
    """What all ranks of the launch have in common."""
    return rank.engine_id.removesuffix(f"-r{rank.rank}")


def _own_address(rank: RankPlan) -> str:
    return rank.gang.members[rank.rank].address if rank.gang else ""


def _bind(rank: RankPlan) -> socket.socket:
    """The rank's socket on its own address.

    Raises:
        OSError: the address is not of this node, or somebody has the port.
    """
    address, port = _own_address(rank), rank.gang.port if rank.gang else 0
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.bind((address, port))
    except OSError:
        bound.close()
        raise
    return bound


def is_gang(rank: RankPlan, key: str) -> bool:
    """Whether the plan's gang and the key that came with it are of use: this rank is one of the members."""
    gang = rank.gang
    return (
        gang is not None
        and len(gang.members) == rank.ranks > rank.rank >= 0
        and len(key) == 2 * KEY_BYTES
        and all(digit in "0123456789abcdef" for digit in key)
    )
