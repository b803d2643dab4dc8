"""cluster.toml, read and checked. docs/cluster.md describes the file.

[defaults]
user = "ops"
venv = "/opt/vllm"

[[nodes]]
name = "gpu[01-16]"          # a node set
address = "{name}.rack1"     # or a node set of as many addresses; without it: the name
fabric = "rack1"

[[nodes]]
name = "here"
transport = "local"          # this machine, without SSH
"""

import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from llmgw_core.domain.secret_names import is_secret_name
from llmgw_core.domain.units import natural_key
from llmgw_core.errors import ConfigError, UsageError
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.nodesets import MAX_PORT, parse_nodeset

_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*")


def _check_word(value: str) -> str:
    """A word that ends up among a program's arguments: no option, no control characters."""
    if not value or value.startswith("-") or not value.isprintable():
        raise ValueError("must not be empty, begin with a dash, or hold control characters")
    return value


def _check_env(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of an environment variable")
        if is_secret_name(name):
            raise ValueError(
                f"{name} looks like a secret, and this table can be seen in process lists; "
                "a launch takes secrets from your own environment by env_from"
            )
        if not text.isprintable():
            raise ValueError(f"the value of {name} holds control characters")
    return value


def _check_not_empty(value: "list[_Nodes]") -> "list[_Nodes]":
    # Not min_length: pydantic would count a list whose only item is wrong as empty too, and complain twice.
    if not value:
        raise ValueError("a cluster has at least one [[nodes]] table")
    return value


Word = Annotated[str, AfterValidator(_check_word)]
InterfaceName = Annotated[str, Field(pattern=r"^[^\s/:=^,]{1,15}$")]  # without what lists use
PortName = Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]*(:[1-9]\d*)?$")]
PortNumber = Annotated[int, Field(ge=1, le=MAX_PORT)]
Environment = Annotated[dict[str, str], AfterValidator(_check_env)]


class _Reach(BaseModel):
    """What may stand in [defaults] and in each [[nodes]]."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user: Word | None = None
    port: PortNumber | None = None
    python: Word | None = None
    venv: Word | None = None
    fabric: Word | None = None
    exclude_ports: list[PortName] = []
    interface: InterfaceName | None = None
    identity_file: Word | None = None
    jump: Word | None = None
    env: Environment = {}
    transport: Literal["ssh", "openssh", "local"] | None = None


class _Nodes(_Reach):
    """One [[nodes]] table: the nodes of a set, reached alike."""

    name: Word
    address: Word | None = None
    cluster_address: Word | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    defaults: _Reach = _Reach()
    nodes: Annotated[list[_Nodes], AfterValidator(_check_not_empty)]


@dataclass(frozen=True)
class ClusterFile:
    """What a cluster file says: its nodes in natural order, and the defaults for nodes it does not list."""

    targets: tuple[Target, ...]
    defaults: Target


def read_cluster_file(path: Path) -> ClusterFile:
    """Return the content of a cluster file.

    Raises:
        ConfigError: with the file, the line, the key, and what is allowed.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read {path}", str(error), "check the path and its mode"
        ) from error
    return parse_cluster(text, str(path))


def parse_cluster(text: str, origin: str) -> ClusterFile:
    """Return the content of the text of a cluster file; `origin` is named in errors."""
    try:
        content = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{origin}:{line.group(1)}" if line else origin
        raise ConfigError(f"{where} is not TOML", str(error), "see docs/cluster.md") from error
    except ValidationError as error:
        raise _explain(error, text, origin) from error
    targets: dict[str, Target] = {}
    for index, entry in enumerate(content.nodes):
        for target in _expand_entry(entry, content.defaults, _Place(text, origin, index)):
            if target.name in targets:
                raise _Place(text, origin, index).error(
                    "name", f"{target.name} is listed twice", "a node has one [[nodes]] table"
                )
            targets[target.name] = target
    ordered = sorted(targets.values(), key=lambda target: natural_key(target.name))
    return ClusterFile(tuple(ordered), _to_target(content.defaults, _Reach(), "", None))


@dataclass(frozen=True)
class _Place:
    """The [[nodes]] table that an error is about."""

    text: str
    origin: str
    index: int

    def error(self, key: str, why: str, fix: str) -> ConfigError:
        line = find_line(self.text, ("nodes", self.index, key))
        return ConfigError(f"{self.origin}:{line}: nodes[{self.index}].{key}", why, fix)


def _expand_entry(entry: _Nodes, defaults: _Reach, place: _Place) -> Iterator[Target]:
    names = _nodeset(entry.name, "name", place)
    is_local = (entry.transport or defaults.transport) == "local"
    if is_local and entry.address is not None:
        raise place.error("address", "transport is local", "a local node has no address")
    addresses = (None,) * len(names) if is_local else _addresses(entry, names, place)
    clusters = _cluster_addresses(entry, len(names), place)
    for name, address, cluster in zip(names, addresses, clusters, strict=True):
        yield replace(_to_target(entry, defaults, name, address), cluster_address=cluster)


def _cluster_addresses(entry: _Nodes, count: int, place: _Place) -> tuple[str | None, ...]:
    if entry.cluster_address is None:
        return (None,) * count
    text = entry.cluster_address
    found = _nodeset(text, "cluster_address", place) if "[" in text or "," in text else (text,)
    if len(found) != count:
        why = f"{len(found)} addresses for {count} nodes"
        raise place.error("cluster_address", why, 'write a set of as many, as "10.0.0.[1-16]"')
    for address in found:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            why = f"{address!r} is no IP address"
            raise place.error(
                "cluster_address", why, "ranks meet by address, not by name"
            ) from None
    return tuple(str(ipaddress.ip_address(address)) for address in found)


def _addresses(entry: _Nodes, names: tuple[str, ...], place: _Place) -> tuple[str, ...]:
    template = entry.address or "{name}"
    if "{name}" in template:
        found = tuple(template.replace("{name}", name) for name in names)
    elif "[" in template or "," in template:
        found = _nodeset(template, "address", place)
    else:
        found = (template,)
    if len(found) != len(names):
        raise place.error(
            "address",
            f"{len(found)} addresses for {len(names)} nodes",
            'write a set of as many addresses, or a template such as "{name}.example.org"',
        )
    for address in found:
        if not _SIMPLE_HOST.fullmatch(address):
            raise place.error("address", f"{address!r} is no host name or address", "")
    return found


def _nodeset(text: str, key: str, place: _Place) -> tuple[str, ...]:
    try:
        return parse_nodeset(text)
    except UsageError as error:
        raise place.error(key, error.message, error.fix) from error


def _to_target(entry: _Reach, defaults: _Reach, name: str, address: str | None) -> Target:
    """`entry` over `defaults`; the environment of both is merged."""
    return Target(
        name=name,
        address=address,
        user=entry.user or defaults.user,
        port=entry.port or defaults.port,
        python=entry.python or defaults.python,
        venv=entry.venv or defaults.venv,
        fabric=entry.fabric or defaults.fabric,
        exclude_ports=tuple(dict.fromkeys((*defaults.exclude_ports, *entry.exclude_ports))),
        interface=entry.interface or defaults.interface,
        identity_file=entry.identity_file or defaults.identity_file,
        jump=entry.jump or defaults.jump,
        transport=entry.transport or defaults.transport,
        env={**defaults.env, **entry.env},
    )


def _explain(error: ValidationError, text: str, origin: str) -> ConfigError:
    """The first complaint, with its line and what is allowed; the number of the others."""
    complaints = error.errors(include_url=False, include_input=False)
    # A mistyped key also makes the right one missing: the typo is the one to name.
    first, *others = sorted(complaints, key=lambda one: one["type"] != "extra_forbidden")
    location = tuple(first["loc"])
    more = f"; {len(others)} more after it" if others else ""
    line = find_line(text, location)
    why = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        why = "no such key"
    return ConfigError(
        f"{origin}:{line}: {_dotted(location)}", f"{why}{more}", _allowed(location, first)
    )


def _dotted(location: tuple[int | str, ...]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).lstrip(".") or "the file"


def _allowed(location: tuple[int | str, ...], complaint: Mapping[str, object]) -> str:
    if complaint["type"] not in {"extra_forbidden", "missing"}:
        return "see docs/cluster.md"
    models: dict[str, type[BaseModel]] = {"defaults": _Reach, "nodes": _Nodes}
    model = models.get(str(location[0]), _File) if location[1:] else _File
    return f"known keys here: {', '.join(model.model_fields)}"


def find_line(text: str, location: tuple[int | str, ...]) -> int:
    """Return the 1-based line of a key, else of its table, else 1; tomllib keeps no positions.

    Location: ("nodes", 2, "port") is `port` in the third [[nodes]]; ("nodes", 2) its header; ("typo",) a top-level key.
    """
    lines = text.splitlines()
    words = [part for part in location if isinstance(part, str)]
    index = next((part for part in location if isinstance(part, int)), 0)
    headers = {n: m.group(1) for n, line in enumerate(lines) if (m := _HEADER.match(line))}
    if not location[1:]:
        top = range(min(headers, default=len(lines)))
        spots = _lines_of_key(lines, top, words[0]) if words else []
        spots += [n for n, header in headers.items() if header.split(".")[0] in words]
        return spots[0] + 1 if spots else 1
    starts = [n for n, header in headers.items() if header == words[0]]
    if index >= len(starts):
        return 1  # written inline
    begin = starts[index]
    after = [n for n, h in headers.items() if n > begin and not h.startswith(f"{words[0]}.")]
    span = range(begin, min(after, default=len(lines)))
    key = words[1] if len(words) > 1 else ""
    spots = _lines_of_key(lines, span, key) if key else []
    spots += [n for n in span if headers.get(n) == f"{words[0]}.{key}"]
    return (spots[0] if spots else begin) + 1


def _lines_of_key(lines: list[str], span: range, key: str) -> list[int]:
    pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]")
    return [n for n in span if pattern.match(lines[n])]
