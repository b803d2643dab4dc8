"""What changed between two values of one domain type, in wire form: a node in use changes in few of its fields each second.

Changes are an object with the wire names of the fields that differ. A field that is itself an object holds its changes; a list
of objects that kept its length holds them by index; any other field holds its whole new value. The console's side of it is
`fleet/changes.py`.
"""

import dataclasses
import typing
from typing import Any, Dict, TypeVar

from llmgw_core.domain.wire import list_fields, to_jsonable

T = TypeVar("T")


def diff(old: T, new: T) -> Dict[str, Any]:
    """The changes that make `new` of `old`; empty when they are equal."""
    changes: Dict[str, Any] = {}
    if old is not new:
        cls: Any = type(new)
        for name, wire, kind in list_fields(cls):
            before, after = getattr(old, name), getattr(new, name)
            if before is not after and before != after:
                changes[wire] = _diff_field(kind, before, after)
    return changes


def _diff_field(kind: Any, before: Any, after: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return diff(before, after)
    if is_list_of_objects(kind) and len(before) == len(after):
        pairs = enumerate(zip(before, after))
        return {str(place): diff(was, now) for place, (was, now) in pairs if was != now}
    return to_jsonable(after)


def is_list_of_objects(kind: Any) -> bool:
    """Whether a field of this type is told by the changes of its items."""
    return typing.get_origin(kind) is tuple and dataclasses.is_dataclass(typing.get_args(kind)[0])
