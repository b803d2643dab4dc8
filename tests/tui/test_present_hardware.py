"""What the GPU and fabric tables and their details say."""

from dataclasses import replace

import pytest

from llmgw_core.domain.hardware import Gpu, PortKind, PortNote
from llmgw_core.domain.inventory import (
    Island,
)
from llmgw_tui.present import fabric, gpus
from llmgw_tui.present.table import Key
from llmgw_tui.present.text import plain
from tests.support.cells import cell, cells_of, text_of
from tests.support.fleets import (
    NOW,
    make_cluster,
    make_held_gpu,
    make_node,
    make_port,
    make_snapshot,
    make_view,
)


def test_every_gpu_of_every_node_has_a_row() -> None:
    keys = [row.key for row in gpus.rows(make_cluster(), NOW)]

    assert len(keys) == 14
    assert keys[4] == ("gpu2", "0")


@pytest.mark.parametrize(
    ("place", "title", "shown"),
    [
        (0, "STATE", "■ engine"),
        (0, "HELD BY", "chat-0badcafe"),
        (0, "USED/TOTAL", "73/80 GiB"),
        (0, "POWER", "512/700 W"),
        (0, "MEMORY", "━━━━━━━━━╌"),
        (2, "HELD BY", ""),
        (5, "STATE", "▲ held"),
        (5, "HELD BY", "python (alice)"),
    ],
)
def test_gpu_cells(place: int, title: str, shown: str) -> None:
    row = gpus.rows(make_cluster(), NOW)[place]

    assert cell(row, gpus.COLUMNS, title) == shown


def test_a_gpu_of_which_nothing_is_known_claims_nothing() -> None:
    row = gpus.rows(make_snapshot(make_view(make_node("n1", gpus=(Gpu(index=0),)))), NOW)[0]

    assert cells_of(row)[3:9] == ["—", "··········", "—/— GiB", "—", "—", "—/— W"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (("gpu1", "2"), "free: a launch would take it"),
        (("gpu2", "1"), "not available: its health forbids it: memory-held"),
        (("gpu2", "1"), "holds 61 GiB and is no engine of llmgw"),
        (("gpu1", "0"), "0 uncorrected since the driver was loaded"),
        (("gpu1", "0"), "not available: engine chat-0badcafe holds it"),
        (("gpu1", "2"), "  none"),
        (("gpu9", "9"), "no longer there"),
    ],
)
def test_gpu_detail(key: Key, text: str) -> None:
    assert text in text_of(gpus.detail(make_cluster(), key, NOW))


def test_a_process_whose_owner_is_hidden_says_so() -> None:
    held = make_held_gpu(0)
    hidden = replace(held, processes=(replace(held.processes[0], user=None, name=None),))
    snapshot = make_snapshot(make_view(make_node("n1", gpus=(hidden,))))

    shown = text_of(gpus.detail(snapshot, ("n1", "0"), NOW))

    assert "name not visible  owner not visible" in shown


def test_every_port_has_a_row_and_a_node_without_any_has_one_too() -> None:
    keys = [row.key for row in fabric.rows(make_cluster(), NOW)]

    assert keys[:5] == [
        ("gpu1", "mlx5_0", "1"),
        ("gpu1", "mlx5_1", "1"),
        ("gpu2", "mlx5_0", "1"),
        ("gpu2", "mlx5_1", "1"),
        ("gpu3",),
    ]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "● up"),
        ({"state": "DOWN"}, "▲ down"),
        ({"state": "INIT"}, "▲ init"),
        ({"state": None}, "? unknown"),
    ],
)
def test_port_states(changes: dict[str, object], shown: str) -> None:
    assert plain(fabric.state_cell(make_port(0, **changes))) == shown


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (PortKind.INFINIBAND, "ib"),
        (PortKind.ROCE, "roce"),
        (PortKind.SOFT_ROCE, "soft-roce"),
        (PortKind.UNKNOWN, "?"),
    ],
)
def test_port_kinds(kind: PortKind, shown: str) -> None:
    node = make_node("n1", ports=(make_port(0, kind=kind),))
    row = fabric.rows(make_snapshot(make_view(node)), NOW)[0]

    assert cell(row, fabric.COLUMNS, "KIND") == shown


def test_a_node_without_adapters_is_a_single_node_island() -> None:
    row = fabric.rows(make_cluster(), NOW)[4]

    assert cells_of(row)[:8] == ["gpu3", "no adapter", *[""] * 5, "single-node island"]


def test_a_node_not_heard_of_is_not_said_to_lack_adapters() -> None:
    assert cells_of(fabric.rows(make_cluster(), NOW)[-1])[1] == "not known yet"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (("gpu1", "mlx5_0", "1"), "LinkUp, 400Gb/s"),
        (("gpu1", "mlx5_0", "1"), "▸ ib-fe80000000000000  infiniband  gpu1, gpu2, gpu10"),
        (("gpu1", "mlx5_0", "1"), "3 nodes, 12×h100-80g"),
        (("gpu3",), "no InfiniBand or RoCE adapter"),
        (("gpu3",), "▸ gpu3  single-node island, 2×l40s-45g"),
    ],
)
def test_fabric_detail(key: Key, text: str) -> None:
    assert text in text_of(fabric.detail(make_cluster(), key, NOW))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"usable": True}, "engines  use it: it is in NCCL_IB_HCA"),
        (
            {"excluded": PortNote("no-gid", "it has no address that routes")},
            "engines  ▲ do not use it: it has no address that routes  [no-gid]",
        ),
        (
            {"suspect": PortNote("slower", "half as fast as others")},
            "half as fast as others  [slower]",
        ),
        ({"uverbs": "uverbs0", "uverbs_access": "EACCES"}, "▲ uverbs0 cannot be opened: EACCES"),
    ],
)
def test_the_detail_of_a_port_says_whether_engines_use_it(
    changes: dict[str, object], text: str
) -> None:
    snapshot = make_snapshot(make_view(make_node("n1", ports=(make_port(0, **changes),))))

    assert text in text_of(fabric.detail(snapshot, ("n1", "mlx5_0", "1"), NOW))


def test_an_island_without_gpus_says_so() -> None:
    assert fabric.island_text(Island("n1", None, ("n1",))) == "single-node island, no GPUs"
