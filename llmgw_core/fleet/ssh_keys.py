"""The keys to log in with, each file read on its own: one that cannot be used is told, and the others are tried."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from llmgw_core.fleet.ssh_config import SshSettings


@dataclass(frozen=True)
class KeyRing:
    """What may be offered to a node."""

    pairs: tuple[asyncssh.SSHKeyPair, ...] = ()
    agent: str | None = None  # the agent's socket
    agent_identities: tuple[asyncssh.SSHKey, ...] | None = None  # None: all that the agent has
    files: tuple[str, ...] = ()  # that `pairs` came from
    skipped: tuple[tuple[str, str], ...] = ()  # (file, why it cannot be used)

    def describe(self) -> str:
        """Say in one line what was tried and what could not be."""
        tried = [*self.files, *([f"the agent at {self.agent}"] if self.agent else [])]
        parts = [f"tried {', '.join(tried)}" if tried else "there was no key to try"]
        parts += [f"{path} {why}" for path, why in self.skipped]
        return "; ".join(parts)


def load_keys(settings: SshSettings) -> KeyRing:
    """Return the keys of the identity files that are there; blocking."""
    certificates = [path for path in settings.certificate_files if Path(path).is_file()]
    pairs: list[asyncssh.SSHKeyPair] = []
    files: list[str] = []
    skipped: list[tuple[str, str]] = []
    there = [path for path in dict.fromkeys(settings.identity_files) if Path(path).is_file()]
    for path in there:
        try:
            found = asyncssh.load_keypairs([path], certlist=certificates)
        except (ValueError, OSError, asyncssh.KeyEncryptionError) as error:
            # An IdentityFile may name the public half of a key that the agent holds.
            if _is_private(path) or _public_key(path) is None:
                skipped.append((path, _why_not(error)))
        else:
            pairs += found
            files.append(path)
    wanted = tuple(_public_keys(settings.identity_files)) if settings.identities_only else None
    agent = settings.agent if wanted is None or wanted else None
    return KeyRing(tuple(pairs), agent, wanted, tuple(files), tuple(skipped))


def _why_not(error: Exception) -> str:
    text = str(error)
    if isinstance(error, asyncssh.KeyEncryptionError) or "assphrase" in text:
        return "needs a passphrase: ssh-add it to your agent"
    if isinstance(error, PermissionError):
        return "is not readable by you"
    return f"is no private key that can be read ({text})"


def _is_private(path: str) -> bool:
    try:
        return b"PRIVATE KEY" in Path(path).read_bytes()[:4096]
    except OSError:
        return False


def _public_keys(paths: Sequence[str]) -> Iterator[asyncssh.SSHKey]:
    for path in paths:
        for candidate in (f"{path}.pub", path):
            key = _public_key(candidate)
            if key is not None:
                yield key
                break


def _public_key(path: str) -> asyncssh.SSHKey | None:
    try:
        return asyncssh.read_public_key(path)
    except (ValueError, OSError):
        return None
