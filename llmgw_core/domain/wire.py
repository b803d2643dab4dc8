"""The wire form of domain types with the standard library alone: JSON-ready values and back, strictly.

`to_jsonable` and `from_jsonable` are each other's inverse for every type of this package. On the operator's side
pydantic's TypeAdapter validates the same types; the node side has only this.
"""

import dataclasses
import json
import math
import typing
from enum import Enum
from functools import lru_cache
from typing import Any, Dict, List, Tuple, Type, TypeVar, Union

T = TypeVar("T")

_PLAIN = frozenset([str, int, float, bool, type(None)])
_FLOAT_LIMIT = 10**308


class WireError(ValueError):
    """A value does not have the shape its type asks for. The text begins with the path, e.g. `gpus.3.index`."""


def to_jsonable(value: Any) -> Any:  # Any: a tree of whatever domain types there are
    """The value as dicts, lists, strings, numbers, booleans and None."""
    kind = type(value)
    if kind in _PLAIN:  # most of a node: an agent passes here a thousand times a second
        return value
    if dataclasses.is_dataclass(kind):
        return {wire: to_jsonable(getattr(value, name)) for name, wire, _ in list_fields(kind)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [to_jsonable(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    return value


def dump_json(value: Any, indent: Union[int, None] = None) -> str:
    """The value as JSON text with sorted keys: the same input gives the same bytes."""
    return json.dumps(to_jsonable(value), sort_keys=True, indent=indent, ensure_ascii=True)


def from_jsonable(cls: Type[T], data: Any, where: str = "") -> T:
    """Build `cls` from JSON values. Unknown keys, missing keys and wrong types are errors.

    Raises:
        WireError: with the path of the first value that does not fit.
    """
    built = build_value(cls, data, where or cls.__name__)
    return typing.cast(T, built)


@lru_cache(maxsize=256)
def list_fields(cls: Any) -> Tuple[Tuple[str, str, Any], ...]:
    """(attribute, wire name, type) of each field, in order."""
    hints = typing.get_type_hints(cls)
    return tuple(
        (item.name, item.metadata.get("wire", item.name), hints[item.name])
        for item in dataclasses.fields(cls)
    )


def build_value(kind: Any, data: Any, where: str) -> Any:
    """A value of a field's type from JSON values; see `from_jsonable`."""
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, data, where)
    generic = {Union: _build_optional, tuple: _build_tuple, dict: _build_dict}
    build = generic.get(typing.get_origin(kind))
    if build is not None:
        return build(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _build_enum(kind, data, where)
    return _build_plain(kind, data, where)


def _build_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise WireError(f"{where}: expected an object, got {_kind(data)}")
    fields = list_fields(kind)
    unknown = sorted(set(data) - {wire for _, wire, _ in fields})
    if unknown:
        raise WireError(
            f"{where}.{unknown[0]}: no such key; known: {', '.join(w for _, w, _ in fields)}"
        )
    values = {
        name: build_value(hint, data[wire], f"{where}.{wire}")
        for name, wire, hint in fields
        if wire in data
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise WireError(f"{where}: {_missing(kind, values) or error}") from None


def _missing(kind: Any, values: Dict[str, Any]) -> str:
    names: List[str] = [
        item.name
        for item in dataclasses.fields(kind)
        if item.name not in values
        and item.default is dataclasses.MISSING
        and item.default_factory is dataclasses.MISSING
    ]
    return f"missing {', '.join(names)}" if names else ""


def _build_optional(kind: Any, data: Any, where: str) -> Any:
    choices = [arg for arg in typing.get_args(kind) if arg is not type(None)]
    if data is None:
        return None
    return build_value(choices[0], data, where)


def _build_tuple(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, (list, tuple)):
        raise WireError(f"{where}: expected a list, got {_kind(data)}")
    item_kind = typing.get_args(kind)[0]
    return tuple(
        build_value(item_kind, item, f"{where}.{number}") for number, item in enumerate(data)
    )


def _build_dict(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise WireError(f"{where}: expected an object, got {_kind(data)}")
    _, item_kind = typing.get_args(kind)
    return {str(key): build_value(item_kind, item, f"{where}.{key}") for key, item in data.items()}


def _build_enum(kind: Type[Enum], data: Any, where: str) -> Any:
    try:
        return kind(data)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise WireError(f"{where}: {data!r} is none of {allowed}") from None


def _build_plain(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        # A whole number too long for a float is as good as an infinite one.
        data = float(data) if abs(data) < _FLOAT_LIMIT else math.inf
    if not isinstance(data, kind) or (kind is not bool and isinstance(data, bool)):
        raise WireError(f"{where}: expected {kind.__name__}, got {_kind(data)}")
    if isinstance(data, float) and not math.isfinite(data):
        raise WireError(f"{where}: expected a finite number")
    return data


def _kind(data: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(
        type(data), type(data).__name__
    )
