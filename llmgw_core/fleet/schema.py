"""What a node says, validated before anything inside believes it: pydantic over the domain's own types."""

import dataclasses
import json
from functools import lru_cache
from typing import Any, TypeVar, cast

from llmgw_core.domain.engine import LogChunk
from llmgw_core.domain.launch import RankPlan
from llmgw_core.errors import ProtocolError
from llmgw_core.fleet.changes import patch
from llmgw_core.fleet.printable import printable

T = TypeVar("T")
_SHOWN_ERRORS = 3
_MAX_WHY_CHARS = 600  # keys of what does not fit are the node's own words


def parse_reply(kind: type[T], data: object, method: str, node: str) -> T:
    """Return the result of a method as `kind`, e.g. `Node` or `tuple[EngineStatus, ...]`.

    Keys that nobody here knows are a newer agent's, and left out; but not of a plan, which would be launched without them.

    Raises:
        ProtocolError: it does not fit; names the method, the node, and the path of what does not fit.
    """
    from pydantic import ValidationError

    if kind is LogChunk:
        return cast(T, _parse_log_chunk(data, method, node))
    try:
        # Through text: only JSON has lists where strict types have tuples. NaN and Infinity are not JSON.
        text = json.dumps(data, allow_nan=False)
        extra = "forbid" if kind is RankPlan else "ignore"
        return cast(T, _adapter(cast(Any, kind)).validate_json(text, extra=extra))
    except ValidationError as error:
        raise misfit(method, _describe(error), node) from None
    except (ValueError, RecursionError) as error:
        raise misfit(method, str(error), node) from None


def parse_changes(known: T, changes: object, method: str, node: str) -> T:
    """Return the value with the changes, validated like `parse_reply`; what did not change is the same object.

    Raises:
        ProtocolError: they do not fit.
    """
    try:
        return patch(known, changes)
    except (ValueError, RecursionError) as error:
        raise misfit(method, str(error), node) from None


def find_strangeness(chunk: LogChunk, offset: int, max_bytes: int) -> str:
    """Say what of a piece of a log cannot be, as it would lead a reader in a circle or without end; "" where all can."""
    size = len(chunk.data.encode("utf-8", "surrogateescape"))
    if size > max(1, max_bytes):
        return f"{size} bytes of data, and {max_bytes} were asked for"
    if not 0 <= chunk.start_offset <= chunk.offset <= chunk.next_offset <= chunk.end_offset:
        return "its offsets are in no order"
    if chunk.next_offset != chunk.offset + size:
        return "the offset of what comes next is not that of its end"
    if 0 <= offset <= chunk.end_offset and chunk.offset < offset:
        return f"it begins at {chunk.offset}, and {offset} was asked for"
    return ""


def misfit(method: str, why: str, node: str) -> ProtocolError:
    """Return the error for an answer that is not what the method promises."""
    return ProtocolError(
        f"the agent's answer to {method} does not fit",
        printable(why, _MAX_WHY_CHARS),
        "agent and console differ, or something else speaks there: stop the node's agent "
        "(engines go on) and connect anew",
        node,
    )


@lru_cache(maxsize=32)
def _adapter(kind: Any) -> Any:  # Any: TypeAdapter, whose import takes 120 ms
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _parse_log_chunk(data: object, method: str, node: str) -> LogChunk:
    """Log bytes come as surrogate escapes, which pydantic's JSON parser refuses: the text is put in afterwards."""
    text = data.get("data") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(text, str):
        raise misfit(method, "data: expected a string", node)
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise misfit(method, f"data: {error.reason}", node) from None
    plain = parse_reply(_PlainChunk, {**data, "data": ""}, method, node)
    return LogChunk(**{**vars(plain), "data": text})


@dataclasses.dataclass(frozen=True)
class _PlainChunk(LogChunk):
    """The same, without the exception made for it."""


def _describe(error: Any) -> str:
    """The first misfits as `path: what`, without the values, which may be anything."""
    found = [
        f"{'.'.join(str(part) for part in item['loc']) or 'the whole'}: {item['msg']}"
        for item in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    more = f"; {len(found) - _SHOWN_ERRORS} more" if len(found) > _SHOWN_ERRORS else ""
    return "; ".join(found[:_SHOWN_ERRORS]) + more
