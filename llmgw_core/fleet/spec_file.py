"""A launch spec: TOML and flags → LaunchRequest. The keys are LaunchRequest's fields.

name = "llama"
engine = "vllm"                    # or "sglang"
model = "/models/Llama-3.1-70B"
tensor_parallel = 4
env_from = ["HF_TOKEN"]            # secrets come from your own environment

[env]
VLLM_LOGGING_LEVEL = "INFO"
"""

import dataclasses
import difflib
import json
import re
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.errors import SpecError

_ALLOWED: dict[object, str] = {
    str: 'a text in quotes, e.g. "x"',
    str | None: 'a text in quotes, e.g. "x"',
    int: "a whole number",
    int | None: "a whole number",
    float: "a number",
    float | None: "a number",
    bool: "true or false",
    typing.Tuple[str, ...]: 'a list of texts, e.g. ["a", "b"]',
    typing.Tuple[int, ...]: "a list of whole numbers, e.g. [0, 1]",
    typing.Dict[str, str]: 'a table of texts, e.g. OMP_NUM_THREADS = "8"',
}

FIELDS = tuple(field.name for field in dataclasses.fields(LaunchRequest))


def load_request(path: Path | None, flags: Mapping[str, object]) -> LaunchRequest:
    """Return the request of a spec file with flags over it; either may be absent.

    Args:
        flags: by field name; None means not given.

    Raises:
        SpecError: with the file, the line, the key, and what is allowed.
    """
    text = _read(path) if path is not None else ""
    spec = _parse(text, path)
    given = {name: value for name, value in flags.items() if value is not None}
    merged: dict[str, Any] = {**spec, **given}
    spec_env, flag_env = spec.get("env"), given.get("env")
    if isinstance(spec_env, dict) and isinstance(flag_env, dict):
        merged["env"] = {**spec_env, **flag_env}
    where = _Places(path, text, frozenset(given))
    _check_keys(merged, where)
    return _validate(merged, where)


@dataclasses.dataclass(frozen=True)
class _Places:
    """Where a key was written, for errors."""

    path: Path | None
    text: str
    flags: frozenset[str]

    def name(self, key: str) -> str:
        """`launch.toml:3: tensor_parallel`, or the flag."""
        if key in self.flags or self.path is None:
            return f"--{key.replace('_', '-')}"
        return f"{self.path}:{find_line(self.text, key) or 1}: {key}"


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise SpecError(
            f"the spec {path} cannot be read", error.strerror or str(error), "name a readable file"
        ) from None
    except UnicodeDecodeError as error:
        raise SpecError(f"the spec {path} is not UTF-8", str(error), "save it as UTF-8") from None


def _parse(text: str, path: Path | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"\(at line (\d+)", str(error))
        place = f"{path}:{where.group(1)}" if where else str(path)
        raise SpecError(f"{place} is not TOML", str(error), "mend that line") from None


def _check_keys(merged: Mapping[str, object], where: _Places) -> None:
    for key in merged:
        if key not in FIELDS:
            near = difflib.get_close_matches(key, FIELDS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise SpecError(
                f"{where.name(key)}: no such key", "", f"{hint}known: {', '.join(FIELDS)}"
            )
    for key in ("name", "engine", "model"):
        if key not in merged:
            source = f"{where.path} has no {key}" if where.path else f"--{key} is missing"
            raise SpecError(source, "a launch needs name, engine and model", f"add {key}")


def _validate(merged: Mapping[str, object], where: _Places) -> LaunchRequest:
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(LaunchRequest)
    try:
        # Through JSON text, where strict types take lists for tuples and strings for enums.
        # A date is no value of any key: as an object it fits nowhere.
        return adapter.validate_json(json.dumps(merged, default=lambda value: {"date": str(value)}))
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        path = [str(part) for part in first["loc"]]
        key = path[0] if path else "the whole"
        inner = f" ({'.'.join(path[1:])})" if path[1:] else ""
        # What stands in an environment may be a secret, whatever its name.
        seen = "the value" if key == "env" else _show(first["input"])
        more = f"; {len(others)} more after it" if others else ""
        raise SpecError(
            f"{where.name(key)}{inner}: {seen} does not fit",
            f"{first['msg']}{more}",
            _allowed(key, first["input"]),
        ) from None


def _allowed(key: str, value: object) -> str:
    """What may stand there, in TOML's words."""
    if key == "engine":
        kinds = [kind.value for kind in EngineKind]
        near = difflib.get_close_matches(str(value).lower(), kinds, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        return f"{hint}allowed: {', '.join(kinds)}"
    kind = typing.get_type_hints(LaunchRequest).get(key)
    return f"allowed: {_ALLOWED.get(kind, 'see docs/cli.md')}"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"  # noqa: PLR2004 - what fits a line


def find_line(text: str, key: str) -> int | None:
    """Return the 1-based line of a top-level key or of its table, e.g. `env = …`, `[env]`; tomllib keeps no positions."""
    pair = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""")
    header = re.compile(rf"""\s*\[+\s*["']?{re.escape(key)}["']?\s*[.\]]""")
    is_top = True
    for number, line in enumerate(text.splitlines(), 1):
        if header.match(line) or (is_top and pair.match(line)):
            return number
        # A key of the same name within a table is another key. An array over several lines begins with a blank.
        is_top = is_top and not line.startswith("[")
    return None
