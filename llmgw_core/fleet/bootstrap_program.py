"""The program that puts the agent on a node. Its text is sent and run there as `python -I -S -c TEXT NONCE HASH`.

It may run on any Python from 3.6 on, which it must at least be able to parse, and sees nothing else of this package.
docs/agent-protocol.md, "Bootstrap", says what it reads and prints.
"""

# It must parse on Python 3.6 and start within milliseconds, which rules out pathlib and most of what is modern:
# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH104, PTH112, PTH116, PTH118, PTH120, PTH123, PTH208, UP031, UP036
import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import socket
import sys
import time
import zlib

try:
    import bz2
except ImportError:  # a Python built without it
    bz2 = None  # type: ignore[assignment]

FALLBACK = "/var/tmp/llmgw"  # noqa: S108 - private to the user, checked before use
NAME = re.compile("[0-9a-f]{16}$")
KEEP = 2
UNUSED_S = 24 * 3600
MAX_UPLOAD = 16 << 20
MAX_LINE = 200
BZ2_MAGIC = b"BZh"
FULL = (errno.ENOSPC, errno.EDQUOT)


class Failure(Exception):
    """What is told to the console: code, what, why, fix."""

    def __init__(self, code: str, what: str, why: str, fix: str) -> None:
        Exception.__init__(self, what)
        self.facts = {"ok": False, "code": code, "what": what, "why": why, "fix": fix}


def say(nonce: str, facts: "dict[str, object]") -> None:
    """Print one marked line."""
    line = "LLMGW1 %s %s\n" % (nonce, json.dumps(facts, sort_keys=True))
    data = line.encode("ascii")
    while data:
        data = data[os.write(1, data) :]


def read_line() -> str:
    """Return the console's next line; not a byte more is taken."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte or len(line) > MAX_LINE:
            sys.exit(1)  # the console is gone: nobody to tell
        line += byte
    return line.decode("ascii", "replace").strip()


def read_upload(order: str) -> bytes:
    """Return the archive that `upload <bytes> <sha256>` announces."""
    words = order.split()
    if len(words) != 3 or words[0] != "upload" or int(words[1]) > MAX_UPLOAD:  # noqa: PLR2004
        raise Failure(
            "bootstrap", "the console said %r" % order[:80], "", "use one version of llmgw"
        )
    data = bytearray()
    while len(data) < int(words[1]):
        piece = os.read(0, min(65536, int(words[1]) - len(data)))
        if not piece:
            sys.exit(1)
        data += piece
    if hashlib.sha256(data).hexdigest() != words[2]:
        raise Failure(
            "bootstrap",
            "the agent arrived damaged",
            "%d bytes came, and not with the announced SHA-256" % len(data),
            "try again; a proxy or login script on the way changes bytes if this stays",
        )
    return bytes(data)


def candidates() -> "list[str]":
    """Return the directories to keep bundles in, best first."""
    given = os.environ.get("LLMGW_CACHE_DIR")
    if given:
        return [os.path.abspath(given)]
    home = os.environ.get("HOME", "")
    found = [os.path.join(home, ".cache", "llmgw")] if home.startswith("/") else []
    return [*found, "%s-%d" % (FALLBACK, os.getuid())]


def make_shelf(base: str) -> str:
    """Return `<base>/agent`, made if need be; code is run from there, so nobody else may write to it."""
    shelf = os.path.join(base, "agent")
    os.makedirs(shelf, 0o700, exist_ok=True)
    for path in (base, shelf):
        facts = os.lstat(path) if base.startswith(FALLBACK) else os.stat(path)
        if facts.st_uid != os.getuid():
            raise OSError(errno.EPERM, "it belongs to uid %d" % facts.st_uid)
        if facts.st_mode & 0o022:
            os.chmod(path, 0o700)
    return shelf


def hash_directory(root: str) -> str:
    """Return the content hash of the bundle unpacked there; see `bundle.hash_files`."""
    lines = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".py"):
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                lines.append((os.path.relpath(path, root), digest))
    text = "".join("%s\0%s\n" % line for line in sorted(lines))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_bundle(digest: str) -> "str | None":
    """Return where the bundle is, whole; None when it is nowhere."""
    for base in candidates():
        try:
            target = os.path.join(make_shelf(base), digest)
            if os.path.isdir(target) and hash_directory(target) == digest:
                return target
        except OSError:
            continue
    return None


def store(data: bytes, digest: str, nonce: str) -> str:
    """Unpack the archive into the first directory that takes it, and return its place there."""
    tried = []
    full = False
    for base in candidates():
        try:
            return unpack(make_shelf(base), data, digest, nonce)
        except OSError as error:
            full = full or error.errno in FULL
            tried.append("%s: %s" % (base, error.strerror or error))
    raise Failure(
        "disk-full" if full else "home-unwritable",
        "there is no space for llmgw's agent" if full else "there is no place for llmgw's agent",
        "; ".join(tried),
        "free some space there, or name a writable directory in LLMGW_CACHE_DIR",
    )


def unpack(shelf: str, data: bytes, digest: str, nonce: str) -> str:
    """Put the archive's files at `<shelf>/<digest>`, all of them or none. Others may do the same at once."""
    target = os.path.join(shelf, digest)
    temporary = os.path.join(shelf, ".%s.%s.%d.tmp" % (digest, nonce, os.getpid()))
    try:
        write_files(temporary, read_archive(data))
        if hash_directory(temporary) != digest:
            raise Failure("bootstrap", "the agent is not what was announced", "", "try again")
        compile_quietly(temporary)
        for _ in range(3):
            try:
                os.rename(temporary, target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if hash_directory(target) == digest:
                    return target  # somebody was faster
                os.rename(target, "%s.broken" % temporary)
            else:
                return target
        raise OSError(errno.EEXIST, "somebody else keeps changing %s" % target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree("%s.broken" % temporary, ignore_errors=True)


def read_archive(data: bytes) -> "dict[str, str]":
    """Return path → text."""
    is_bz2 = data[:3] == BZ2_MAGIC and bz2 is not None
    text = (bz2.decompress(data) if is_bz2 else zlib.decompress(data)).decode("ascii")
    return dict(json.loads(text))


def write_files(root: str, files: "dict[str, str]") -> None:
    """Write the texts below root, which is made."""
    os.mkdir(root, 0o700)
    for name, text in files.items():
        path = os.path.join(root, os.path.normpath("/" + name)[1:])
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)


def compile_quietly(root: str) -> None:
    """Save the agent's start some 100 ms. Without it Python compiles by itself."""
    import compileall

    compileall.compile_dir(root, quiet=2)


def prune(target: str) -> None:
    """Remove bundles but the last two, those a process here runs from, and those used a day ago or less.

    The age is for a cache that several nodes share: a daemon there touches its bundle every hour.
    """
    os.utime(target)
    shelf = os.path.dirname(target)
    names = [name for name in os.listdir(shelf) if NAME.match(name)]
    ages = sorted((os.stat(os.path.join(shelf, name)).st_mtime, name) for name in names)
    old = [name for mtime, name in ages[:-KEEP] if time.time() - mtime > UNUSED_S]
    if old:
        commands = read_commands()
        for name in old:
            path = os.path.join(shelf, name)
            if path.encode() not in commands:
                shutil.rmtree(path, ignore_errors=True)
    for name in os.listdir(shelf):
        path = os.path.join(shelf, name)
        if name.startswith(".") and time.time() - os.stat(path).st_mtime > UNUSED_S:
            shutil.rmtree(path, ignore_errors=True)


def read_commands() -> bytes:
    """Return the command lines of all processes, one after the other."""
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    found.append(file.read())
            except OSError:
                continue
    return b"\0".join(found)


def place(nonce: str, digest: str) -> str:
    """Do all that has to be done before the agent can run; return its directory."""
    if sys.version_info < (3, 9):
        raise Failure(
            "no-python",
            "no Python 3.9 or newer was found",
            "%s is %s" % (sys.executable, platform.python_version()),
            "install one, or name it: `python` in cluster.toml",
        )
    target = find_bundle(digest)
    facts = {
        "ok": True,
        "python": platform.python_version(),
        "executable": sys.executable,
        "machine": platform.machine(),
        "hostname": socket.gethostname(),
        "have": target is not None,
        "bz2": bz2 is not None,
    }
    say(nonce, facts)
    order = read_line()
    if order != "run" or target is None:
        target = store(read_upload(order), digest, nonce)
    with contextlib.suppress(OSError):  # a bundle too many is no reason not to work
        prune(target)
    return target


def main() -> None:
    """Become the agent's proxy, or say why not."""
    nonce, digest = sys.argv[1:3]
    try:
        target = place(nonce, digest)
    except Failure as failure:
        say(nonce, failure.facts)
        sys.exit(1)
    except OSError as error:
        why = "%s: %s" % (error.filename or "", error.strerror or error)
        code = "disk-full" if error.errno in FULL else "home-unwritable"
        say(nonce, Failure(code, "the agent cannot be put on the node", why, "see `df`").facts)
        sys.exit(1)
    say(nonce, {"ok": True})
    os.execv(sys.executable, [sys.executable, "-I", "-S", target, "proxy"])  # noqa: S606


if __name__ == "__main__":
    main()
