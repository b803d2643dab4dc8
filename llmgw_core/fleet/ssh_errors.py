"""What asyncssh's errors mean: the class of the error and what was seen on the way (`Attempt`) decide.

Its texts are often empty, or the same for opposite causes. `ssh_messages` has the words.
"""

import errno
import socket
from dataclasses import dataclass, field

import asyncssh

from llmgw_core.errors import LlmgwError
from llmgw_core.fleet.known_hosts import KeyVerdict, KnownHosts
from llmgw_core.fleet.ssh_config import SshSettings
from llmgw_core.fleet.ssh_keys import KeyRing
from llmgw_core.fleet.ssh_messages import (
    DEAD_AFTER_S,
    Route,
    Trouble,
    entry_name,
    explain_change,
    note_strictness,
    tell,
    tell_refused_login,
)

NO_ROUTE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
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
    def route(self) -> Route:
        """Where it was to go, for messages."""
        to = self.settings
        name = entry_name(to.host_key_alias or to.host, to.port)
        return Route(
            self.node, self.written, to.host, to.port, to.user, self.timeout_s, self.via, name
        )

    def is_known(self) -> bool:
        """True where known_hosts has a key or an authority for the node."""
        host = self.settings.host_key_alias or self.settings.host
        return bool(self.known_hosts.files_naming(host, self.peer, self.settings.port))


def explain_connect_error(error: Exception, attempt: Attempt) -> LlmgwError:
    """Return the error to raise for what asyncssh or the socket raised during a connect."""
    route, text = attempt.route, str(error)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return _explain_host_key(error, attempt)
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in text:
        return _explain_login(attempt)
    if isinstance(error, asyncssh.KeyExchangeFailed):
        why = str(getattr(error, "reason", error))
        if len(why) > _SHOWN_CHARACTERS:
            why = f"{why[:_SHOWN_CHARACTERS]}…"
        return tell(Trouble.NO_ALGORITHM, route, why)
    if isinstance(error, asyncssh.ChannelOpenError):
        return tell(Trouble.NO_FORWARDING, route, text)
    if isinstance(error, TimeoutError) or "Login timeout" in text:
        trouble = Trouble.SILENT if attempt.is_connected else Trouble.NO_ANSWER
        return tell(trouble, route, attempt.proxy_said)
    if isinstance(error, OSError) and not attempt.is_connected:
        return _explain_socket(error, route)
    if isinstance(error, (ConnectionError, asyncssh.ConnectionLost)):
        command = attempt.settings.proxy_command
        fix = f"run the ProxyCommand by hand: {command}" if attempt.proxy_said else ""
        return tell(Trouble.CUT, route, attempt.proxy_said or text, fix)
    return tell(Trouble.STRANGE, route, f"{type(error).__name__}: {error}")


def explain_session_error(error: Exception, route: Route) -> LlmgwError:
    """Return the error to raise for what asyncssh raised on an open connection."""
    if isinstance(error, asyncssh.ChannelOpenError) and "closed" not in str(error):
        return tell(Trouble.NO_SESSION, route, str(error))
    why = str(error) or type(error).__name__
    if "keepalive" in why:
        why = f"nothing came back for {DEAD_AFTER_S} s"
    return tell(Trouble.DROPPED, route, why)


def _explain_host_key(error: Exception, attempt: Attempt) -> LlmgwError:
    settings, key, route = attempt.settings, attempt.offered, attempt.route
    host = settings.host_key_alias or settings.host
    verdict = key and attempt.known_hosts.judge(host, attempt.peer, settings.port, key)
    if key is None:  # a certificate that does not hold
        return tell(Trouble.KEY_REFUSED, route, str(getattr(error, "reason", error)))
    if verdict is KeyVerdict.REVOKED:
        return tell(Trouble.KEY_REFUSED, route)
    shown = f"it offers {key.get_algorithm()} {key.get_fingerprint()}"
    if verdict is KeyVerdict.CHANGED:
        named = attempt.known_hosts.files_naming(host, attempt.peer, settings.port)
        where = named[0] if named else "known_hosts"
        return tell(Trouble.KEY_CHANGED, route, explain_change(shown, where), file=where)
    why = f"{shown}; no entry for {route.key_name}"
    if verdict is KeyVerdict.AUTHORITY_ONLY:
        why = f"{shown}, which no certificate authority you trust for {route.key_name} has signed"
    files = [path for path, _ in attempt.known_hosts.by_file]
    why += f" in {', '.join(files)}" if files else "; there is no known_hosts file"
    if attempt.known_hosts.bad_lines:
        why += f"; lines that cannot be read: {', '.join(attempt.known_hosts.bad_lines[:3])}"
    return tell(Trouble.KEY_UNKNOWN, route, why + note_strictness(settings))


def _explain_login(attempt: Attempt) -> LlmgwError:
    offers = f"it offers {', '.join(sorted(attempt.methods))}" if attempt.methods else ""
    why = "; ".join(part for part in (attempt.keys.describe(), offers) if part)
    return tell_refused_login(
        attempt.route, why, attempt.methods, advise_openssh(attempt.settings, attempt.methods)
    )


def advise_openssh(settings: SshSettings, methods: set[str]) -> str:
    """Say why the system's `ssh` may get in where asyncssh does not; "" where nothing speaks for it."""
    way = 'set transport = "openssh" for it in cluster.toml'
    if settings.only_openssh:
        return f"{way}: its ssh configuration uses {', '.join(settings.only_openssh)}"
    if methods & {"keyboard-interactive", "password"} and "publickey" not in methods:
        return f"{way}, and log in once by hand with ControlMaster and ControlPersist"
    return ""


def _explain_socket(error: OSError, route: Route) -> LlmgwError:
    why = error.strerror or str(error)
    if isinstance(error, socket.gaierror):
        return tell(Trouble.UNRESOLVED, route, why)
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return tell(Trouble.REFUSED, route)
    if error.errno in NO_ROUTE:
        return tell(Trouble.NO_ROUTE, route, why)
    return tell(Trouble.NO_CONNECTION, route, why or type(error).__name__)
