"""One process of the system's `ssh`: how it is started so that it never asks, and what it says of itself.

Its own words come by -E through a FIFO, apart from stderr, which belongs to the shell on the node or to a ProxyCommand.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmgw_core.errors import ConfigError
from llmgw_core.fleet.local import LocalChannel
from llmgw_core.fleet.openssh_errors import ENTERED
from llmgw_core.fleet.ssh_config import CONFIG_VARIABLE, Destination

CONNECT_TIMEOUT_S = 10.0
KEEPALIVE_S = 4
KEEPALIVE_COUNT = 2  # asked so often after one interval of silence: gone after DEAD_AFTER_S
EXIT_TIMEOUT_S = 2.0
_HEAD_BYTES = 32 << 10  # a login with a dozen keys is 8 KiB
_TAIL_BYTES = 8 << 10
# None of these may come of the configuration: that it never asks, never takes a host key by itself, writes nothing, and
# notices a dead link.
_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "UpdateHostKeys": "no",
    "LogLevel": "DEBUG1",
    "ServerAliveInterval": str(KEEPALIVE_S),
    "ServerAliveCountMax": str(KEEPALIVE_COUNT),
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "EscapeChar": "none",
    "VisualHostKey": "no",
}


def ssh_argv(
    to: Destination, environ: Mapping[str, str], options: Mapping[str, str], *words: str
) -> list[str]:
    """Return the command line that reaches `to`, with `words` before the host.

    Raises:
        ConfigError: there is no `ssh`.
    """
    ssh = shutil.which("ssh", path=environ.get("PATH"))
    if ssh is None:
        raise ConfigError(
            'transport = "openssh" needs the program ssh',
            "there is none in PATH",
            'install the OpenSSH client, or leave transport = "ssh"',
        )
    config = environ.get(CONFIG_VARIABLE)
    given = {"-F": config, "-l": to.user, "-p": to.port, "-i": to.identity_file}
    flags = [word for flag, value in given.items() if value for word in (flag, str(value))]
    settings = [f"-o{name}={value}" for name, value in {**_OPTIONS, **options}.items()]
    return [ssh, "-T", *flags, *settings, *words, "--", to.host]


class SshProcess:
    """A running `ssh`, and the channel to what it runs on the node."""

    def __init__(self, process: asyncio.subprocess.Process, log: "_Log") -> None:
        self.channel = LocalChannel(process)
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, argv: Sequence[str], environ: Mapping[str, str]) -> "SshProcess":
        """Run it. `argv` as `ssh_argv` returns it; where its log goes is put in.

        Raises:
            OSError: no process can be started.
        """
        log = _Log()
        own = {**environ, "SSH_ASKPASS_REQUIRE": "never"}
        own.pop("SSH_ASKPASS", None)
        try:
            process = await asyncio.create_subprocess_exec(
                argv[0],
                "-E",
                str(log.path),
                *argv[1:],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=own,
                # Without a terminal it cannot ask, nor can a ProxyCommand; nor does Ctrl-C meet it.
                start_new_session=True,
            )
        except BaseException:
            log.close()
            raise
        return cls(process, log)

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.returncode

    def read_log(self) -> str:
        """Return what it has said of itself: the beginning and the end."""
        return self._log.read()

    async def wait_until_open(self, timeout_s: float) -> bool:
        """Wait until it is logged in or has ended. Returns False where neither came in time."""
        entered = asyncio.create_task(self._log.entered.wait())
        ended = asyncio.create_task(self._process.wait())
        try:
            done, _ = await asyncio.wait(
                (entered, ended), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            entered.cancel()
            ended.cancel()
        return bool(done)

    async def wait_for_exit(self) -> int | None:
        """Return how it ended, waiting a moment for that; None: it still runs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_TIMEOUT_S):
                await self._process.wait()
        return self._process.returncode

    async def close(self) -> None:
        """End it within some seconds. May be called twice."""
        try:
            await self.channel.close()
        finally:
            self._log.close()

    def end(self) -> None:
        """Ask it to end: one that only forwards has no input to close."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()


class _Log:
    """A FIFO that `ssh` writes to. Read at once, so that it never waits, and kept bounded."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="llmgw-ssh-")
        self.path = Path(self._folder, "log")
        self.entered = asyncio.Event()
        self._head = bytearray()
        self._tail = bytearray()
        try:
            os.mkfifo(self.path, 0o600)
            # Also for writing: so there is no end of file before ssh has opened it.
            self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._take)

    def read(self) -> str:
        """Return the beginning and the end of it."""
        self._take()
        return (self._head + self._tail).decode("utf-8", "replace")

    def close(self) -> None:
        """Remove it; what was read stays."""
        if self._fd >= 0:
            self._take()
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self) -> None:
        while self._fd >= 0:
            try:
                data = os.read(self._fd, 64 << 10)
            except BlockingIOError:
                break
            room = _HEAD_BYTES - len(self._head)
            self._head += data[:room]
            self._tail += data[room:]
            del self._tail[:-_TAIL_BYTES]
        if not self.entered.is_set() and ENTERED.search(self._head.decode("utf-8", "replace")):
            self.entered.set()
