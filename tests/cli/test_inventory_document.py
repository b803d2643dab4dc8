"""The inventory as a document: its JSON Schema, its page, and reading it back."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.cli.inventory_document import render_inventory
from llmgw_core.cli.schema import make_inventory_schema
from llmgw_core.domain import wire
from llmgw_core.domain.hardware import Gpu, MigInstance, Port, PortNote
from llmgw_core.domain.inventory import Inventory, Node
from llmgw_core.errors import UsageError
from llmgw_core.fleet.inventory_file import load_inventory, parse_inventory
from llmgw_core.planning.fabrics import build_inventory
from tests.support.operator_here import OperatorHere
from tests.test_contract import FULL, KEYS

PAGE = Path(__file__).parents[2] / "docs/inventory.md"


def as_document(inventory: Inventory) -> Any:
    return json.loads(wire.dump_json(inventory))


def test_a_whole_document_fits_the_schema() -> None:
    jsonschema.validate(as_document(FULL), make_inventory_schema())


def test_a_field_that_is_not_there_does_not_fit() -> None:
    document = as_document(FULL)
    document["nodes"][0]["ports"][0]["speed"] = 1

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, make_inventory_schema())


@pytest.mark.slow
def test_this_machines_document_fits_the_printed_schema(operator: OperatorHere) -> None:
    schema = json.loads(operator.run("schema", "inventory").stdout)
    document = json.loads(operator.run("inventory", "--json").stdout)

    jsonschema.validate(document, schema)


@pytest.mark.parametrize("kind", KEYS, ids=lambda kind: str(kind.__name__))
def test_every_field_is_documented(kind: type) -> None:
    page = PAGE.read_text("utf-8")
    section = re.search(rf"^## {kind.__name__}\b.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"no section {kind.__name__}"

    told = set(re.findall(r"^\| `(\w+)` \|", section.group(0), re.MULTILINE))

    assert told == set(KEYS[kind].split())


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    path.write_text(wire.dump_json(FULL), encoding="utf-8")

    assert load_inventory(path) == FULL


def test_one_nodes_own_document_is_an_inventory_of_one() -> None:
    node = FULL.nodes[0]

    found = parse_inventory(wire.dump_json(node), "x")

    assert found.nodes == build_inventory([node], "").nodes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ('{"schema": "llmgw.inventory/9"}', "llmgw.inventory/9"),
        ('{"schema": "llmgw.inventory/1", "generated_at": "x", "nodes": [{}]}', "nodes.0.name"),
    ],
)
def test_what_is_no_inventory_is_refused_with_the_place(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_inventory(text, "saved.json")

    assert words in str(caught.value)


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load_inventory(tmp_path / "none.json")


@given(
    st.text(max_size=200) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(str)
)
def test_any_text_is_an_inventory_or_refused(text: str) -> None:
    try:
        parse_inventory(text, "x")
    except UsageError:
        return


@pytest.mark.slow
def test_a_plan_is_made_by_a_saved_inventory(operator: OperatorHere, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_bytes(operator.run("inventory", "--json").stdout)
    request = operator.launch_words("small")[1:]

    done = operator.run("plan", "--json", "--inventory", str(saved), *request, status=None)

    plan = json.loads(done.stdout)
    assert plan["request"]["name"] == "small"
    assert (done.returncode == 0) == bool(plan["ranks"])


def test_the_table_tells_slices_and_why_active_ports_are_not_used() -> None:
    slices = (
        MigInstance("MIG-1", "1g.18gb", "h200-mig-1g.18gb", available=True),
        MigInstance("MIG-2", "1g.18gb", "h200-mig-1g.18gb", engine="chat-1"),
    )
    unused = Port(hca="mlx5_9", port=1, state="ACTIVE", excluded=PortNote("no-gid", "it has none"))
    down = Port(hca="mlx5_8", port=1, state="DOWN", excluded=PortNote("not-active", "it is DOWN"))
    nodes = [
        Node(f"n{number}", gpus=(Gpu(0, gpu_class="h200-141g", mig_instances=slices),))
        for number in range(6)
    ]
    nodes = [replace(node, ports=(unused, down)) for node in nodes]

    lines = render_inventory(build_inventory(nodes, "now")).splitlines()

    assert "1×h200-141g + 2×h200-mig-1g.18gb" in lines[1]
    assert "0/1 + 1/2 slices" in lines[1]
    assert [line for line in lines if "mlx5" in line] == [
        "n0, n1, n2, n3 and 2 more: port mlx5_9/1 is not used: no-gid: it has none"
    ]
