"""Getting from a shell on a node to the agent's proxy (docs/agent-protocol.md, "Bootstrap")."""

import asyncio
import hashlib
import json
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmgw_core.errors import (
    BootstrapFailed,
    ConnectionDropped,
    LlmgwError,
    NodeError,
    NoPython,
)
from llmgw_core.fleet.bundle import Bundle
from llmgw_core.fleet.printable import printable, read_error
from llmgw_core.fleet.transport import Channel, PrefixedChannel

MARKER = "LLMGW1"
PYTHONS = (
    *(f"python3.{minor}" for minor in range(13, 8, -1)),
    "python3",
    "/usr/libexec/platform-python",
)
FIND_TIMEOUT_S = 30.0  # a dozen shims of a version manager at 150 ms, on a busy node
UPLOAD_TIMEOUT_S = 60.0
CANDIDATE_TIMEOUT_S = 6
MAX_NOISE_BYTES = 256 << 10
_SHOWN_BYTES = 600
_READ_BYTES = 16 << 10
_FIX_PYTHON = "install one, or name it: `python` (or the engine's `venv`) in cluster.toml"
_FIX_SHELL = "see what `ssh NODE 'sh -s' </dev/null` prints"

# Each candidate is run: a version manager's shim is there and fails, one on a dead mount hangs (where `timeout` is
# missing, that costs the whole search). Its stdin is not ours. The braces make the shell read all of this before it
# runs any: what comes after `exec` on stdin belongs to the program, and must not be the rest of this.
_SCRIPT = """\
{{
found=
if timeout -k 1 {limit} true 2>/dev/null
then bounded() {{ timeout -k 1 {limit} "$@"; }}
else bounded() {{ "$@"; }}
fi
for p in {candidates}; do
c=$(command -v "$p" 2>/dev/null) || continue
v=$(bounded "$c" -I -S -c 'import sys; sys.stdout.write("%d.%d.%d" % sys.version_info[:3])' </dev/null 2>/dev/null) || v=
case $v in
3.9.*|3.[1-9][0-9].*) exec "$c" -I -S -c {program} {nonce} {digest} ;;
[0-9]*) found="$found $c is $v;" ;;
*) found="$found $c does not run;" ;;
esac
done
printf '{marker} %s no-python%s\\n' {nonce} "$found"
exit 1
}}
"""


async def bootstrap(
    channel: Channel,
    bundle: Bundle,
    python: str | None,
    venv_pythons: Sequence[str],
    node: str,
) -> Channel:
    """Put the agent on the node if need be and start its proxy. Returns the channel, which now carries frames.

    Args:
        channel: runs `sh -s`.
        python: the configured Python, tried first.
        venv_pythons: Pythons of engines' environments, tried last.

    Raises:
        BootstrapFailed: or NoPython, HomeUnwritable, DiskFull below it; quotes what the node printed.
        ConnectionDropped: the connection broke.
    """
    nonce = secrets.token_hex(8)
    talk = _Talk(channel, nonce, node)
    script = make_script(bundle.hash, nonce, python, venv_pythons)
    try:
        await talk.send(script.encode(), "the start of a shell", FIND_TIMEOUT_S)
        facts = await talk.receive("a Python", FIND_TIMEOUT_S)
        if facts.get("have") is True:
            order = b"run\n"
        else:
            order = await asyncio.to_thread(_make_upload, bundle, facts.get("bz2") is True)
        await talk.send(order, "the agent's upload", UPLOAD_TIMEOUT_S)
        await talk.receive("the agent in place", UPLOAD_TIMEOUT_S)
    except OSError as error:
        raise ConnectionDropped(
            "the connection broke while the agent was started", str(error), "", node
        ) from error
    return PrefixedChannel(channel, talk.rest)


def _make_upload(bundle: Bundle, has_bz2: bool) -> bytes:
    data = bundle.data if has_bz2 else bundle.plain_data
    return f"upload {len(data)} {hashlib.sha256(data).hexdigest()}\n".encode() + data


def make_script(
    digest: str, nonce: str, python: str | None, venv_pythons: Sequence[str] = ()
) -> str:
    """Return what `sh -s` is given: POSIX shell, ending in `exec` of a Python."""
    names = [*([python] if python else []), *PYTHONS, *venv_pythons]
    return _SCRIPT.format(
        candidates=" ".join(_quote(name) for name in dict.fromkeys(names)),
        program=shlex.quote(read_program()),
        nonce=nonce,
        digest=digest,
        marker=MARKER,
        limit=CANDIDATE_TIMEOUT_S,
    )


def read_program() -> str:
    """Return the text of `bootstrap_program`."""
    return Path(__file__).with_name("bootstrap_program.py").read_text("utf-8")


class _Talk:
    """The exchange of lines with the node; collects what is none of them."""

    def __init__(self, channel: Channel, nonce: str, node: str) -> None:
        self._channel = channel
        self._mark = f"{MARKER} {nonce} ".encode()
        self._node = node
        self._noise = bytearray()
        self.rest = b""  # read and not yet looked at

    async def send(self, data: bytes, step: str, timeout_s: float) -> None:
        """Send it. A side that is gone shows when its last words are read, and these say why."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._channel.write(data)
        except TimeoutError:
            raise self._stalled(step, timeout_s) from None
        except (OSError, ConnectionDropped):
            return

    async def receive(self, step: str, timeout_s: float) -> dict[str, Any]:
        """Return the facts of the next marked line."""
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._next_marked(step)
        except TimeoutError:
            raise self._stalled(step, timeout_s) from None
        if line.startswith(b"no-python"):
            raise self._no_python(line[len(b"no-python") :])
        try:
            facts = json.loads(line)
        except ValueError:
            facts = None
        if not isinstance(facts, dict):
            raise self._failed(f"the node announced {step} in words that are none")
        if facts.get("ok") is not True:
            raise self._told(facts)
        return facts

    async def _next_marked(self, step: str) -> bytes:
        while True:
            line, found, rest = self.rest.partition(b"\n")
            if found:
                self.rest = rest
                _, marked, facts = line.partition(self._mark)
                if marked:
                    return facts
                self._keep(line + b"\n")
                continue
            if len(self.rest) + len(self._noise) > MAX_NOISE_BYTES:
                raise self._failed("the node's login shell does not stop printing")
            data = await self._channel.read(_READ_BYTES)
            if not data:
                self._keep(self.rest)
                raise self._failed(f"the node's shell ended before {step} was found")
            self.rest += data

    def _keep(self, noise: bytes) -> None:
        self._noise += noise
        if len(self._noise) > MAX_NOISE_BYTES:
            raise self._failed("the node's login shell does not stop printing")

    def _evidence(self) -> str:
        parts = []
        for name, data in (("stdout", bytes(self._noise)), ("stderr", self._channel.stderr_tail())):
            text = data[-_SHOWN_BYTES:].decode("utf-8", "replace").strip()
            shown = printable(text)
            if shown:
                parts.append(f"{name}: {shown}")
        return "; ".join(parts) or "it printed nothing"

    def _failed(self, what: str) -> BootstrapFailed:
        return BootstrapFailed(what, self._evidence(), _FIX_SHELL, self._node)

    def _stalled(self, step: str, timeout_s: float) -> BootstrapFailed:
        return self._failed(f"the node did not get to {step} within {timeout_s:g} s")

    def _no_python(self, found: bytes) -> NoPython:
        listed = printable(found.decode("utf-8", "replace").strip(" ;"), _SHOWN_BYTES)
        return NoPython(
            "no Python 3.9 or newer was found", listed or "none at all", _FIX_PYTHON, self._node
        )

    def _told(self, facts: dict[str, Any]) -> LlmgwError:
        error = read_error(facts, self._node)
        return error if isinstance(error, NodeError) else self._failed(error.message)


def _quote(name: str) -> str:
    """Quote for the shell; a leading `~/` still means the home."""
    return f'"$HOME"/{shlex.quote(name[2:])}' if name.startswith("~/") else shlex.quote(name)
