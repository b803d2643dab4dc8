"""API keys: who a request is from. The file holds their hashes alone.

    [[keys]]
    sha256 = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
    tenant = "search"
    band = "high"                 # default "normal"; a request may lower it, never raise it
    weight = 2                    # default 1: share against the other tenants of its band
    models = ["llama-*"]          # default all; patterns of the shell
    admin = false                 # default; true: it may also read and steer /admin and read /metrics

A key is 32 random bytes, so that a plain SHA-256 cannot be guessed back.
"""

import hashlib
import hmac
import os
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmgw_core.errors import ConfigError

KEY_PREFIX = "llmgw-"
ANONYMOUS = "anonymous"
MAX_BYTES = 16 << 20
_DIGEST_CHARS = 64
Tenant = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@:/-]{0,63}$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tenant: Tenant
    band: str = "normal"
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    models: list[str] | None = None
    admin: bool = False


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    keys: list[_Entry] = []


@dataclass(frozen=True)
class ApiKey:
    """Whom a key stands for. The key itself is not kept."""

    tenant: str
    band: str = "normal"
    weight: int = 1
    models: tuple[str, ...] | None = None  # patterns; None: all
    is_admin: bool = False

    def allows(self, model: str) -> bool:
        """Whether it may ask for a model."""
        return self.models is None or any(fnmatchcase(model, item) for item in self.models)


class KeyRing:
    """All keys, by hash."""

    def __init__(self, keys: Mapping[str, ApiKey], anonymous: ApiKey | None = None) -> None:
        """Take the keys by their hex SHA-256; `anonymous`: who asks without one, None: nobody may."""
        self._keys = {digest[:16]: (digest, key) for digest, key in keys.items()}
        self.anonymous = anonymous

    @property
    def weights(self) -> dict[str, int]:
        """The share of each tenant: the largest of its keys."""
        found: dict[str, int] = {}
        for _, key in self._keys.values():
            found[key.tenant] = max(found.get(key.tenant, 1), key.weight)
        return found

    def find(self, secret: str | None) -> ApiKey | None:
        """Who a secret stands for; None: nobody. Compares hashes, in constant time."""
        if secret is None:
            return self.anonymous
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
        kept, key = self._keys.get(digest[:16], ("0" * _DIGEST_CHARS, None))
        return key if hmac.compare_digest(kept, digest) else None

    def __len__(self) -> int:
        return len(self._keys)


def load_keys(path: Path | None, bands: tuple[str, ...], *, allow_anonymous: bool) -> KeyRing:
    """Read the file of keys.

    Raises:
        ConfigError: it cannot be read, others may write it, or there is no key and nobody said that none is needed.
    """
    keys = {} if path is None else _read(path, bands)
    if not keys and not allow_anonymous:
        raise ConfigError(
            "the gateway has no API keys",
            f"{path} holds none" if path else "no file of keys is given",
            "make one: llmgw gateway add-key TENANT; or let everybody in: --allow-anonymous",
        )
    band = "normal" if "normal" in bands else bands[0]
    return KeyRing(keys, ApiKey(ANONYMOUS, band) if allow_anonymous else None)


def add_key(path: Path, entry: ApiKey) -> str:
    """Make a key, append its hash to the file, and return the key: it is shown once and kept nowhere.

    Raises:
        ConfigError: the file cannot be written.
    """
    secret = KEY_PREFIX + secrets.token_urlsafe(32)
    lines = [
        "",
        "[[keys]]",
        f'sha256 = "{hashlib.sha256(secret.encode()).hexdigest()}"',
        f"tenant = {_quote(entry.tenant)}",
        f"band = {_quote(entry.band)}",
        f"weight = {entry.weight}",
    ]
    if entry.models is not None:
        lines.append(f"models = [{', '.join(_quote(item) for item in entry.models)}]")
    if entry.is_admin:
        lines.append("admin = true")
    text = "\n".join([*lines, ""])
    _parse(text, path, None)  # what could not be read back is not written
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}", error.strerror or "", "name another") from None
    return secret


def _read(path: Path, bands: tuple[str, ...]) -> dict[str, ApiKey]:
    try:
        if path.stat().st_mode & 0o022:
            raise ConfigError(f"others may write {path}", "", f"chmod go-w {path}")
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(
                f"{path} is too large", f"more than {MAX_BYTES >> 20} MiB", "split it"
            )
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read {path}", why, "llmgw gateway add-key makes one") from None
    return _parse(text, path, bands)


def _parse(text: str, path: Path, bands: tuple[str, ...] | None) -> dict[str, ApiKey]:
    try:
        entries = _File.model_validate(tomllib.loads(text)).keys
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML", str(error), "see docs/gateway.md") from None
    except ValidationError as error:
        # Never the value: it may be a key written there by mistake.
        where = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors(include_input=False)[:3]
        )
        raise ConfigError(f"{path} does not fit", where, "see docs/gateway.md") from None
    for entry in entries:
        if bands is not None and entry.band not in bands:
            raise ConfigError(
                f"{path}: tenant {entry.tenant} has the band {entry.band!r}",
                f"the bands are {', '.join(bands)}",
                "name one of them",
            )
    return {
        entry.sha256: ApiKey(
            entry.tenant,
            entry.band,
            entry.weight,
            None if entry.models is None else tuple(entry.models),
            entry.admin,
        )
        for entry in entries
    }


def _quote(text: str) -> str:
    if '"' in text or "\\" in text or not text.isprintable():
        raise ConfigError(f"{text!a} cannot stand in the file", "", "use plain characters")
    return f'"{text}"'
