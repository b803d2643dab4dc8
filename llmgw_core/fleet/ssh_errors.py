"""What went wrong while connecting, in an operator's words: what, the evidence, what to do.

asyncssh's texts are often empty or the same for opposite causes, so the class of the error and what was seen on the way
(`Attempt`) decide.
"""

import errno
import socket
from dataclasses import dataclass, field

import asyncssh

from llmgw_core.errors import (
    AuthRefused,
    ConnectionDropped,
    ConnectRefused,
    ConnectTimeout,
    HostKeyChanged,
    HostKeyUnknown,
    LlmgwError,
    NameUnresolved,
    Unreachable,
)
from llmgw_core.fleet.known_hosts import KeyVerdict, KnownHosts, entry_name
from llmgw_core.fleet.ssh_config import DEFAULT_PORT, SshSettings
from llmgw_core.fleet.ssh_keys import KeyRing

_NO_ROUTE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
_SHOWN_CHARACTERS = 320  # of two lists of algorithms


@dataclass
class Attempt:
    """One try to connect: what was asked for, and what was seen so far."""

    node: str
    written: str  # the destination as the operator wrote it; what `ssh` would be given
    settings: SshSettings
    known_hosts: KnownHosts
    keys: KeyRing
    timeout_s: float
    via: str | None = None  # the jump host, or the proxy command
    is_connected: bool = False  # the port (or the proxy) took the connection
    has_greeted: bool = False  # with an SSH version, before the connection went
    peer: str = ""  # address, "" behind a proxy
    offered: asyncssh.SSHKey | None = None  # host key that was not accepted
    methods: set[str] = field(default_factory=set)  # ways to log in that the node offers
    proxy_said: str = ""

    @property
    def place(self) -> str:
        """Host and port as dialled, with the way there."""
        via = f" via {self.via}" if self.via else ""
        return f"{self.settings.host}:{self.settings.port}{via}"

    def is_known(self) -> bool:
        """True where known_hosts has a key or an authority for the node."""
        host = self.settings.host_key_alias or self.settings.host
        return bool(self.known_hosts.files_naming(host, self.peer, self.settings.port))


def explain_connect_error(error: Exception, attempt: Attempt) -> LlmgwError:
    """Return the error to raise for what asyncssh or the socket raised during a connect."""
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return _explain_host_key(error, attempt)
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in str(error):
        return _explain_login(attempt)
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return _explain_key_exchange(error, attempt)
    if isinstance(error, asyncssh.ChannelOpenError):
        return Unreachable(
            f"the jump host {attempt.via} does not connect to {attempt.settings.host}:{attempt.settings.port}",
            str(error),
            "see that it may forward (AllowTcpForwarding) and that the node's sshd runs",
            attempt.node,
        )
    if isinstance(error, TimeoutError) or "Login timeout" in str(error):
        return _explain_timeout(attempt)
    if isinstance(error, OSError) and not attempt.is_connected:
        return _explain_socket(error, attempt)
    if isinstance(error, (ConnectionError, asyncssh.ConnectionLost)):
        return _explain_cut(error, attempt)
    return Unreachable(
        f"cannot speak SSH with {attempt.place}",
        f"{type(error).__name__}: {error}",
        f"try: ssh -v {attempt.written}",
        attempt.node,
    )


def explain_session_error(error: Exception, node: str, place: str) -> LlmgwError:
    """Return the error to raise for what asyncssh raised on an open connection."""
    if isinstance(error, asyncssh.ChannelOpenError) and "closed" not in str(error):
        return Unreachable(
            f"{place} refuses a session",
            str(error) or "no reason given",
            "its sshd may have MaxSessions 0, or the login no shell: look at its log",
            node,
        )
    why = str(error) or type(error).__name__
    if "keepalive" in why:
        why = "nothing came back for 20 s"
    return ConnectionDropped(
        f"the connection to {place} went", why, "reconnecting; engines there are not touched", node
    )


def _explain_host_key(error: Exception, attempt: Attempt) -> LlmgwError:
    settings, key = attempt.settings, attempt.offered
    name = entry_name(settings.host_key_alias or settings.host, settings.port)
    host = settings.host_key_alias or settings.host
    verdict = key and attempt.known_hosts.judge(host, attempt.peer, settings.port, key)
    if key is None or verdict is KeyVerdict.REVOKED:  # without a key: a certificate does not hold
        return HostKeyChanged(
            f"the host key of {attempt.place} is refused",
            "it is marked @revoked in known_hosts" if key else str(getattr(error, "reason", error)),
            "ask who runs the node; this is not yours to accept",
            attempt.node,
        )
    shown = f"it offers {key.get_algorithm()} {key.get_fingerprint()}"
    if verdict is KeyVerdict.CHANGED:
        return _changed(shown, name, host, attempt)
    why = f"{shown}; no entry for {name}"
    if verdict is KeyVerdict.AUTHORITY_ONLY:
        why = f"{shown}, which no certificate authority you trust for {name} has signed"
    files = [path for path, _ in attempt.known_hosts.by_file]
    why += f" in {', '.join(files)}" if files else "; there is no known_hosts file"
    if attempt.known_hosts.bad_lines:
        why += f"; lines that cannot be read: {', '.join(attempt.known_hosts.bad_lines[:3])}"
    if settings.strict in {"no", "off", "false", "accept-new"}:
        why += f"; StrictHostKeyChecking {settings.strict} is not followed here"
    return HostKeyUnknown(
        f"the host key of {attempt.place} is unknown",
        why,
        f"compare the fingerprint with the node's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), "
        f"then log in once: ssh {attempt.written}",
        attempt.node,
    )


def _changed(shown: str, name: str, host: str, attempt: Attempt) -> LlmgwError:
    files = attempt.known_hosts.files_naming(host, attempt.peer, attempt.settings.port)
    where = files[0] if files else "known_hosts"
    return HostKeyChanged(
        f"the host key of {attempt.place} has CHANGED",
        f"{shown}; {where} has another one: the node was reinstalled, or somebody is in between",
        f"verify the new fingerprint on the node itself; only then: ssh-keygen -R '{name}' -f {where}",
        attempt.node,
    )


def _explain_login(attempt: Attempt) -> LlmgwError:
    settings = attempt.settings
    offers = f"it offers {', '.join(sorted(attempt.methods))}" if attempt.methods else ""
    why = "; ".join(part for part in (attempt.keys.describe(), offers) if part)
    if attempt.methods and "publickey" not in attempt.methods:
        fix = "llmgw logs in by key alone: allow public keys there (PubkeyAuthentication)"
    else:
        fix = f"put your key there (ssh-copy-id {attempt.written}), or name another: identity_file, ssh-add"
    return AuthRefused(f"{attempt.place} refuses {settings.user}", why, fix, attempt.node)


def _explain_key_exchange(error: Exception, attempt: Attempt) -> LlmgwError:
    text = str(getattr(error, "reason", error))
    return Unreachable(
        f"{attempt.place} and llmgw have no algorithm in common",
        text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…",
        "allow curve25519-sha256 and ssh-ed25519 in its sshd_config",
        attempt.node,
    )


def _explain_timeout(attempt: Attempt) -> LlmgwError:
    if attempt.is_connected:
        return ConnectTimeout(
            f"{attempt.place} takes connections but does not speak SSH in {attempt.timeout_s:.0f} s",
            attempt.proxy_said or "the port is open and silent",
            "see that it is sshd that listens there, and that the node is not out of memory",
            attempt.node,
        )
    return ConnectTimeout(
        f"{attempt.place} did not answer in {attempt.timeout_s:.0f} s",
        "no answer at all: off, or a firewall drops it",
        "check the address and the network; ConnectTimeout in ssh_config waits longer",
        attempt.node,
    )


def _explain_socket(error: OSError, attempt: Attempt) -> LlmgwError:
    settings = attempt.settings
    if isinstance(error, socket.gaierror):
        return NameUnresolved(
            f"the name {settings.host} does not resolve",
            error.strerror or str(error),
            "correct the name, or give the node an address in cluster.toml or ssh_config",
            attempt.node,
        )
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return ConnectRefused(
            f"nothing listens on {attempt.place}",
            "connection refused",
            "start sshd there, or set the port in cluster.toml or ssh_config",
            attempt.node,
        )
    if error.errno in _NO_ROUTE:
        return ConnectRefused(
            f"there is no route to {attempt.place}",
            error.strerror or str(error),
            "check the address and the network, or set a jump host",
            attempt.node,
        )
    return Unreachable(
        f"cannot connect to {attempt.place}",
        error.strerror or str(error) or type(error).__name__,
        f"try: ssh -v {attempt.written}",
        attempt.node,
    )


def _explain_cut(error: Exception, attempt: Attempt) -> LlmgwError:
    why = attempt.proxy_said or str(error) or "connection lost"
    hint = (
        "" if attempt.settings.port == DEFAULT_PORT else f" (is {attempt.settings.port} its port?)"
    )
    fix = (
        f"look at sshd's log there: MaxStartups, a ban, or not an SSH port{hint}; llmgw tries again"
    )
    if attempt.proxy_said:
        fix = f"run the ProxyCommand by hand: {attempt.settings.proxy_command}"
    return Unreachable(f"{attempt.place} cut the connection before login", why, fix, attempt.node)
