"""A saved inventory, read back: what `llmgw inventory --json` printed, today or last week."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw_core.domain.inventory import INVENTORY_SCHEMA, Inventory, Node
from llmgw_core.errors import UsageError
from llmgw_core.planning.fabrics import build_inventory

if TYPE_CHECKING:
    from pydantic import ValidationError

_SHOWN_ERRORS = 3


def load_inventory(path: Path) -> Inventory:
    """Read the document; `-` is stdin. One node, as `llmgw agent inventory --json` prints it, is a document of one.

    Raises:
        UsageError: it cannot be read, is no such document, or of a newer llmgw; says where it does not fit.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot read {path}", why, "name a file of llmgw inventory --json"
        ) from None
    return parse_inventory(text, str(path))


def parse_inventory(text: str, origin: str) -> Inventory:
    """The document in the text.

    Args:
        origin: what to call it in errors.

    Raises:
        UsageError: it does not fit.
    """
    # 120 ms that other commands need not spend.
    from pydantic import TypeAdapter, ValidationError

    try:
        inventory = TypeAdapter(Inventory).validate_json(text)
        _check_schema(inventory.schema, origin)
    except ValidationError as error:
        # Only now read once more, as plain JSON: a document of a large cluster has ten megabytes.
        data = _parse_object(text, origin)
        if "schema" in data:
            _check_schema(data["schema"], origin)
        elif "name" in data:
            return _parse_node(text, origin)
        raise _misfit(error, origin) from None
    return inventory


def _check_schema(schema: object, origin: str) -> None:
    if schema != INVENTORY_SCHEMA:
        raise UsageError(
            f"{origin} is not a document {INVENTORY_SCHEMA}",
            f"its schema is {ascii(schema)[:64]}",
            "write it with this llmgw: llmgw inventory --json",
        )


def _parse_node(text: str, origin: str) -> Inventory:
    from pydantic import TypeAdapter, ValidationError

    try:
        return build_inventory([TypeAdapter(Node).validate_json(text)], "")
    except ValidationError as error:
        raise _misfit(error, origin) from None


def _misfit(error: "ValidationError", origin: str) -> UsageError:
    places = "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'document'}: {item['msg']}"
        for item in error.errors()[:_SHOWN_ERRORS]
    )
    return UsageError(
        f"{origin} does not fit {INVENTORY_SCHEMA}",
        places,
        "llmgw schema inventory prints what is expected",
    )


def _parse_object(text: str, origin: str) -> dict[str, object]:
    import json

    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{origin} is not JSON", str(error), "name another file") from None
    if not isinstance(data, dict):
        raise UsageError(f"{origin} is not an inventory", "it is no JSON object", "name another")
    return data
