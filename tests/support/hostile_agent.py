"""A node that means harm, run by a real sshd instead of a shell: it takes the bootstrap's script and then does as MODE says.

    ForceCommand python -I -S hostile_agent.py MODE [REPLIES]

REPLIES is a JSON file: method → result, for the mode `replies`, which is a well-formed agent with hostile words.
"""

import json
import os
import re
import struct
import sys
import time
from collections.abc import Callable

TICK_S = 0.05
HELLO = {
    "protocol": [1, 1],
    "version": "0.1.0",
    "bundle": "",
    "hostname": "h",
    "machine_id": "",
    "boot_id": "b",
    "pid_namespace": "p",
    "uid": 0,
    "user": "root",
    "python": "3.11.7",
    "state_dir": "/s",
    "pid": 1,
    "started_at": "t",
}


def say(data: bytes) -> None:
    """Send all of it."""
    while data:
        data = data[os.write(1, data) :]


def frame(message: object) -> bytes:
    """One frame; also of what no agent would send."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


def read_exactly(count: int) -> bytes:
    """So many bytes of the console."""
    data = b""
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return data


def bootstrap() -> None:
    """Play a node that has the agent already."""
    script = b""
    while not (found := re.search(rb" ([0-9a-f]{16}) [0-9a-f]{16} ;;", script)):
        script += read_exactly(1)
    nonce = found[1]
    say(b"LLMGW1 " + nonce + b' {"have": true, "ok": true, "bz2": true}\n')
    line = b""
    while not line.endswith(b"run\n"):
        line = line[-8:] + read_exactly(1)
    say(b"LLMGW1 " + nonce + b' {"ok": true}\n')


def read_request() -> "dict[str, object]":
    """The console's next request."""
    (length,) = struct.unpack(">I", read_exactly(4))
    return json.loads(read_exactly(length))  # type: ignore[no-any-return] # the console's own


def answer(request: "dict[str, object]", result: object) -> None:
    """A well-formed answer."""
    say(frame({"jsonrpc": "2.0", "id": request["id"], "result": result}))


def pour(data: bytes) -> None:
    """The same bytes, without end."""
    while True:
        say(data)


def drip(data: bytes) -> None:
    """The bytes one by one, without end."""
    while True:
        for number in range(len(data)):
            say(data[number : number + 1])
            time.sleep(TICK_S)


def envelope(body: bytes) -> bytes:
    """An answer to the first request with this result, which json.dumps would not write."""
    return frame(b'{"jsonrpc":"2.0","id":1,"result":' + body + b"}")


def make_bad_answer(mode: str, number: object) -> "bytes | None":
    """What the mode answers to every request; None: something else."""
    bomb = "\x1b[2J\x1b]0;pwned\x07" * 15_000
    error = {"data": {"code": "node", "what": bomb, "node": "other"}}
    answers = {
        "wrong-ids": lambda: frame({"jsonrpc": "2.0", "id": 10**9, "result": {}}),
        "text-ids": lambda: frame({"jsonrpc": "2.0", "id": "1\x1b[2J", "result": {}}),
        "deep": lambda: envelope(b"[" * 200_000 + b"]" * 200_000),
        "numbers": lambda: envelope(b'{"uid":' + b"9" * 500_000 + b"}"),
        "exponents": lambda: envelope(b'{"uid":1e400}'),
        "long-error": lambda: frame({"jsonrpc": "2.0", "id": number, "error": error}),
        "long-keys": lambda: frame({"jsonrpc": "2.0", "id": number, "result": {bomb: 1}}),
    }
    make = answers.get(mode)
    return None if make is None else make()


def serve(mode: str, replies: "dict[str, object]") -> None:
    """Answer requests until the console goes."""
    while True:
        request = read_request()
        method = str(request["method"])
        bad = make_bad_answer(mode, request["id"])
        if bad is not None:
            say(bad)
        elif method == "hello":
            answer(request, HELLO)
        elif mode == "silent":
            continue
        elif mode == "flood" and method == "watch":
            answer(request, {})
            node = {"name": "x", "driver_version": "v" * 900_000}
            pour(frame({"jsonrpc": "2.0", "method": "state", "params": {"node": node}}))
        else:
            answer(request, replies.get(method, {"name": "x"} if method == "inventory" else {}))


def flood_stderr() -> None:
    """Words for a terminal, without end, on stderr."""
    while True:
        os.write(2, b"\x1b[2J" * 9999)


def announce(length: int, then: "Callable[[], None]") -> None:
    """Begin a frame of that length."""
    say(struct.pack(">I", length))
    then()


EARLY: "dict[str, Callable[[], None]]" = {
    "garbage": lambda: pour(os.urandom(1 << 16)),
    "endless-line": lambda: pour(b"A" * 65536),
    "drip": lambda: drip(b"Welcome to this node\n"),
    "stderr": flood_stderr,
}
LATE: "dict[str, Callable[[], None]]" = {
    "garbage-frames": lambda: pour(os.urandom(1 << 16)),
    "endless-frame": lambda: announce(0x7FFFFFFF, lambda: pour(b"A" * 65536)),
    "largest-frame": lambda: announce(1 << 20, lambda: drip(b"A")),
    "empty-frames": lambda: pour(b"\0" * 65536),
    "drip-frames": lambda: drip(frame({"jsonrpc": "2.0", "method": "x"})),
}


def main() -> None:
    """Do as MODE says."""
    mode = sys.argv[1]
    replies = {}
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as file:  # noqa: PTH123 - as a program on a node
            replies = json.load(file)
    if mode in EARLY:
        EARLY[mode]()
    bootstrap()
    if mode in LATE:
        LATE[mode]()
    serve(mode, replies)


if __name__ == "__main__":
    main()
