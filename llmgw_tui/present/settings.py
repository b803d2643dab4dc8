"""The less usual fields of a launch, as words of one line: `max_model_len=4096 quantization=fp8 env.OMP_NUM_THREADS=8`. Pure."""

import dataclasses
import shlex
import typing
from difflib import get_close_matches
from typing import Any

from llmgw_core.domain.launch import LaunchRequest

# Those that have a place of their own in the form.
_ELSEWHERE = frozenset(
    {
        *("name", "engine", "model", "node", "nodes", "node_count", "gpus", "gpu_count"),
        *("gpu_class", "tensor_parallel", "port", "venv", "args", "verify", "env"),
    }
)
SETTINGS = tuple(
    item.name for item in dataclasses.fields(LaunchRequest) if item.name not in _ELSEWHERE
)
_HINTS = typing.get_type_hints(LaunchRequest)
_ENV = "env."


def read_settings(text: str) -> dict[str, Any]:
    """The fields of LaunchRequest that the words set.

    Raises:
        ValueError: a word that is none; the text says what is allowed.
    """
    found: dict[str, Any] = {}
    env: dict[str, str] = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word}: write name=value")
        if name.startswith(_ENV) and len(name) > len(_ENV):
            env[name.removeprefix(_ENV)] = value
        elif name in SETTINGS:
            found[name] = _convert(name, value)
        else:
            near = get_close_matches(name, SETTINGS, 1)
            hint = (
                f"did you mean {near[0]}?" if near else f"there are env.NAME, {', '.join(SETTINGS)}"
            )
            raise ValueError(f"{name}: no such setting; {hint}")
    return {**found, "env": env} if env else found


def _convert(name: str, value: str) -> Any:
    kinds = (_HINTS[name], *typing.get_args(_HINTS[name]))
    if bool in kinds:
        if value not in ("true", "false"):
            raise ValueError(f"{name}: true or false")
        return value == "true"
    if typing.get_origin(_HINTS[name]) is tuple:
        return tuple(item for item in value.split(",") if item)
    try:
        if int in kinds:
            return int(value)
        return float(value) if float in kinds else value
    except ValueError:
        kind = "a whole number" if int in kinds else "a number"
        raise ValueError(f"{name}: {kind}") from None
