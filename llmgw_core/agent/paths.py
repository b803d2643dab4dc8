"""Where the node side keeps its files: one directory per instance, one below it per engine (docs/agent-protocol.md)."""

import contextlib
import hashlib
import os
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import List, Mapping, Optional, Tuple

from llmgw_core.agent.procfs import read_boot_id, read_namespace
from llmgw_core.errors import DiskFull, HomeUnwritable

MAX_SOCKET_PATH_BYTES = 107  # sun_path holds 108 with its final zero
_FULL_ERRNOS = (28, 122)  # ENOSPC, EDQUOT
# A lock or socket on these is shared with other hosts, or does not work at all.
_SHARED_FILE_SYSTEMS = frozenset(
    [
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "beegfs",
        "wekafs",
        "9p",
        "glusterfs",
        "panfs",
        "orangefs",
    ]
)
_ENGINE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


@dataclass(frozen=True)
class EngineDir:
    """The files of one engine. None of them need exist."""

    root: Path

    @property
    def id(self) -> str:
        """The engine's id."""
        return self.root.name

    @property
    def spec(self) -> Path:
        """RankPlan and who asked; immutable."""
        return self.root / "spec.json"

    @property
    def secrets(self) -> Path:
        """0600: values of `env_from` names."""
        return self.root / "secrets.json"

    @property
    def api_key(self) -> Path:
        """The API key as an engine reads it that takes none by environment."""
        return self.root / "api-key.yaml"

    @property
    def gang_key(self) -> Path:
        """What the ranks of one launch know each other by."""
        return self.root / "gang.key"

    @property
    def gang_ready(self) -> Path:
        """Once all ranks were ready."""
        return self.root / "gang.ready"

    @property
    def intent(self) -> Path:
        """What the operator wants: run or stop."""
        return self.root / "intent.json"

    @property
    def run(self) -> Path:
        """Written by the shim before the engine's first instruction."""
        return self.root / "run.json"

    @property
    def pump(self) -> Path:
        """The process that stores the log since the shim was killed."""
        return self.root / "pump.json"

    @property
    def pump_lock(self) -> Path:
        """flock of whoever stores the log: two would tear it."""
        return self.root / "pump.lock"

    @property
    def ready(self) -> Path:
        """Once it was ready."""
        return self.root / "ready.json"

    @property
    def exit(self) -> Path:
        """How the leader ended."""
        return self.root / "exit.json"

    @property
    def diagnosis(self) -> Path:
        """Why it failed, read once from the log."""
        return self.root / "diagnosis.json"

    @property
    def cgroup(self) -> Path:
        """Path of the engine's cgroup, where one could be made."""
        return self.root / "cgroup"

    @property
    def fifo(self) -> Path:
        """The engine's stdout and stderr."""
        return self.root / "out.fifo"

    @property
    def log(self) -> Path:
        """Segments of raw bytes, named by the offset of their first byte."""
        return self.root / "log"


@dataclass(frozen=True)
class InstancePaths:
    """The files of one daemon: one per node, user, boot, PID and network namespace."""

    root: Path
    socket: Path  # at most 107 bytes long

    @property
    def lock(self) -> Path:
        """flock of the daemon."""
        return self.root / "lock"

    @property
    def log(self) -> Path:
        """The daemon's own log."""
        return self.root / "daemon.log"

    @property
    def engines(self) -> Path:
        """One directory per engine."""
        return self.root / "engines"

    def engine(self, engine_id: str) -> EngineDir:
        """The files of that engine.

        Raises:
            ValueError: the id is no file name, e.g. `../x`.
        """
        if not is_engine_id(engine_id):
            raise ValueError(f"not an engine id: {engine_id!r}")
        return EngineDir(self.engines / engine_id)


def is_engine_id(text: str) -> bool:
    """Whether the text can be an engine's id: a plain file name."""
    return _ENGINE_ID.match(text) is not None and ".." not in text


def resolve_instance(env: Mapping[str, str]) -> InstancePaths:
    """The instance of this process's node, user, boot and namespaces; its directories are made, 0700.

    One that has engines is taken even where nothing can be written any more: they must be seen and stopped there, and
    a second place would only hide them.

    Raises:
        HomeUnwritable: no candidate can be written to; says each with its reason.
        DiskFull: the only thing wrong is space.
    """
    name = instance_name(env)
    tried: List[str] = []
    full = False
    candidates = _state_candidates(env)
    for base in sorted(candidates, key=lambda base: not _has_engines(base / name)):
        try:
            _make_private(base)
            _make_private(base / name)
            _make_private(base / name / "engines")
            if not _has_engines(base / name):
                _check_writable(base / name)
            return InstancePaths(base / name, _place_socket(base / name))
        except OSError as error:
            full = full or error.errno in _FULL_ERRNOS
            tried.append(f"{base}: {error.strerror or error}")
    kind = DiskFull if full else HomeUnwritable
    raise kind(
        "there is no place for llmgw's records",
        "; ".join(tried),
        "free some space there, or name a writable local directory in LLMGW_STATE_DIR",
    )


def resolve_cache(env: Mapping[str, str]) -> Path:
    """The directory for agent bundles, made if need be. A shared file system is fine: names are content hashes.

    Raises:
        HomeUnwritable: no candidate can be written to.
    """
    tried: List[str] = []
    for base in _cache_candidates(env):
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(base, os.W_OK):
                return base
            tried.append(f"{base}: not writable")
        except OSError as error:
            tried.append(f"{base}: {error.strerror or error}")
    raise HomeUnwritable(
        "there is no place for llmgw's agent",
        "; ".join(tried),
        "name a writable directory in LLMGW_CACHE_DIR",
    )


def instance_name(env: Mapping[str, str]) -> str:
    """`<hostname>-<boot id, 8>-<8 hex over PID namespace, network namespace and the LLMGW_* overrides>`."""
    overrides = sorted(
        f"{key}={env[key]}"
        for key in ("LLMGW_SYSFS_ROOT", "LLMGW_NVIDIA_SMI", "LLMGW_STATE_DIR")
        if env.get(key)
    )
    facts = "\0".join([read_namespace("pid"), read_namespace("net"), *overrides])
    digest = hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    host = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())[:64] or "node"
    return f"{host}-{read_boot_id()[:8]}-{digest}"


def read_file_system(path: Path, mounts: Optional[str] = None) -> str:
    """Type of the file system the path is or would be on, e.g. `ext4`; "" when it cannot be told.

    Source: proc(5), /proc/self/mountinfo: `36 35 98:0 /root /mount/point rw - ext3 /dev/root rw`.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return ""
    target = os.path.realpath(path)
    best = (-1, "")
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:  # noqa: PLR2004 - the mount point is the fifth field
            continue
        point = _unescape(fields[4])
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best[0]:
            best = (len(point), right.split(" ")[0])
    return best[1]


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _is_shared(path: Path) -> bool:
    kind = read_file_system(path)
    return kind in _SHARED_FILE_SYSTEMS or kind.startswith("fuse.")


def _state_candidates(env: Mapping[str, str]) -> Tuple[Path, ...]:
    given = env.get("LLMGW_STATE_DIR")
    if given:
        return (Path(given).absolute(),)
    fallback = Path(f"/var/tmp/llmgw-{os.getuid()}")  # noqa: S108 - private, checked before use
    if os.getuid() == 0:
        return (Path("/var/lib/llmgw"), fallback)
    home = env.get("HOME")
    candidates = [Path(home) / ".local/state/llmgw"] if home else []
    return (*(path for path in candidates if not _is_shared(path)), fallback)


def _cache_candidates(env: Mapping[str, str]) -> Tuple[Path, ...]:
    given = env.get("LLMGW_CACHE_DIR")
    if given:
        return (Path(given).absolute(),)
    home = env.get("HOME")
    fallback = Path(f"/var/tmp/llmgw-{os.getuid()}")  # noqa: S108 - private to this user
    return (*((Path(home) / ".cache/llmgw",) if home else ()), fallback)


def _make_private(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    facts = path.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(20, "it is a link or no directory", str(path))
    if facts.st_uid != os.getuid():
        raise PermissionError(13, f"it belongs to uid {facts.st_uid}", str(path))
    if stat.S_IMODE(facts.st_mode) & 0o077:
        path.chmod(0o700)


def _has_engines(root: Path) -> bool:
    try:
        return any((root / "engines").iterdir())
    except OSError:
        return False


def _check_writable(path: Path) -> None:
    probe = path / f".probe-{os.getpid()}"
    try:
        probe.write_bytes(b"x")
    finally:
        probe.unlink(missing_ok=True)


def _place_socket(root: Path) -> Path:
    plain = root / "s"
    fits = len(os.fsencode(plain)) <= MAX_SOCKET_PATH_BYTES
    if fits and (_can_make_files(root) or _is_listening(plain)):
        return plain
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    base = Path(f"/tmp/llmgw-{os.getuid()}")  # noqa: S108 - private, checked before use
    _make_private(base)
    _make_private(base / digest)
    short = base / digest / "s"
    note = root / "socket"
    with contextlib.suppress(OSError):  # for people alone
        if not note.exists() or note.read_text("utf-8") != str(short):
            note.write_text(str(short), "utf-8")
    return short


def _can_make_files(root: Path) -> bool:
    """Whether a socket can be made there: not so on a file system that turned read-only or has no inode left."""
    facts = os.statvfs(root)
    full = facts.f_files > 0 and facts.f_favail == 0
    return not (facts.f_flag & os.ST_RDONLY or full)


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
