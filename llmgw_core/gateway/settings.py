"""gateway.toml, read and checked; the command line's words win over it. docs/gateway.md describes each field."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from llmgw_core.errors import ConfigError
from llmgw_core.gateway.gate import QueueSettings

DEFAULT_PORT = 8080
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise ValueError("an engine is http://HOST:PORT or https://HOST:PORT")
    return value.rstrip("/").removesuffix("/v1")


Url = Annotated[str, AfterValidator(_check_url)]
Seconds = Annotated[float, Field(gt=0, le=86400)]
Number = Annotated[int, Field(ge=1, le=1_000_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EngineEntry(_Strict):
    """One engine given by its URL."""

    url: Url
    slots: Number | None = None
    model: str | None = None  # known before it answers
    api_key_file: Path | None = None


class _Queue(_Strict):
    bands: list[str] = ["high", "normal", "low"]
    waiting: Annotated[int, Field(ge=0, le=10_000_000)] = 512
    waiting_per_band: int | None = None
    waiting_per_tenant: int | None = None
    waiting_mib: Number = 256
    timeout_s: Seconds = 60.0
    floor_every: Annotated[int, Field(ge=0)] = 16
    by_tokens: bool = True


class _File(_Strict):
    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    keys: Path | None = None
    allow_anonymous: bool = False
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    access_log: str = "-"
    admin_socket: Path | None = None
    open_metrics: bool = False
    slots: Number = 128
    max_body_mib: Number = 32
    held_body_mib: Number = 1024
    body_timeout_s: Seconds = 60.0
    head_timeout_s: Seconds = 30.0
    stall_timeout_s: Seconds = 300.0
    drain_s: Seconds = 60.0
    prefix_affinity: bool = False
    queue: _Queue = _Queue()
    engines: list[EngineEntry] = []


@dataclass(frozen=True)
class Settings:
    """What one gateway was told."""

    host: str
    port: int
    keys: Path | None
    allow_anonymous: bool
    tls_certificate: Path | None
    tls_key: Path | None
    access_log: str  # "-": stdout, "off", or a file
    admin_socket: Path | None  # None: the usual place
    open_metrics: bool  # /metrics without a key
    slots: int  # of an engine that says no other number
    max_body_bytes: int
    held_body_bytes: int  # of all requests together
    body_timeout_s: float
    head_timeout_s: float
    stall_timeout_s: float
    drain_s: float
    prefix_affinity: bool
    queue: QueueSettings
    engines: tuple[EngineEntry, ...] = field(default=())

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in _LOOPBACK


def load_settings(path: Path | None, changes: dict[str, Any] | None = None) -> Settings:
    """Read the file, with changes from the command line: `{"listen": …, "queue": {"waiting": …}}`; None: not given.

    Raises:
        ConfigError: names the file, the key, and what is allowed.
    """
    data: dict[str, Any] = {}
    origin = "the command line"
    if path is not None:
        origin = str(path)
        try:
            data = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot read {path}", why, "see docs/gateway.md") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML", str(error), "see docs/gateway.md") from None
    _merge(data, changes or {})
    try:
        read = _File.model_validate(data)
    except ValidationError as error:
        where = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors(include_input=False)[:3]
        )
        raise ConfigError(f"{origin} does not fit", where, "see docs/gateway.md") from None
    return _build(read)


def _merge(data: dict[str, Any], changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        if isinstance(value, dict):
            inner = data.setdefault(name, {})
            if isinstance(inner, dict):
                _merge(inner, value)
        elif value is not None:
            data[name] = value


def _build(read: _File) -> Settings:
    host, port = _split_address(read.listen)
    if (read.tls_certificate is None) != (read.tls_key is None):
        raise ConfigError("TLS needs two files", "one is given", "tls_certificate and tls_key")
    urls = [engine.url for engine in read.engines]
    if len(set(urls)) != len(urls):
        raise ConfigError("an engine is named twice", ", ".join(sorted(urls)), "keep one of them")
    queue = read.queue
    if not queue.bands or len(set(queue.bands)) != len(queue.bands):
        raise ConfigError("queue.bands must be different names", "", "as high, normal, low")
    return Settings(
        host=host,
        port=port,
        keys=read.keys,
        allow_anonymous=read.allow_anonymous,
        tls_certificate=read.tls_certificate,
        tls_key=read.tls_key,
        access_log=read.access_log,
        admin_socket=read.admin_socket,
        open_metrics=read.open_metrics,
        slots=read.slots,
        max_body_bytes=read.max_body_mib << 20,
        held_body_bytes=read.held_body_mib << 20,
        body_timeout_s=read.body_timeout_s,
        head_timeout_s=read.head_timeout_s,
        stall_timeout_s=read.stall_timeout_s,
        drain_s=read.drain_s,
        prefix_affinity=read.prefix_affinity,
        queue=QueueSettings(
            bands=tuple(queue.bands),
            waiting=queue.waiting,
            waiting_per_band=queue.waiting_per_band,
            waiting_per_tenant=queue.waiting_per_tenant,
            waiting_bytes=queue.waiting_mib << 20,
            timeout_s=queue.timeout_s,
            floor_every=queue.floor_every,
            by_tokens=queue.by_tokens,
        ),
        engines=tuple(read.engines),
    )


def _split_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the last port
        raise ConfigError(f"listen = {text!r} is no address", "", "write HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)
