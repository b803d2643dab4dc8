"""What the system's `ssh` wrote, read as a `Trouble`. Its texts are OpenSSH's own, at LogLevel DEBUG1, English always.

ssh: Could not resolve hostname nowhere.invalid: Name or service not known
kex_exchange_identification: read: Connection reset by peer
ops@10.0.0.7: Permission denied (publickey,password).
"""

import re
from collections.abc import Sequence

from llmgw_core.errors import ConfigError, LlmgwError
from llmgw_core.fleet.printable import printable
from llmgw_core.fleet.ssh_config import SshSettings
from llmgw_core.fleet.ssh_messages import (
    DEAD_AFTER_S,
    Route,
    Trouble,
    explain_change,
    note_strictness,
    tell,
    tell_refused_login,
)

AUTHENTICATED = re.compile(r"^Authenticated to |master session id: ", re.MULTILINE)
ENTERED = re.compile(r"Entering interactive session|master session id: ")
_DENIED = re.compile(r"Permission denied \(([^)]*)\)|Too many authentication failures")
_NOISE = re.compile(r"^(?:debug\d: |OpenSSH_|\s*$)")
_SHOWN_LINES = 3
_SHOWN_CHARACTERS = 320
# The first that is found counts: what comes later is most often what it led to.
_PATTERNS = (
    (Trouble.UNRESOLVED, r"Could not resolve hostname \S*: (.*)"),
    (
        Trouble.KEY_REFUSED,
        r"REVOKED HOST KEY DETECTED|is marked as revoked|(Certificate invalid: .*)",
    ),
    (Trouble.KEY_CHANGED, r"REMOTE HOST IDENTIFICATION HAS CHANGED"),
    (Trouble.KEY_UNKNOWN, r"Host key verification failed|No \S+ host key is known"),
    (Trouble.NO_ALGORITHM, r"Unable to negotiate with .*?: (.*)"),
    (Trouble.SILENT, r"timed out during banner exchange"),
    (Trouble.NO_ANSWER, r"(?:connect to host|connect to address) .*(?:timed out)"),
    (Trouble.NO_ROUTE, r"connect to host .*: (No route to host|Network is unreachable|.* is down)"),
    (Trouble.REFUSED, r"connect to host .*: Connection refused"),
    (Trouble.NO_CONNECTION, r"ssh: connect to host .*: (.*)"),
)
_AFTER_LOGIN = (
    (Trouble.NO_SESSION, r"^channel \d+: open failed: (.*)"),
    (
        Trouble.NO_SESSION,
        r"(Session open refused by peer|shell request failed.*|exec request failed.*)",
    ),
)
# What the program on the node ended with, of which ssh tells where the node did.
_ENDED = re.compile(r"^debug1: Exit status \d+|rtype exit-signal", re.MULTILINE)


def explain_openssh(
    log: str, said: str, route: Route, settings: SshSettings, instead: str = ""
) -> LlmgwError:
    """Return the error for an `ssh` that ended with 255 by itself.

    Args:
        log: what it wrote by -E.
        said: its stderr: a ProxyCommand's words, or those of the shell there.
        instead: a further way to log in.
    """
    log = log.replace("\r", "")
    if AUTHENTICATED.search(log):
        return _explain_open(log, route)
    for trouble, pattern in _PATTERNS:
        if found := re.search(pattern, log):
            evidence = next((group for group in found.groups() if group), "")
            return _explain_found(trouble, evidence, log, route, settings)
    if denied := _DENIED.search(log):
        methods = set((denied[1] or "").split(",")) - {""}
        return tell_refused_login(route, _describe_login(log, methods), methods, instead)
    if "Bad configuration option" in log or "terminating, " in log or "bad permissions" in log:
        return ConfigError(
            f"ssh does not take its configuration for {route.written}",
            _quote(log),
            "correct the file and line it names",
            route.node,
        )
    words = _quote(said)
    if "Connection closed by" in log or "Connection reset" in log or "kex_exchange" in log or words:
        fix = (
            f"run the ProxyCommand by hand: {settings.proxy_command}"
            if words and settings.proxy_command
            else ""
        )
        return tell(Trouble.CUT, route, words or _quote(log), fix)
    return tell(Trouble.STRANGE, route, _quote(log) or words)


def _explain_open(log: str, route: Route) -> LlmgwError:
    for trouble, pattern in _AFTER_LOGIN:
        if found := re.search(pattern, log, re.MULTILINE):
            return tell(trouble, route, found[1])
    if re.search(r"^Timeout, server .* not responding", log, re.MULTILINE):
        return tell(Trouble.DROPPED, route, f"nothing came back for {DEAD_AFTER_S} s")
    return tell(Trouble.DROPPED, route, _quote(log))


def has_lost_connection(log: str) -> bool:
    """Whether `ssh` tells of a lost connection, or of none, rather than of a shell that ended with 255."""
    return not (AUTHENTICATED.search(log) and _ENDED.search(log))


def _explain_found(
    trouble: Trouble, evidence: str, log: str, route: Route, settings: SshSettings
) -> LlmgwError:
    key = re.search(r"Server host key: (\S+ \S+)", log)
    shown = f"it offers {key[1]}" if key else "it offers a key"
    if trouble is Trouble.KEY_CHANGED:
        offending = re.search(r"Offending .*? in (\S+?):(\d+)", log)
        where = offending[1] if offending else "known_hosts"
        return tell(trouble, route, explain_change(shown, where), file=where)
    if trouble is Trouble.KEY_UNKNOWN:
        return tell(
            trouble, route, f"{shown}; no entry for {route.key_name}{note_strictness(settings)}"
        )
    return tell(trouble, route, evidence[:_SHOWN_CHARACTERS])


def _describe_login(log: str, methods: set[str]) -> str:
    tried = dict.fromkeys(re.findall(r"Offering public key: (\S+)", log))
    skipped = re.findall(r'^(?:Load key "[^"]+": .*|sign_and_send_pubkey: .*)$', log, re.MULTILINE)
    parts = [
        f"tried {', '.join(tried)}" if tried else "there was no key to try",
        *dict.fromkeys(skipped),
        *([f"it offers {', '.join(sorted(methods))}"] if methods else []),
    ]
    return "; ".join(parts)


def _quote(text: str) -> str:
    """The last lines that are no debugging, fit for one line of a terminal."""
    lines: Sequence[str] = [line for line in text.splitlines() if not _NOISE.match(line)]
    shown = " / ".join(line.strip() for line in lines[-_SHOWN_LINES:])
    return printable(shown, _SHOWN_CHARACTERS)
