"""What an operator is told when SSH does not work: one table, whichever program found it out.

llmgw's own SSH (asyncssh) and the system's `ssh` tell the same trouble in different words, or in none. Each finds the
`Trouble` in its own way; class, words and remedy come from here.
"""

from dataclasses import dataclass
from enum import Enum, auto

from llmgw_core.errors import (
    AuthRefused,
    ConnectionDropped,
    ConnectRefused,
    ConnectTimeout,
    HostKeyChanged,
    HostKeyUnknown,
    LlmgwError,
    LoginCut,
    NameUnresolved,
    Unreachable,
)
from llmgw_core.fleet.printable import printable
from llmgw_core.fleet.ssh_config import DEFAULT_PORT, SshSettings

DEAD_AFTER_S = 12  # silence of the other side, keepalives included


class Trouble(Enum):
    """Everything that can be wrong between here and a shell on a node."""

    UNRESOLVED = auto()
    REFUSED = auto()
    NO_ROUTE = auto()
    NO_ANSWER = auto()
    SILENT = auto()
    CUT = auto()
    NO_CONNECTION = auto()
    KEY_UNKNOWN = auto()
    KEY_CHANGED = auto()
    KEY_REFUSED = auto()
    NO_KEY_ACCEPTED = auto()
    NO_KEY_ASKED = auto()
    NO_ALGORITHM = auto()
    NO_FORWARDING = auto()
    NO_SESSION = auto()
    NO_SESSION_IN_TIME = auto()
    DROPPED = auto()
    STRANGE = auto()


@dataclass(frozen=True)
class Route:
    """Where a connection was to go, as messages need it."""

    node: str
    written: str  # the destination as the operator wrote it; what `ssh` would be given
    host: str
    port: int
    user: str
    timeout_s: float
    via: str | None = None  # the jump host, or the proxy command
    key_name: str = ""  # the node's name in known_hosts

    @property
    def place(self) -> str:
        """Host and port as dialled, with the way there."""
        via = f" via {self.via}" if self.via else ""
        return f"{self.host}:{self.port}{via}"


@dataclass(frozen=True)
class _Message:
    kind: type[LlmgwError]
    what: str
    why: str
    fix: str


_TRY = "try: ssh -v {written}"
_TABLE = {
    Trouble.UNRESOLVED: _Message(
        NameUnresolved,
        "the name {host} does not resolve",
        "no address for it",
        "correct the name, or give the node an address in cluster.toml or ssh_config",
    ),
    Trouble.REFUSED: _Message(
        ConnectRefused,
        "nothing listens on {place}",
        "connection refused",
        "start sshd there, or set the port in cluster.toml or ssh_config",
    ),
    Trouble.NO_ROUTE: _Message(
        ConnectRefused,
        "there is no route to {place}",
        "no route",
        "check the address and the network, or set a jump host",
    ),
    Trouble.NO_ANSWER: _Message(
        ConnectTimeout,
        "{place} did not answer in {timeout_s:.0f} s",
        "no answer at all: off, or a firewall drops it",
        "check the address and the network; ConnectTimeout in ssh_config waits longer",
    ),
    Trouble.SILENT: _Message(
        ConnectTimeout,
        "{place} takes connections but does not speak SSH in {timeout_s:.0f} s",
        "the port is open and silent",
        "see that it is sshd that listens there, and that the node is not out of memory",
    ),
    Trouble.CUT: _Message(
        LoginCut,
        "{place} cut the connection before login",
        "connection lost",
        "look at sshd's log there: MaxStartups, a ban, or not an SSH port{port_hint}; llmgw tries again",
    ),
    Trouble.NO_CONNECTION: _Message(Unreachable, "cannot connect to {place}", "", _TRY),
    Trouble.KEY_UNKNOWN: _Message(
        HostKeyUnknown,
        "the host key of {place} is unknown",
        "",
        "compare the fingerprint with the node's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), "
        "then log in once: ssh {written}",
    ),
    Trouble.KEY_CHANGED: _Message(
        HostKeyChanged,
        "the host key of {place} has CHANGED",
        "",
        "verify the new fingerprint on the node itself; only then: ssh-keygen -R '{key_name}' -f {file}",
    ),
    Trouble.KEY_REFUSED: _Message(
        HostKeyChanged,
        "the host key of {place} is refused",
        "it is marked @revoked in known_hosts",
        "ask who runs the node; this is not yours to accept",
    ),
    Trouble.NO_KEY_ACCEPTED: _Message(
        AuthRefused,
        "{place} refuses {user}",
        "",
        "put your key there (ssh-copy-id {written}), or name another: identity_file, ssh-add",
    ),
    Trouble.NO_KEY_ASKED: _Message(
        AuthRefused,
        "{place} refuses {user}",
        "",
        "llmgw logs in by key alone, and asks for nothing: allow public keys there (PubkeyAuthentication)",
    ),
    Trouble.NO_ALGORITHM: _Message(
        Unreachable,
        "{place} and llmgw have no algorithm in common",
        "",
        "allow curve25519-sha256 and ssh-ed25519 in its sshd_config",
    ),
    Trouble.NO_FORWARDING: _Message(
        Unreachable,
        "the {via} does not connect to {host}:{port}",
        "",
        "see that it may forward (AllowTcpForwarding) and that the node's sshd runs",
    ),
    Trouble.NO_SESSION: _Message(
        Unreachable,
        "{place} refuses a session",
        "no reason given",
        "its sshd may have MaxSessions 0, or the login no shell: look at its log",
    ),
    Trouble.NO_SESSION_IN_TIME: _Message(
        ConnectTimeout,
        "{place} has logged us in and opens no session in {timeout_s:.0f} s",
        "its sshd answers, and something on the way to a shell does not (PAM, a home on a dead NFS server)",
        "try: ssh {written} true",
    ),
    Trouble.DROPPED: _Message(
        ConnectionDropped,
        "the connection to {place} went",
        "it ended",
        "reconnecting; engines there are not touched",
    ),
    Trouble.STRANGE: _Message(Unreachable, "cannot speak SSH with {place}", "", _TRY),
}


def tell(
    trouble: Trouble, route: Route, why: str = "", fix: str = "", *, file: str = "known_hosts"
) -> LlmgwError:
    """Return the error to raise.

    Args:
        why: the evidence; the table's own where there is none.
        fix: a better remedy than the table's.
        file: the known_hosts file with the entry.
    """
    message = _TABLE[trouble]
    words = {
        "place": route.place,
        "host": route.host,
        "port": route.port,
        "via": route.via,
        "user": route.user,
        "written": route.written,
        "timeout_s": route.timeout_s,
        "key_name": route.key_name,
        "port_hint": "" if route.port == DEFAULT_PORT else f" (is {route.port} its port?)",
        "file": file,
    }
    return message.kind(
        message.what.format_map(words),
        printable(why or message.why),
        fix or message.fix.format_map(words),
        route.node,
    )


def tell_refused_login(route: Route, why: str, methods: set[str], instead: str = "") -> LlmgwError:
    """Return the error for a login that failed. `instead` is a further way in."""
    asks = bool(methods) and "publickey" not in methods
    plain = tell(Trouble.NO_KEY_ASKED if asks else Trouble.NO_KEY_ACCEPTED, route, why)
    if instead:
        plain.fix = f"{plain.fix}; or {instead}"
    return plain


def explain_change(shown: str, where: str) -> str:
    """Say what a changed host key may mean."""
    return f"{shown}; {where} has another one: the node was reinstalled, or somebody is in between"


def note_strictness(settings: SshSettings) -> str:
    """Say that a lenient StrictHostKeyChecking of the configuration is not followed; "" where it is strict."""
    if settings.strict in {"no", "off", "false", "accept-new"}:
        return f"; StrictHostKeyChecking {settings.strict} is not followed here"
    return ""


def entry_name(host: str, port: int) -> str:
    """Return the name of a node in a known_hosts file: `host`, or `[host]:2222` off the usual port."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"
