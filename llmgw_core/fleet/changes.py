"""A node's changes as its agent tells them (`domain/delta.py`), put on what was known of it."""

import dataclasses
import json
import typing
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, TypeVar

from llmgw_core.domain.delta import is_list_of_objects
from llmgw_core.domain.wire import WireError, build_value, list_fields

T = TypeVar("T")
_PLAIN = frozenset([str, int, float, bool, type(None)])


class _Field(NamedTuple):
    name: str
    kind: Any
    is_object: bool
    is_list: bool  # of objects
    plain: frozenset[type]  # of its values, where they are plain


def patch(old: T, changes: Any, where: str = "") -> T:
    """`old` with the changes, which are checked as strictly as a whole value is. What did not change is the same object.

    Keys that nobody here knows are a newer agent's, and left out.

    Raises:
        WireError: with the path of the first change that does not fit.
    """
    kind: Any = type(old)
    where = where or kind.__name__
    if not isinstance(changes, dict):
        raise WireError(f"{where}: expected an object of changes")
    fields = _fields_of(kind)
    values: dict[str, Any] = {}
    for wire, data in changes.items():
        field = fields.get(wire)
        if field is None:
            continue
        if type(data) in field.plain and _is_sound(data):
            values[field.name] = data
        else:
            before = getattr(old, field.name)
            values[field.name] = _patch_field(field, before, data, f"{where}.{wire}")
    if not values:
        return old
    return with_values(old, **values)


def with_values(old: T, **values: object) -> T:
    """`old`, a plain frozen dataclass, with other values in these fields. dataclasses.replace() takes ten times as long."""
    kind: Any = type(old)
    new: T = object.__new__(kind)
    new.__dict__.update(old.__dict__, **values)
    return new


def _patch_field(field: _Field, before: Any, data: Any, where: str) -> Any:
    if field.is_object:
        return patch(before, data, where)
    if not field.is_list or not isinstance(data, dict):
        if not _is_text(json.dumps(data, ensure_ascii=False)):
            raise WireError(f"{where}: it is no text")
        return build_value(field.kind, _drop_unknown(field.kind, data), where)
    items = list(before)
    for place, changes in data.items():
        if not place.isdecimal() or int(place) >= len(items):
            raise WireError(f"{where}.{place}: there are {len(items)}")
        items[int(place)] = patch(items[int(place)], changes, f"{where}.{place}")
    return tuple(items)


def _drop_unknown(kind: Any, data: Any) -> Any:
    """The data without keys that the types do not have."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(data, dict):
        fields = _fields_of(kind)
        return {
            key: _drop_unknown(fields[key].kind, value)
            for key, value in data.items()
            if key in fields
        }
    inner = [arg for arg in typing.get_args(kind) if arg not in (type(None), ...)]
    if not inner or data is None:
        return data
    if isinstance(data, list):
        return [_drop_unknown(inner[0], item) for item in data]
    if typing.get_origin(kind) is dict and isinstance(data, dict):
        return {key: _drop_unknown(inner[-1], item) for key, item in data.items()}
    return _drop_unknown(inner[0], data) if typing.get_origin(kind) is typing.Union else data


def _is_sound(data: object) -> bool:
    """What JSON as Python reads it may hold and pydantic would refuse is looked at once more."""
    if type(data) is float:
        return isfinite(data)
    return type(data) is not str or _is_text(data)


def _is_text(data: str) -> bool:
    if data.isascii():
        return True
    try:
        data.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


@lru_cache(maxsize=256)
def _fields_of(cls: Any) -> dict[str, _Field]:
    """By wire name."""
    return {wire: _describe(name, kind) for name, wire, kind in list_fields(cls)}


def _describe(name: str, kind: Any) -> _Field:
    args = typing.get_args(kind)
    kinds = frozenset(args if type(None) in args else [kind])
    plain = kinds if kinds <= _PLAIN else frozenset()
    return _Field(name, kind, dataclasses.is_dataclass(kind), is_list_of_objects(kind), plain)
