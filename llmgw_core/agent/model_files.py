"""A model's files on this node: where they are, what they hold, and whether any is missing or torn. No network, no engine."""

import hashlib
import stat
import struct
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.bounded_json import Unreadable, parse_object, positive, read_bytes, read_whole
from llmgw_core.agent.model_config import parse_config
from llmgw_core.agent.probes.model_cache import find_hub_cache
from llmgw_core.domain.model import ModelFacts

CONFIG_BYTES = 8 << 20
INDEX_BYTES = 64 << 20  # 100 000 tensors have 10 MiB
HEADER_BYTES = 64 << 20
HEADERS_S = (
    5.0  # for all headers together: a cold network file system must not keep a launch waiting
)
MAX_FILES = 4096
_LISTED = 8
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin")
_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt")
_NO_WEIGHTS = frozenset(["training_args.bin", "optimizer.bin", "scheduler.bin"])


def find_model(
    model: str, cwd: str, revision: str, hubs: Sequence[Path]
) -> Tuple[Optional[Path], str, str]:
    """(directory or file, commit in a hub's cache, where it was looked for). The first is None when it is not here.

    Args:
        model: a path, or a hub name as `org/name`.
        cwd: the engine's working directory.
        revision: a branch, tag or commit of the hub; empty: main.
        hubs: directories laid out as huggingface_hub lays out its cache.
    """
    local = Path(cwd, model)
    if _kind_of(local) is not None:
        return local, "", str(local)
    if model.startswith(("/", ".", "~")) or model.count("/") > 1 or ":" in model:
        return None, "", str(local)
    for hub in hubs:
        root = hub / ("models--" + model.replace("/", "--"))
        commit = _read_commit(root, revision or "main")
        snapshot = root / "snapshots" / commit
        if commit and _kind_of(snapshot) == stat.S_IFDIR:
            return snapshot, commit, str(hub)
    return None, "", ", ".join(str(hub) for hub in hubs)


def hub_cache(env: Mapping[str, str]) -> Path:
    """Where huggingface_hub keeps what it downloads."""
    return Path(find_hub_cache(env))


def _kind_of(path: Path) -> Optional[int]:
    """The file's type, links followed; None where there is none, or nothing that we may see."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError):
        return None


def _read_commit(root: Path, revision: str) -> str:
    """The commit that a branch or tag means in that cache, or the revision itself; "" where it is no name."""
    try:
        commit = read_bytes(root / "refs" / revision, 100).decode("ascii").strip()
    except (Unreadable, UnicodeDecodeError):
        commit = revision
    return "" if "/" in commit or commit.startswith(".") else commit


def read_model(path: Path, commit: str = "") -> ModelFacts:
    """What the files at that path say. Nothing is raised: what cannot be read is listed.

    Args:
        commit: of the snapshot, in a hub's cache.
    """
    if _kind_of(path) != stat.S_IFDIR:
        return _read_single(path)
    unread: List[str] = []
    digest = hashlib.sha256()
    config = _try_object(path, "config.json", unread, digest, CONFIG_BYTES)
    hf_quant = _try_object(path, "hf_quant_config.json", unread, digest, CONFIG_BYTES)
    weights = _find_weights(path, unread, digest)
    if config is None and not any(text.startswith("config.json") for text in unread):
        unread.append("config.json: there is none")
    shape = None if config is None else parse_config(config, hf_quant)
    return ModelFacts(
        path=str(path),
        is_cached=bool(commit),
        revision=commit or None,
        fingerprint=digest.hexdigest()[:16],
        weight_bytes=weights.total,
        weight_files=len(weights.sizes),
        missing_files=tuple(weights.missing[:_LISTED]),
        torn_files=tuple(weights.torn[:_LISTED]),
        unread=tuple(unread[:_LISTED]),
        shape=shape,
    )


class _Weights:
    """The weight files of a directory."""

    def __init__(self) -> None:
        self.sizes: Dict[str, int] = {}
        self.missing: List[str] = []
        self.torn: List[str] = []
        self.total: Optional[int] = None


def _read_single(path: Path) -> ModelFacts:
    """A model of one file, such as a GGUF: its size is all that is read."""
    try:
        size = path.stat().st_size
    except OSError as error:
        return ModelFacts(path=str(path), unread=(f"{path}: {error.strerror}",))
    name = hashlib.sha256(f"{path.name} {size}".encode("utf-8", "surrogateescape"))
    return ModelFacts(
        path=str(path),
        fingerprint=name.hexdigest()[:16],
        weight_bytes=size,
        weight_files=1,
        unread=("it is one file, and its shape is not read",),
    )


def _find_weights(path: Path, unread: List[str], digest: Any) -> _Weights:
    """The files that an engine would load: those of the index, else the single one, else all of the first kind."""
    found = _Weights()
    index = next(
        (
            read
            for name in _INDEXES
            if (read := _try_object(path, name, unread, digest, INDEX_BYTES)) is not None
        ),
        None,
    )
    names = _names_of(index) if index is not None else _names_in(path, unread)
    for name in names:
        try:
            found.sizes[name] = (path / name).stat().st_size
        except OSError:
            found.missing.append(name)
    for name, size in sorted(found.sizes.items()):
        digest.update(f"{name} {size}\n".encode("utf-8", "surrogateescape"))
    declared = _measure(path, found)
    metadata = index.get("metadata") if index is not None else None
    said = positive(metadata.get("total_size")) if isinstance(metadata, dict) else None
    found.total = said or (declared if not found.missing else None)
    return found


def _names_of(index: Mapping[str, Any]) -> List[str]:
    """The index's files. A name that leaves the directory is not followed."""
    weight_map = index.get("weight_map")
    values = weight_map.values() if isinstance(weight_map, dict) else ()
    names = {value for value in values if isinstance(value, str)}
    inside = [
        name for name in names if not name.startswith("/") and ".." not in name and "\0" not in name
    ]
    return sorted(inside)[:MAX_FILES]


def _names_in(path: Path, unread: List[str]) -> List[str]:
    try:
        names = sorted(entry.name for entry in path.iterdir() if entry.name not in _NO_WEIGHTS)
    except OSError as error:
        unread.append(f"{path}: {error.strerror}")
        return []
    for single in _SINGLE:
        if single in names:
            return [single]
    kinds = ([name for name in names if name.endswith(suffix)] for suffix in _SUFFIXES)
    return next((found for found in kinds if found), [])[:MAX_FILES]


def _measure(path: Path, found: _Weights) -> int:
    """Bytes of the tensors by each file's own header. Files that are not as long as it says are torn."""
    until = time.monotonic() + HEADERS_S
    total = 0
    for name, size in sorted(found.sizes.items()):
        if not name.endswith(".safetensors") or time.monotonic() > until:
            total += size
            continue
        try:
            header, end = read_header(path / name)
        except Unreadable:
            found.torn.append(name)
            continue
        total += max(size - header, 0)
        if size != end:
            found.torn.append(name)
    return total


def read_header(path: Path) -> Tuple[int, int]:
    """(bytes before the tensors, how long the file should be) of a safetensors file.

    Raises:
        Unreadable: it is no safetensors file, or is cut within its header.
    """
    start = read_bytes(path, 8)
    if len(start) < 8:  # noqa: PLR2004 - the length's own length
        raise Unreadable("it is shorter than a header")
    (length,) = struct.unpack("<Q", start)
    if length > HEADER_BYTES:
        raise Unreadable("its header is longer than any")
    data = read_bytes(path, length, 8)
    if len(data) < length:
        raise Unreadable("it ends within its header")
    ends = [_end_of(entry) for entry in parse_object(data).values()]
    return 8 + length, 8 + length + max(ends, default=0)


def _end_of(entry: Any) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    end = offsets[-1] if isinstance(offsets, list) and offsets else None
    return positive(end) or 0


def _try_object(
    path: Path, name: str, unread: List[str], digest: Any, limit: int
) -> Optional[Dict[str, Any]]:
    """The JSON file's object; None when it is not there, or of no use and listed. Its bytes go into the digest."""
    where = path / name
    if not (where.is_symlink() or where.exists()):
        return None
    try:
        data = read_whole(where, limit)
        digest.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
        return parse_object(data)
    except Unreadable as error:
        unread.append(f"{name}: {error}")
        return None
