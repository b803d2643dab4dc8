"""`llmgw schema`: what a document of llmgw looks like, as JSON Schema."""

import json
from typing import Any

from llmgw_core.cli.output import print_result
from llmgw_core.domain.inventory import INVENTORY_SCHEMA, Inventory

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def run_schema(name: str) -> int:
    """Print the schema of that document."""
    print_result(json.dumps(SCHEMAS[name](), indent=2, sort_keys=True))
    return 0


def make_inventory_schema() -> dict[str, Any]:  # Any: a JSON Schema
    """The JSON Schema of `llmgw.inventory/1`; `docs/inventory.md` says what each field means."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Inventory).json_schema(by_alias=True)
    schema["$schema"] = _DIALECT
    schema["title"] = INVENTORY_SCHEMA
    schema["properties"]["schema"]["const"] = INVENTORY_SCHEMA
    return schema


SCHEMAS = {"inventory": make_inventory_schema}
