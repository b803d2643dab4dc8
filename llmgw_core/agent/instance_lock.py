"""The lock that makes a daemon the only one of its instance. It goes with its holder, however that one ends."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Optional


def try_lock(path: Path) -> Optional[int]:
    """A descriptor that holds the lock as long as it or a copy of it is open; None when somebody else holds it.

    It is close-on-exec: a child that inherited it would hold the lock beyond our death.

    Raises:
        OSError: the file cannot be opened.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # flock does not mind
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:
        os.close(fd)
        raise
    return fd


def note_holder(fd: int, pid: int) -> None:
    """Write the holder's pid into the lock file, for people and error texts alone: it proves nothing."""
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{pid}\n".encode("ascii"), 0)


def read_holder(path: Path) -> Optional[int]:
    """The pid noted in the lock file; None when there is none."""
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def is_same_file(fd: int, path: Path) -> bool:
    """Whether the path still leads to the locked file; not so when somebody removed the directory under us."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False
