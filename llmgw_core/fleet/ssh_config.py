"""What the operator's ssh configuration says about a destination, by asking OpenSSH itself: `ssh -G`.

asyncssh reads ssh_config too, but a missing IdentityFile or a trailing comment is an error to it, and it never reads
/etc/ssh. It is the fallback where no OpenSSH client is installed.
"""

import asyncio
import getpass
import os
import re
import shlex
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmgw_core.errors import ConfigError, ConnectTimeout

CONFIG_VARIABLE = "LLMGW_SSH_CONFIG"
DEFAULT_PORT = 22
RESOLVE_TIMEOUT_S = 10.0
_IDENTITY_NAMES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")


@dataclass(frozen=True)
class Destination:
    """What a person would write on ssh's command line; None: left to the configuration."""

    host: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    jump: str | None = None


@dataclass(frozen=True)
class SshSettings:
    """How to reach a destination, with every alias, pattern and token of the configuration resolved."""

    host: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str | None = None  # path of the agent's socket; None: no agent
    host_key_alias: str | None = None
    jump: str | None = None
    proxy_command: str | None = None
    known_hosts_files: tuple[str, ...] = ()
    strict: str = "ask"  # StrictHostKeyChecking as configured; told in errors, never followed
    connect_timeout_s: float | None = None
    control_path: str | None = None  # of a connection of the operator's that others may share
    only_openssh: tuple[str, ...] = ()  # what it asks for and asyncssh cannot do


async def resolve_settings(to: Destination, environ: Mapping[str, str]) -> SshSettings:
    """Return the settings for a destination.

    Raises:
        ConfigError: the ssh configuration cannot be read; names file and line as ssh does.
        ConnectTimeout: ssh did not answer, e.g. for a `Match exec` that hangs.
    """
    config = environ.get(CONFIG_VARIABLE)
    ssh = shutil.which("ssh", path=environ.get("PATH"))
    # ssh itself says so of a file that -F names and that is not there.
    if ssh is None:
        return await asyncio.to_thread(_resolve_without_ssh, to, environ)
    text = await _ask_ssh([ssh, *_arguments(to, config)], to, environ)
    return parse_ssh_g(text, to, environ)


def parse_ssh_g(text: str, to: Destination, environ: Mapping[str, str]) -> SshSettings:
    """Return the settings out of what `ssh -G` prints: lines such as `identityfile ~/.ssh/id_ed25519`."""
    said: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        said.setdefault(key.lower(), []).append(value.strip())

    def one(key: str) -> str | None:
        value = said.get(key, ["none"])[0]
        return None if value.lower() == "none" or not value else value

    host = one("hostname") or to.host
    port = int(one("port") or DEFAULT_PORT)
    user = one("user") or getpass.getuser()
    alias = one("hostkeyalias")
    remote = {"h": host, "k": alias or to.host, "n": to.host, "p": str(port), "r": user}
    expand = _Expander(remote, environ)
    files = [
        *(one("userknownhostsfile") or "").split(),
        *(one("globalknownhostsfile") or "").split(),
    ]
    command = one("proxycommand")
    timeout = one("connecttimeout")
    identities = tuple(expand(name) for name in said.get("identityfile", []) if name != "none")
    return SshSettings(
        host=host,
        port=port,
        user=user,
        identity_files=identities,
        certificate_files=tuple(expand(name) for name in said.get("certificatefile", [])),
        identities_only=one("identitiesonly") == "yes",
        agent=_agent(said.get("identityagent", ["SSH_AUTH_SOCK"])[0], expand, environ),
        host_key_alias=alias,
        jump=one("proxyjump"),
        proxy_command=expand(command, tilde=False) if command else None,
        known_hosts_files=tuple(expand(name) for name in files if name != "none"),
        strict=one("stricthostkeychecking") or "ask",
        connect_timeout_s=float(timeout) if timeout and timeout.isdecimal() else None,
        control_path=one("controlpath"),
        only_openssh=_list_only_openssh(said, identities, environ),
    )


def _list_only_openssh(
    said: Mapping[str, list[str]], identities: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Ways to log in that the configuration asks for, and that asyncssh alone does not know."""

    def has(key: str, *none: str) -> bool:
        return said.get(key, ["none"])[0].lower() not in {"none", "", *none}

    # Debian asks for GSSAPI on every machine; where Kerberos was never set up that means nothing.
    has_kerberos = Path(environ.get("KRB5_CONFIG") or "/etc/krb5.conf").is_file()
    found = {
        "PKCS#11 (PKCS11Provider)": has("pkcs11provider"),
        "a FIDO key": any(_is_fido(Path(name)) for name in identities),
        "GSSAPI (Kerberos)": has("gssapiauthentication", "no") and has_kerberos,
        "a shared connection (ControlPath)": has("controlpath"),
    }
    return tuple(name for name, is_asked in found.items() if is_asked)


def _is_fido(path: Path) -> bool:
    """Whether a key lives in a security key: its public half says so."""
    for public in (path.with_name(f"{path.name}.pub"), path):
        try:
            return public.read_text("utf-8").startswith("sk-")
        except (OSError, ValueError):
            continue
    return False


def parse_jump(jump: str) -> tuple[Destination, ...]:
    """Return the hops of a ProxyJump value, first hop first: `user@host:port,host`, `ssh://user@host:port`.

    Raises:
        ConfigError: a hop that cannot be read.
    """
    hops = []
    for hop in jump.split(","):
        found = re.fullmatch(
            r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:@\[\]-][^:@\[\]]*)(?::(?P<port>\d+))?/?",
            hop.strip(),
        )
        if found is None:
            raise ConfigError(
                f"cannot read the jump host {hop!r}", "", "write it as user@host:port"
            )
        port = found["port"]
        hops.append(
            Destination(found["host"].strip("[]"), found["user"], int(port) if port else None)
        )
    return tuple(hops)


def _arguments(to: Destination, config: str | None) -> list[str]:
    options = {"-F": config, "-l": to.user, "-p": to.port, "-i": to.identity_file, "-J": to.jump}
    given = [word for flag, value in options.items() if value for word in (flag, str(value))]
    return ["-G", *given, "--", to.host]


async def _ask_ssh(argv: list[str], to: Destination, environ: Mapping[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ),
    )
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise ConnectTimeout(
            f"ssh -G {to.host} did not answer in {RESOLVE_TIMEOUT_S:.0f} s",
            "a Match exec or an Include of the ssh configuration hangs",
            f"run: {' '.join(argv)}",
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
        raise ConfigError(
            f"ssh cannot read its configuration for {to.host}",
            "; ".join(lines[:3]) or f"ssh -G ended with {process.returncode}",
            "correct the file and line it names",
        )
    return out.decode(errors="replace")


class _Expander:
    """Expands `~`, `${NAME}` and the %-tokens of ssh_config(5) that paths and commands may hold."""

    def __init__(self, remote: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._home = environ.get("HOME") or str(Path.home())
        local = socket.gethostname()
        self._tokens = {
            "%": "%",
            "d": self._home,
            "i": str(os.getuid()),
            "L": local.partition(".")[0],
            "l": local,
            "u": getpass.getuser(),
            **remote,
        }

    def __call__(self, text: str, *, tilde: bool = True) -> str:
        if tilde and (text == "~" or text.startswith("~/")):
            text = self._home + text[1:]
        if tilde:  # in a command the shell does this
            text = re.sub(r"\$\{(\w+)\}", lambda m: self._environ.get(m[1], m[0]), text)
        return re.sub(r"%(.)", lambda m: self._tokens.get(m[1], m[0]), text)


def _agent(value: str, expand: _Expander, environ: Mapping[str, str]) -> str | None:
    """The socket of the agent; `SSH_AUTH_SOCK`, `none`, `$NAME` and a path are what ssh_config allows."""
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK":
        return environ.get("SSH_AUTH_SOCK") or None
    if value.startswith("$") and not value.startswith("${"):
        return environ.get(value[1:]) or None
    return expand(value)


def _resolve_without_ssh(to: Destination, environ: Mapping[str, str]) -> SshSettings:
    """asyncssh's reading of the user's file: all that is to be had without an OpenSSH client."""
    import asyncssh

    home = Path(environ.get("HOME") or Path.home())
    path = Path(environ.get(CONFIG_VARIABLE) or home / ".ssh" / "config").expanduser()
    try:
        options = asyncssh.SSHClientConnectionOptions(
            host=to.host,
            port=to.port or (),
            username=to.user or (),
            config=[str(path)] if path.is_file() else None,
            client_keys=None,
            known_hosts=None,
        )
    except (ValueError, OSError) as error:
        raise ConfigError(f"cannot read {path}", str(error), "correct the file and line") from error
    read: Callable[[str], Any] = options.config.get  # Any: each keyword has a type of its own
    default_keys = [str(home / ".ssh" / name) for name in _IDENTITY_NAMES]
    expand = _Expander({}, environ)  # asyncssh has put in what it knows of the remote side
    known = read("UserKnownHostsFile") or [str(home / ".ssh" / "known_hosts")]
    given = [to.identity_file] if to.identity_file else []
    return SshSettings(
        host=options.host,
        port=options.port,
        user=options.username,
        identity_files=tuple(
            expand(str(n)) for n in [*given, *(read("IdentityFile") or default_keys)]
        ),
        certificate_files=tuple(expand(str(name)) for name in read("CertificateFile") or ()),
        identities_only=bool(read("IdentitiesOnly")),
        agent=_agent(str(read("IdentityAgent") or "SSH_AUTH_SOCK"), expand, environ),
        host_key_alias=read("HostKeyAlias"),
        jump=to.jump or read("ProxyJump"),
        proxy_command=_join(read("ProxyCommand")),
        known_hosts_files=(*(expand(str(name)) for name in known), "/etc/ssh/ssh_known_hosts"),
        connect_timeout_s=read("ConnectTimeout"),
    )


def _join(words: object) -> str | None:
    if isinstance(words, (list, tuple)):
        return shlex.join(str(word) for word in words)
    return str(words) if words else None
