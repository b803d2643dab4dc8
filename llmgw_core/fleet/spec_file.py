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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.errors import SpecError

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
        """`launch.toml line 3, key tensor_parallel`, or the flag."""
        if key in self.flags or self.path is None:
            return f"--{key.replace('_', '-')}"
        number = _find_line(self.text, key)
        return f"{self.path}{f' line {number}' if number else ''}, key {key}"


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
        raise SpecError(f"{path} is not TOML", str(error), "mend that line") from None


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
        return adapter.validate_json(json.dumps(merged, default=str))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [str(part) for part in first["loc"]]
        key = path[0] if path else "the whole"
        inner = f" ({'.'.join(path[1:])})" if path[1:] else ""
        raise SpecError(
            f"{where.name(key)}{inner}: {_show(first['input'])} does not fit",
            first["msg"],
            _allowed(key),
        ) from None


def _allowed(key: str) -> str:
    if key == "engine":
        return f"allowed: {', '.join(kind.value for kind in EngineKind)}"
    hints = {field.name: field.type for field in dataclasses.fields(LaunchRequest)}
    kind = getattr(hints.get(key), "__name__", None) or str(hints.get(key)).replace("typing.", "")
    return f"allowed: {kind}"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"  # noqa: PLR2004 - what fits a line


def _find_line(text: str, key: str) -> int | None:
    pattern = re.compile(rf"""\s*(?:\[+\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return number
    return None
