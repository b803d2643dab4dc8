"""A real OpenSSH sshd for tests: on loopback or in a network namespace, as the current user, in a directory of its own.

    def test_it(make_sshd: MakeSshd) -> None:     # a fixture of tests/conftest.py
        sshd = make_sshd(env={"LLMGW_NVIDIA_SMI": "/x/fake"})
        environ = {"LLMGW_SSH_CONFIG": str(sshd.ssh_config)}      # reaches it as `ssh node`, key and known_hosts included

Every session gets a HOME, state and cache directory below the test's own, and a mark in its environment by which
everything it started, daemons too, is killed at the end.
"""

import asyncio
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.fleet.transport import Channel

SSHD = Path("/usr/sbin/sshd")
DEADLINE_S = 20.0
_MARK = "LLMGW_TEST_SSHD"


@dataclass
class Sshd:
    """One running sshd and all that a client needs to reach it. `alias` is its name in `ssh_config`."""

    root: Path
    address: str
    port: int
    alias: str
    user: str
    mark: str
    netns: str | None
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def client_key(self) -> Path:
        """Private key that may log in."""
        return self.root / "client_key"

    @property
    def host_key(self) -> Path:
        """Private host key."""
        return self.root / "host_key"

    @property
    def known_hosts(self) -> Path:
        """File that holds the host key, under the address with and without the port."""
        return self.root / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """ssh_config with one Host block for the alias; pass it as $LLMGW_SSH_CONFIG or `ssh -F`."""
        return self.root / "ssh_config"

    @property
    def home(self) -> Path:
        """HOME of every session."""
        return self.root / "home"

    @property
    def log(self) -> str:
        """What sshd has said since it was started."""
        return (self.root / "sshd.log").read_text("utf-8", errors="replace")

    def start(self) -> None:
        """Start the daemon and wait until it greets."""
        argv = [str(SSHD), "-D", "-e", "-f", str(self.root / "sshd_config")]
        if self.netns:
            argv = ["ip", "netns", "exec", self.netns, *argv]
        with (self.root / "sshd.log").open("wb") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._greets, f"sshd greets; it says: {self.log}")

    def stop(self) -> None:
        """End the daemon and every session of it. What sessions left behind (daemons) goes on; `start` brings it back."""
        if self.process is None:
            return
        self.drop_connections()
        self.process.kill()
        self.process.wait()
        self.process = None

    def drop_connections(self) -> None:
        """Cut every connection as a crash would; the daemon goes on listening."""
        if self.process is not None:
            _kill([pid for pid in _descendants(self.process.pid) if _comm(pid).startswith("sshd")])

    def pids(self) -> list[int]:
        """Every process that lives because of a session of this sshd, detached ones too."""
        return find_marked(f"{_MARK}={self.mark}")

    def clean_up(self) -> None:
        """End the daemon, its sessions, and whatever they left running."""
        self.stop()
        end_marked(f"{_MARK}={self.mark}")

    def _greets(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"sshd ended at once: {self.log}")
        return f"listening on {self.address} port {self.port}" in self.log


MakeSshd = Callable[..., Sshd]  # the fixture `make_sshd`


def start_sshd(
    root: Path,
    *,
    alias: str = "node",
    lines: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    address: str = "127.0.0.1",
    port: int | None = None,
    netns: str | None = None,
) -> Sshd:
    """Start an sshd in `root` (created). The caller ends it with `clean_up`; in tests the fixture `make_sshd` does.

    Args:
        lines: further sshd_config lines, placed first, so that they win: `MaxSessions 1`, `ForceCommand …`.
        env: environment of every session (sshd's SetEnv).
        netns: network namespace to run it in; `address` is one of that namespace's.
    """
    _require_sshd()
    root.mkdir(parents=True, exist_ok=True)
    (root / "home").mkdir(exist_ok=True)
    chosen = port or free_port(address if netns is None else "127.0.0.1")
    sshd = Sshd(root, address, chosen, alias, getpass.getuser(), uuid.uuid4().hex, netns)
    for key in (sshd.host_key, sshd.client_key):
        make_key(key)
    shutil.copy(sshd.client_key.with_suffix(".pub"), root / "authorized_keys")
    _write_server_config(sshd, lines, env or {})
    _write_client_files(sshd)
    sshd.start()
    return sshd


def find_marked(marker: str) -> list[int]:
    """Every process with `NAME=value` in the environment it was started with."""
    needle = marker.encode()
    return [pid for pid in _all_pids() if needle in _read(f"/proc/{pid}/environ")]


def end_marked(marker: str) -> None:
    """Kill those processes until none is left."""
    deadline = time.monotonic() + DEADLINE_S
    while (left := find_marked(marker)) and time.monotonic() < deadline:
        _kill(left)
        time.sleep(0.02)


def write_ssh_config(path: Path, *sshds: Sshd) -> Path:
    """Write one ssh_config that knows each of them by its alias."""
    path.write_text("\n".join(sshd.ssh_config.read_text("utf-8") for sshd in sshds), "utf-8")
    return path


def ssh_environ(config: Path, **more: str) -> dict[str, str]:
    """An operator's environment with that ssh_config, without an agent."""
    own = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**own, "LLMGW_SSH_CONFIG": str(config), **more}


def make_key(path: Path, passphrase: str = "") -> Path:
    """Make an ed25519 key pair at `path` and `path`.pub unless it is there."""
    if not path.exists():
        argv = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            passphrase,
            "-C",
            "test",
            "-f",
            str(path),
        ]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


def free_port(address: str = "127.0.0.1") -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def wait_until(
    is_true: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S, every_s: float = 0.02
) -> None:
    """Wait on a condition; an AssertionError that says `what` when the deadline passes."""
    deadline = time.monotonic() + deadline_s
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(every_s)


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[MakeSshd]:
    """`start_sshd` with a directory chosen and everything ended after the test. Arguments as there, without root."""
    started: list[Sshd] = []

    def make(**options: Any) -> Sshd:  # Any: the options of start_sshd, checked there
        sshd = start_sshd(tmp_path / f"sshd{len(started)}", **options)
        started.append(sshd)
        return sshd

    yield make
    for sshd in started:
        sshd.clean_up()


@dataclass(frozen=True)
class Namespaces:
    """Two network namespaces joined by a bridge in the root namespace, which has the address `bridge_address`."""

    names: tuple[str, str]
    addresses: tuple[str, str] = ("10.77.0.1", "10.77.0.2")
    bridge_address: str = "10.77.0.254"
    bridge: str = ""
    ends: tuple[str, str] = ("", "")  # the links of the two on the bridge

    def set_link(self, number: int, state: str) -> None:
        """Cut the network of one of the two off ("down"), or join it again ("up")."""
        subprocess.run(["ip", "link", "set", self.ends[number], state], check=True)


@pytest.fixture
def make_namespaces() -> Iterator[Callable[[], Namespaces]]:
    """Call it for two namespaces at 10.77.0.1 and .2, reachable from here; skips without root or `ip`."""
    undo: list[list[str]] = []

    def make() -> Namespaces:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and iproute2's ip")
        return _build_namespaces(undo)

    yield make
    for argv in reversed(undo):
        subprocess.run(argv, check=False, capture_output=True)


def _build_namespaces(undo: list[list[str]]) -> Namespaces:
    tag = uuid.uuid4().hex[:5]
    names, ends = ((f"{kind}{tag}a", f"{kind}{tag}b") for kind in ("llmgw", "lgv"))
    spaces = Namespaces(names, bridge=f"lgb{tag}", ends=ends)

    def ip(words: str) -> None:
        done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"ip {words}: {done.stderr.strip()}")

    ip(f"link add {spaces.bridge} type bridge")
    undo.append(["ip", "link", "del", spaces.bridge])
    ip(f"addr add {spaces.bridge_address}/24 dev {spaces.bridge}")
    ip(f"link set {spaces.bridge} up")
    for name, address, end in zip(spaces.names, spaces.addresses, "ab", strict=True):
        ip(f"netns add {name}")
        undo.append(["ip", "netns", "del", name])
        ip(f"link add lgv{tag}{end} type veth peer name eth0 netns {name}")
        undo.append(["ip", "link", "del", f"lgv{tag}{end}"])
        ip(f"link set lgv{tag}{end} master {spaces.bridge} up")
        ip(f"-n {name} addr add {address}/24 dev eth0")
        ip(f"-n {name} link set eth0 up")
        ip(f"-n {name} link set lo up")
    return spaces


def _require_sshd() -> None:
    for tool in (str(SSHD), "ssh-keygen"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if os.geteuid() == 0:
        # sshd's own condition when it runs as root; packages make it at boot, a container often has not booted.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def _write_server_config(sshd: Sshd, lines: Sequence[str], env: Mapping[str, str]) -> None:
    environment = {
        _MARK: sshd.mark,
        "HOME": str(sshd.home),
        "LLMGW_STATE_DIR": str(sshd.root / "state"),
        "LLMGW_CACHE_DIR": str(sshd.root / "cache"),
        **env,
    }
    pairs = " ".join(f'"{name}={value}"' for name, value in environment.items())
    config = [
        *lines,
        f"ListenAddress {sshd.address}:{sshd.port}",
        f"HostKey {sshd.host_key}",
        f"AuthorizedKeysFile {sshd.root / 'authorized_keys'}",
        f"PidFile {sshd.root / 'sshd.pid'}",
        # sshd reads the first SetEnv line alone.
        f"SetEnv {pairs}",
        "StrictModes no",
        "UsePAM no",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PrintMotd no",
        "LogLevel VERBOSE",
        "Subsystem sftp internal-sftp",
        # Tests log in wrongly on purpose, which newer versions answer with a pause.
        *(["PerSourcePenalties no"] if _openssh_version() >= (9, 8) else []),
    ]
    (sshd.root / "sshd_config").write_text("\n".join(config) + "\n", "utf-8")


def _write_client_files(sshd: Sshd) -> None:
    key = " ".join(sshd.host_key.with_suffix(".pub").read_text("utf-8").split()[:2])
    sshd.known_hosts.write_text(f"[{sshd.address}]:{sshd.port} {key}\n", "utf-8")
    block = [
        f"Host {sshd.alias}",
        f"  HostName {sshd.address}",
        f"  Port {sshd.port}",
        f"  User {sshd.user}",
        f"  IdentityFile {sshd.client_key}",
        "  IdentitiesOnly yes",
        "  IdentityAgent none",
        f"  UserKnownHostsFile {sshd.known_hosts}",
        "  GlobalKnownHostsFile /dev/null",
    ]
    sshd.ssh_config.write_text("\n".join(block) + "\n", "utf-8")


def _openssh_version() -> tuple[int, int]:
    said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    found = re.search(r"OpenSSH_(\d+)\.(\d+)", said)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        after_name = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        if after_name:
            children.setdefault(int(after_name[1]), []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _comm(pid: int) -> str:
    return _read(f"/proc/{pid}/comm").decode(errors="replace")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # it ended while we looked
        return b""


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


async def run_script(channel: Channel, script: str) -> bytes:
    """What the script printed in a remote shell, up to the line END."""
    await channel.write(f"{script}\necho END\n".encode())
    said = b""
    while b"END\n" not in said:
        chunk = await asyncio.wait_for(channel.read(4096), DEADLINE_S)
        if not chunk:
            break
        said += chunk
    return said.removesuffix(b"END\n")
