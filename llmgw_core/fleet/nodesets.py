"""Node sets as an operator types them: `gpu[01-16],head`, `root@10.0.0.1:2222`, `gpu[1-8]!gpu3`, `@group`.

The syntax is ClusterShell's, which is imported only when a set is really read. In front of it stands what ssh has and
ClusterShell has not: `user@` and `:port` around each part.
"""

import re
from dataclasses import dataclass

from llmgw_core.domain.units import natural_key
from llmgw_core.errors import UsageError

MAX_NODES = 4096
MAX_PORT = 65535
_EXAMPLE = "write it as gpu[01-16],head or root@10.0.0.1:2222"
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$-]*")


@dataclass(frozen=True)
class Endpoint:
    """Where one node of a set is reached; None: whatever ssh_config or the cluster file says."""

    host: str
    user: str | None = None
    port: int | None = None


def parse_nodeset(text: str) -> tuple[str, ...]:
    """Return the names of a ClusterShell node set, each once, in natural order.

    Raises:
        UsageError: quotes the text and, where it is known, the position of what cannot be read.
    """
    names = _expand(text, text)
    if not names:
        raise _error(text, text, "it names no node")
    return tuple(sorted(names, key=natural_key))


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Return the nodes of a set whose parts may carry `user@` and `:port`, each once, in natural order of hosts.

    Raises:
        UsageError: as `parse_nodeset`.
    """
    if not re.search(r"[^,]@|:", text):
        return tuple(Endpoint(name) for name in parse_nodeset(text))
    found: dict[Endpoint, None] = {}
    for part in split_parts(text):
        for endpoint in _parse_part(part.strip(), text):
            found[endpoint] = None
    if len(found) > MAX_NODES:
        raise _error(text, text, f"it names more than {MAX_NODES} nodes")
    return tuple(sorted(found, key=_endpoint_key))


def split_parts(text: str) -> tuple[str, ...]:
    """Return the parts between commas that are outside of brackets: `a[1,2],b` has two."""
    return tuple(re.split(r",(?![^\[]*\])", text))


def _endpoint_key(endpoint: Endpoint) -> tuple[object, ...]:
    return natural_key(endpoint.host), endpoint.port or 0, endpoint.user or ""


def _parse_part(part: str, text: str) -> tuple[Endpoint, ...]:
    if not part:
        raise _error(text, part, "there is nothing between two commas")
    if part.startswith("@"):  # a ClusterShell group, whose source may be written with a colon
        return tuple(Endpoint(name) for name in _expand(part, text))
    user, _, rest = part.rpartition("@")
    if "@" in part and not _USER.fullmatch(user):
        raise _error(text, part, f"{user!r} is no user name")
    host, port = _split_port(rest, text)
    names = (host[1:-1],) if _is_bracketed_ipv6(host) else _expand(host, text)
    if not names:
        raise _error(text, part, "it names no node")
    return tuple(Endpoint(name, user or None, port) for name in names)


def _split_port(rest: str, text: str) -> tuple[str, int | None]:
    if not _is_bracketed_ipv6(rest.rpartition(":")[0]) and rest.count(":") != 1:
        return rest, None  # no port, or an IPv6 address without brackets
    host, _, digits = rest.rpartition(":")
    if not digits.isdecimal() or not 1 <= int(digits) <= MAX_PORT:
        raise _error(text, rest, f"{digits!r} is no port; a port is 1 to {MAX_PORT}")
    return host, int(digits)


def _is_bracketed_ipv6(host: str) -> bool:
    return re.fullmatch(r"\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%\w+)?\]", host) is not None


def _expand(piece: str, text: str) -> tuple[str, ...]:
    """Return the names of a piece of `text` in ClusterShell's order."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError

    try:
        nodes = NodeSet(piece)
    except AssertionError as error:  # how ClusterShell refuses a range past its own bound
        raise _error(text, piece, f"it names more than {MAX_NODES} nodes") from error
    except (GroupResolverError, GroupSourceError) as error:
        raise _error(text, piece, f"ClusterShell knows no such group here ({error})") from error
    except NodeSetException as error:
        # ClusterShell quotes the offending piece at the end: bad range: "invalid values in range : "3-1""
        why, _, bad = str(error).replace('""', '"').partition(' "')
        bad = bad.rpartition(': "')[2].rstrip('"')
        raise _error(text, bad or piece, f"{why.rstrip(':')}: {bad}" if bad else why) from error
    if len(nodes) > MAX_NODES:
        raise _error(text, piece, f"it names {len(nodes)} nodes, more than {MAX_NODES}")
    names = tuple(str(name) for name in nodes)
    for name in names:
        # A name goes into ssh's arguments: one that begins with a dash would be an option.
        if not _HOST.fullmatch(name):
            raise _error(text, piece, f"{name!r} is no host name or address")
    return names


def _error(text: str, bad: str, why: str) -> UsageError:
    where = text.find(bad) if bad and bad != text else -1
    place = f" at character {where + 1}" if where >= 0 else ""
    return UsageError(f"cannot read the node set {text!r}{place}", why, _EXAMPLE)
