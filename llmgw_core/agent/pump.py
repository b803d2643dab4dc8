"""Stores what an engine prints, in segments of bounded size, and never stops reading: a full pipe would block the engine.

`os` alone: the shim imports this and must stay small.
"""

# ruff: noqa: PTH103, PTH116, PTH118, PTH208
# pathlib would double the shim's memory.
from __future__ import annotations

import errno
import fcntl
import os
import select
import time

from llmgw_core.agent.durable import read_json, remove_quietly, write_json_durably

SEGMENT_BYTES = 8 << 20
SEGMENTS_KEPT = 8
READ_BYTES = 64 << 10
MOVE_BYTES = 256 << 10
SPLICE_F_NONBLOCK = 2
META_EVERY_S = 1.0
# A log never takes the last of a disk: records must still fit, and the node must still work.
RESERVE_BYTES = 16 << 20
SPACE_CHECK_BYTES = 1 << 20
PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031  # fcntl(2); Python names it from 3.10 on


def list_segments(directory: str) -> list[tuple[int, str]]:
    """(offset of the first byte, path) of each segment, oldest first. Empty where there is no directory."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(
        (int(name[:-4]), os.path.join(directory, name))
        for name in names
        if name.endswith(".seg") and name[:-4].isdecimal()
    )


def read_dropped(directory: str) -> int:
    """Bytes that could not be stored over the engine's life; 0 when nothing says so."""
    try:
        dropped = read_json(os.path.join(directory, "meta.json")).get("dropped")
    except (OSError, ValueError):
        return 0
    return dropped if isinstance(dropped, int) else 0


class Pump:
    """Moves bytes from the engine's FIFO into segments. What the disk does not take is counted and let go."""

    def __init__(self, fifo: str, directory: str, segment_bytes: int, segments_kept: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments_kept = segments_kept
        # Read-write: with no writer left it does not say end of file for ever, and opening does not wait for one.
        self.fd = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        _widen(self.fd)
        self._ready = select.poll()
        self._ready.register(self.fd, select.POLLIN)
        self._out = -1
        self._used = 0
        self._dropped = read_dropped(directory)
        self._dropped_told = self._dropped
        self._checked_at = 0.0
        self._unchecked_bytes = SPACE_CHECK_BYTES
        self._is_tight = False
        self._can_splice = True
        self._offset = 0
        segments = list_segments(directory)
        if segments:
            start, path = segments[-1]
            self._offset = start + os.stat(path).st_size

    def drain(self, max_moves: int) -> bool:
        """Store what is there, at most that many pieces. False: nothing was there."""
        moved = False
        for _ in range(max_moves):
            if not self._move():
                break
            moved = True
        self.check()
        return moved

    def check(self) -> None:
        """About once a second: notice that the directory was deleted, and tell how much was dropped."""
        now = time.monotonic()
        if now - self._checked_at < META_EVERY_S:
            return
        self._checked_at = now
        self._unchecked_bytes = SPACE_CHECK_BYTES
        if self._out >= 0 and os.fstat(self._out).st_nlink == 0:
            self._close_segment()
        if self._dropped != self._dropped_told:
            self._tell_dropped()

    def close(self) -> None:
        """Nothing more will be stored."""
        self._close_segment()
        if self._dropped != self._dropped_told:
            self._tell_dropped()
        os.close(self.fd)

    def _move(self) -> bool:
        """Store or let go of one piece. False: nothing was there."""
        try:
            if not self._make_room():
                return self._drop()
            return self._splice() if self._can_splice else self._copy()
        except BlockingIOError:
            return False
        except OSError:
            # Full disk, quota, a read-only remount: the engine's life is worth more than its log.
            return self._drop()

    def _make_room(self) -> bool:
        """Whether there is a segment with room for more, on a disk with room for more.

        Raises:
            BlockingIOError: a new segment is needed, and nothing is there to be put into it.
        """
        if self._out < 0 or self._used >= self._segment_bytes:
            if not self._ready.poll(0):
                raise BlockingIOError
            self._open_segment()
        if self._unchecked_bytes >= SPACE_CHECK_BYTES:
            self._check_space()
        return not self._is_tight

    def _splice(self) -> bool:
        """Have the kernel move a piece: a pump that is killed at any instant has taken nothing along."""
        room = min(MOVE_BYTES, self._segment_bytes - self._used)
        try:
            stored = splice(self.fd, self._out, room, self._used)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
                raise
            self._can_splice = False  # not on this file system
            return self._copy()
        self._count(stored)
        return stored > 0

    def _copy(self) -> bool:
        data = os.read(self.fd, min(READ_BYTES, self._segment_bytes - self._used))
        stored = 0
        try:
            while stored < len(data):
                stored += os.pwrite(self._out, data[stored:], self._used + stored)
        except OSError:
            self._dropped += len(data) - stored
        self._count(stored)
        return len(data) > 0

    def _count(self, stored: int) -> None:
        self._used += stored
        self._offset += stored
        self._unchecked_bytes += stored

    def _drop(self) -> bool:
        try:
            count = len(os.read(self.fd, READ_BYTES))
        except OSError:
            return False
        self._dropped += count
        return count > 0

    def _open_segment(self) -> None:
        self._close_segment()
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        path = os.path.join(self._directory, f"{self._offset:020d}.seg")
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC  # splice refuses O_APPEND
        self._out = os.open(path, flags, 0o600)
        self._used = 0
        for _, old in list_segments(self._directory)[: -self._segments_kept]:
            remove_quietly(old)

    def _check_space(self) -> None:
        facts = os.fstatvfs(self._out)
        self._is_tight = facts.f_bavail * facts.f_frsize < RESERVE_BYTES
        self._unchecked_bytes = 0

    def _close_segment(self) -> None:
        if self._out >= 0:
            os.close(self._out)
            self._out = -1

    def _tell_dropped(self) -> None:
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            write_json_durably(
                os.path.join(self._directory, "meta.json"), {"dropped": self._dropped}
            )
        except OSError:
            return  # the disk is still full; tried again in a second
        self._dropped_told = self._dropped


def splice(source: int, target: int, count: int, offset: int) -> int:
    """Move at most that many bytes from a pipe into a file at that offset, without ever holding them. Source: splice(2).

    Raises:
        BlockingIOError: the pipe is empty.
        OSError: the file takes nothing, or splicing is not possible here (EINVAL, ENOSYS).
    """
    native = getattr(os, "splice", None)  # from Python 3.10 on
    if native is not None:
        moved: int = native(source, target, count, offset_dst=offset, flags=SPLICE_F_NONBLOCK)
        return moved
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "splice", None)
    if call is None:
        raise OSError(errno.ENOSYS, "this libc has no splice")
    call.restype = ctypes.c_ssize_t
    place = ctypes.c_int64(offset)
    moved = call(
        source, None, target, ctypes.byref(place), ctypes.c_size_t(count), SPLICE_F_NONBLOCK
    )
    if moved < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return moved


def _widen(fd: int) -> None:
    """More room for what an engine prints while its pump is being replaced."""
    try:
        fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        return  # above the user's limit: the usual 64 KiB do
