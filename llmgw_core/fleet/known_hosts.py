"""The operator's known_hosts files, read and never written.

asyncssh drops a whole file for one malformed line and says the same of an unknown and of a changed key. Here a bad line
costs itself alone, and the two are told apart, as they call for opposite remedies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path

import asyncssh

from llmgw_core.fleet.ssh_config import DEFAULT_PORT
from llmgw_core.fleet.ssh_messages import entry_name


class KeyVerdict(Enum):
    """What known_hosts files say of a key that a node offered."""

    UNKNOWN = "unknown"  # no entry for the node at all
    REVOKED = "revoked"  # this very key is marked so
    CHANGED = "changed"  # entries for the node, with other keys
    AUTHORITY_ONLY = (
        "authority"  # a certificate authority for the node, and the key is no certificate of it
    )


@dataclass(frozen=True)
class KnownHosts:
    """Several known_hosts files as one."""

    merged: asyncssh.SSHKnownHosts
    by_file: tuple[tuple[str, asyncssh.SSHKnownHosts], ...]
    bad_lines: tuple[str, ...] = field(default=())  # "path:line", skipped

    def judge(self, host: str, address: str, port: int, key: asyncssh.SSHKey) -> KeyVerdict:
        """Say why a key was not accepted for a node."""
        # asyncssh forgets a revocation of [host]:port when it falls back to the entry without a port.
        if key in self.merged.match(entry_name(host, port), "", None)[2]:
            return KeyVerdict.REVOKED
        found = self.merged.match(host, address, _port(port))
        if found[0]:
            return KeyVerdict.CHANGED
        return KeyVerdict.AUTHORITY_ONLY if found[1] else KeyVerdict.UNKNOWN

    def files_naming(self, host: str, address: str, port: int) -> tuple[str, ...]:
        """Return the files with an entry for the node."""
        return tuple(
            path for path, entries in self.by_file if any(entries.match(host, address, _port(port)))
        )


def read_known_hosts(paths: Sequence[str]) -> KnownHosts:
    """Return the content of the files that are there; blocking, cached until one of them changes."""
    return _read_stamped(tuple((path, _stamp(path)) for path in paths))


def _port(port: int) -> int | None:
    return None if port == DEFAULT_PORT else port


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = Path(path).stat()
    except OSError:  # not there, or not ours to read: as ssh, go on with the others
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _read_stamped(stamped: tuple[tuple[str, tuple[int, int]], ...]) -> KnownHosts:
    merged = asyncssh.SSHKnownHosts()
    by_file = []
    bad: list[str] = []
    for path, _ in stamped:
        try:
            text = Path(path).read_text("utf-8", errors="replace")
        except OSError:
            continue
        good = _good_lines(path, text, bad)
        by_file.append((path, asyncssh.import_known_hosts(good)))
        merged.load(good)
    return KnownHosts(merged, tuple(by_file), tuple(bad))


def _good_lines(path: str, text: str, bad: list[str]) -> str:
    """The lines that asyncssh can read; the numbers of the others go to `bad`."""
    good = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            asyncssh.import_known_hosts(line)
        except ValueError:
            bad.append(f"{path}:{number}")
        else:
            good.append(line)
    return "\n".join(good)
