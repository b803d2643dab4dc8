"""What the four tables and their details say of a cluster."""

from dataclasses import replace

import pytest

from llmgw_core.domain.engine import EngineExit, EngineState
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu, GpuHealth, PortKind
from llmgw_core.domain.inventory import (
    Contact,
    FleetSnapshot,
    Island,
    Node,
    NodeFault,
    NodeView,
)
from llmgw_tui.present import engines, fabric, gpus, nodes
from llmgw_tui.present.detail import retry_text
from llmgw_tui.present.header import header, tabs
from llmgw_tui.present.pick import engine_under, jump_targets
from llmgw_tui.present.states import (
    engine_cell,
    engine_state,
    gpu_state,
    gpu_strip,
    node_state,
    seen_state,
)
from llmgw_tui.present.table import Key, Row
from llmgw_tui.present.text import Line, Tone, plain, width
from tests.support.fleets import (
    NOW,
    make_busy_gpu,
    make_cluster,
    make_engine,
    make_gpu,
    make_held_gpu,
    make_node,
    make_port,
    make_snapshot,
    make_view,
)


def text_of(lines: tuple[Line, ...]) -> str:
    return "\n".join(plain(value) for value in lines)


def cells_of(row: Row) -> list[str]:
    return [plain(cell) for cell in row.cells]


def cell(row: Row, columns: tuple[object, ...], title: str) -> str:
    titles = [getattr(column, "title", "") for column in columns]
    return plain(row.cells[titles.index(title)])


def node_row(snapshot: FleetSnapshot, name: str) -> Row:
    return next(row for row in nodes.rows(snapshot, NOW) if row.key == (name,))


# --- states


@pytest.mark.parametrize("state", list(EngineState))
def test_every_engine_state_has_a_glyph_and_its_own_word(state: EngineState) -> None:
    look = engine_state(make_engine("e", state))

    assert (look.word, len(look.glyph)) == (state.value, 1)


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (EngineState.READY, "was ready"),
        (EngineState.LOADING, "was loading"),
        (EngineState.FAILED, "failed"),
        (EngineState.STOPPED, "stopped"),
    ],
)
def test_on_a_node_that_is_away_an_engine_was_something(state: EngineState, word: str) -> None:
    assert seen_state(make_engine("e", state), Contact.UNREACHABLE).word == word


def test_a_loading_engine_says_how_far_it_is() -> None:
    engine = make_engine("e", EngineState.LOADING, progress=0.42)

    assert plain(engine_cell(engine, Contact.CONNECTED)) == "◐ loading 42 %"


@pytest.mark.parametrize(
    ("gpu", "shown"),
    [
        (make_gpu(0), "□ free"),
        (make_busy_gpu(0, "chat-1"), "■ engine"),
        (make_held_gpu(0), "▲ held"),
        (make_gpu(0, health=(GpuHealth("throttled", Severity.WARNING, "hot"),)), "▲ warning"),
        (make_gpu(0, health=(GpuHealth("gpu-lost", Severity.ERROR, "off the bus"),)), "✖ fault"),
        (Gpu(index=0), "? unknown"),
    ],
)
def test_gpu_states(gpu: Gpu, shown: str) -> None:
    assert plain(gpu_state(gpu).cell) == shown


def test_a_fault_on_an_engines_gpu_is_not_hidden_by_the_engine() -> None:
    lost = (GpuHealth("ecc-uncorrected", Severity.ERROR, "2 errors"),)

    assert gpu_state(replace(make_busy_gpu(0, "chat-1"), health=lost)).word == "fault"


def test_a_long_strip_counts_what_it_leaves_out() -> None:
    assert plain(gpu_strip(tuple(make_gpu(index) for index in range(20)))) == "□" * 16 + "+4"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("timeout", "◌ timeout"),
        ("refused", "◌ refused"),
        ("dropped", "◌ dropped"),
        ("unreachable", "◌ unreachable"),
        ("host-key-unknown", "✖ host key?"),
        ("host-key-changed", "✖ host key!"),
        ("auth", "✖ no login"),
        ("no-python", "✖ no python"),
        ("disk-full", "✖ disk full"),
        ("home-unwritable", "✖ home r/o"),
        ("protocol", "✖ protocol"),
        ("dns", "✖ no such name"),
    ],
)
def test_a_node_that_is_away_says_why(code: str, shown: str) -> None:
    node = make_node("n1", error=NodeFault(code, "message", "hint"))

    assert plain(node_state(make_view(node, Contact.UNREACHABLE)).cell) == shown


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (make_node("n1"), "● up"),
        (make_node("n1", gpus=()), "● up"),
        (make_node("n1", gpus=(make_held_gpu(0),)), "▲ GPU held"),
        (make_node("n1", error=NodeFault("partial", "nvidia-smi hangs", "")), "▲ partial"),
        (
            make_node(
                "n1",
                gpus=(
                    make_held_gpu(0),
                    make_gpu(1, health=(GpuHealth("gpu-lost", Severity.ERROR, ""),)),
                ),
            ),
            "✖ GPU fault",
        ),
    ],
)
def test_a_node_that_answers_shows_its_worst(node: Node, shown: str) -> None:
    assert plain(node_state(make_view(node)).cell) == shown


# --- nodes


def test_nodes_keep_the_order_of_the_snapshot() -> None:
    names = [row.key[0] for row in nodes.rows(make_cluster(), NOW)]

    assert names == ["gpu1", "gpu2", "gpu3", "gpu10", "gpu11"]


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("STATE", "● up"),
        ("GPUS", "■■□□"),
        ("FREE", "2/4"),
        ("CLASS", "4×h100-80g"),
        ("ENGINES", "● 1 ready"),
        ("FABRIC", "ib 2×400G"),
        ("AGE", "1s"),
    ],
)
def test_row_of_a_serving_node(title: str, shown: str) -> None:
    assert cell(node_row(make_cluster(), "gpu1"), nodes.COLUMNS, title) == shown


def test_a_port_that_is_down_is_marked_in_the_row() -> None:
    row = node_row(make_cluster(), "gpu2")

    assert cell(row, nodes.COLUMNS, "FABRIC") == "ib ▲1/2×400G"


def test_a_node_not_heard_of_yet_claims_nothing() -> None:
    row = node_row(make_cluster(), "gpu11")

    assert cells_of(row)[2:8] == ["—"] * 6


def test_a_node_without_adapters_says_none() -> None:
    assert cell(node_row(make_cluster(), "gpu3"), nodes.COLUMNS, "FABRIC") == "none"


def test_a_node_that_is_away_is_grey_with_the_age_of_what_is_shown() -> None:
    row = node_row(make_cluster(), "gpu10")

    assert row.cells[0][0].tone is Tone.DIM
    assert cell(row, nodes.COLUMNS, "AGE") == "12m"


def test_two_classes_on_a_node_are_both_named() -> None:
    node = make_node("n1", gpus=(make_gpu(0), make_gpu(1), make_gpu(2, gpu_class="l40s-45g")))

    assert nodes.class_text(node) == "2×h100-80g 1×l40s-45g"


def test_engine_counts_follow_an_engines_life_and_leave_out_stopped_ones() -> None:
    states = (EngineState.FAILED, EngineState.READY, EngineState.STOPPED, EngineState.STARTING)

    counts = nodes.engine_counts([make_engine("e", state) for state in states])

    assert plain(counts) == "◔ 1 starting  ● 1 ready  ✖ 1 failed"


@pytest.mark.parametrize(
    "text",
    [
        "◌ what is shown is 12m old, trying again in 14s",
        "✖ gpu10 did not answer within 10 s  [timeout]",
        "→ is it up? try `ssh gpu10`",
    ],
)
def test_the_detail_of_a_node_that_is_away_says_why_and_what_to_do(text: str) -> None:
    assert text in text_of(nodes.detail(make_cluster(), ("gpu10",), NOW))


@pytest.mark.parametrize(
    "text",
    [
        "Ubuntu 24.04.1 LTS, Linux 6.8.0-49-generic",
        "112 CPUs, load 6.2",
        "570.124.06, CUDA 12.8",
        "✖ GPU 1: pid 4411 (python, alice) holds 61 GiB",
        "pid 4411  python  alice  61 GiB  not of llmgw",
        "mlx5_1:1  ▲ down",
        "◐ loading 42 %  coder  /models/coder",
    ],
)
def test_the_detail_of_a_node_tells_all_that_is_known(text: str) -> None:
    assert text in text_of(nodes.detail(make_cluster(), ("gpu2",), NOW))


@pytest.mark.parametrize(
    "text",
    ["none on this node", "no adapter: a single-node island", "press L to launch", "none found"],
)
def test_the_detail_of_a_bare_node_says_what_it_lacks(text: str) -> None:
    node = Node(name="bare")

    assert text in text_of(nodes.detail(make_snapshot(make_view(node)), ("bare",), NOW))


def test_a_node_not_heard_of_yet_shows_no_facts() -> None:
    assert "GPUs" not in text_of(nodes.detail(make_cluster(), ("gpu11",), NOW))


def test_a_node_that_left_the_cluster_is_said_to_have() -> None:
    assert "no longer" in text_of(nodes.detail(make_cluster(), ("gone",), NOW))


@pytest.mark.parametrize(
    ("wait", "text"),
    [(-1.0, "trying again now"), (0.2, "trying again in 1s"), (14.0, "trying again in 14s")],
)
def test_when_it_is_tried_again(wait: float, text: str) -> None:
    view = NodeView(make_node("n1"), Contact.UNREACHABLE, None, NOW + wait)

    assert retry_text(view, NOW) == text


def test_hostile_names_are_cleaned() -> None:
    evil = make_node("n1", island="\x1b]0;owned\x07", driver_version="\x1b[2J")

    shown = text_of(nodes.detail(make_snapshot(make_view(evil)), ("n1",), NOW))

    assert "\x1b" not in shown
    assert "\x07" not in shown


# --- GPUs


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
        (("gpu1", "2"), "an operator would launch on it"),
        (("gpu2", "1"), "not available for a launch"),
        (("gpu2", "1"), "holds 61 GiB and is no engine of llmgw"),
        (("gpu1", "0"), "0 uncorrected since the driver was loaded"),
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


# --- fabric


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

    assert cells_of(row)[:6] == ["gpu3", "no adapter", "", "", "", "single-node island"]


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


def test_an_island_without_gpus_says_so() -> None:
    assert fabric.island_text(Island("n1", None, ("n1",))) == "single-node island, no GPUs"


# --- engines


def test_engines_that_are_over_come_last() -> None:
    over = make_engine("a", EngineState.STOPPED)
    snapshot = make_snapshot(
        make_view(make_node("n1", engines=(over,))),
        make_view(make_node("n2", engines=(make_engine("b"),))),
    )

    assert [row.key for row in engines.rows(snapshot, NOW)] == [
        ("n2", "b-0badcafe"),
        ("n1", "a-0badcafe"),
    ]


@pytest.mark.parametrize(
    ("place", "title", "shown"),
    [
        (0, "STATE", "● ready"),
        (0, "UP", "2h05m"),
        (0, "GPUS", "0,1"),
        (1, "PHASE", "━━━━╌╌╌╌╌╌ 42 % weights"),
        (1, "STATE", "◐ loading"),
        (2, "STATE", "✖ failed"),
        (2, "PHASE", "out-of-memory"),
        (2, "UP", "—"),
    ],
)
def test_engine_cells(place: int, title: str, shown: str) -> None:
    assert cell(engines.rows(make_cluster(), NOW)[place], engines.COLUMNS, title) == shown


def test_an_engine_without_gpus_runs_on_the_cpu() -> None:
    node = make_node("n1", engines=(make_engine("e", gpus=()),))
    row = engines.rows(make_snapshot(make_view(node)), NOW)[0]

    assert cell(row, engines.COLUMNS, "GPUS") == "CPU"


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (EngineExit(code=1, reason="exited"), "exited, code 1"),
        (EngineExit(signal=9, reason="killed"), "killed, signal 9"),
        (EngineExit(code=0, reason="exited"), "exited, code 0"),
        (EngineExit(), "unknown"),
    ],
)
def test_how_an_engine_ended(end: EngineExit, text: str) -> None:
    assert engines.exit_text(end) == text


def test_a_rank_of_several_is_numbered() -> None:
    assert engines.name_text(make_engine("big", rank=1, ranks=4)) == "big 2/4"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (("gpu3", "embed-0badcafe"), "✖ GPU 0 ran out of memory"),
        (("gpu3", "embed-0badcafe"), "→ lower --max-model-len"),
        (("gpu3", "embed-0badcafe"), "exited, code 1"),
        (("gpu1", "chat-0badcafe"), "http://127.0.0.1:8000"),
        (("gpu1", "chat-0badcafe"), "gpu1, GPUs 0, 1"),
        (("gpu1", "chat-0badcafe"), "l opens the whole log"),
        (("gpu1", "gone-1"), "no longer listed on gpu1"),
    ],
)
def test_engine_detail(key: Key, text: str) -> None:
    assert text in text_of(engines.detail(make_cluster(), key, NOW))


def test_an_engine_on_a_node_that_is_away_may_well_be_serving() -> None:
    view = make_view(make_node("n1", engines=(make_engine("e"),)), Contact.UNREACHABLE, 90)

    shown = text_of(engines.detail(make_snapshot(view), ("n1", "e-0badcafe"), NOW))

    assert "last seen 1m ago; it may well be serving" in shown


# --- empty states


@pytest.mark.parametrize("view", [nodes, gpus, fabric, engines])
def test_before_the_first_answer_no_view_claims_that_there_is_nothing(view: object) -> None:
    shown = text_of(view.empty(None))  # type: ignore[attr-defined]

    assert "No nodes" not in shown
    assert "press L" not in shown


def test_an_empty_cluster_says_how_to_name_nodes() -> None:
    assert "--nodes 'gpu[01-16]'" in text_of(nodes.empty(FleetSnapshot(NOW)))


def test_no_engines_says_how_to_launch_one() -> None:
    assert "press L to launch" in text_of(engines.empty(make_snapshot(make_view(make_node("n1")))))


def test_no_engine_is_not_claimed_while_a_node_is_silent() -> None:
    silent = NodeView(Node(name="n2"), Contact.CONNECTING)

    assert "waiting" in text_of(engines.empty(FleetSnapshot(NOW, (silent,))))


def test_nodes_that_are_away_are_named_where_nothing_is_found() -> None:
    away = make_view(make_node("n2"), Contact.UNREACHABLE)

    shown = text_of(engines.empty(make_snapshot(make_view(make_node("n1")), away)))

    assert "press L to launch" in shown
    assert "▲ n2: no answer, so not counted." in shown


# --- header and palette


def test_the_header_sums_up_the_cluster() -> None:
    shown = plain(header(make_cluster(), "prod-a", NOW, 200))

    assert shown == (
        " llmgw  prod-a │ 3/5 nodes up ◌ 1 connecting ▲ 1 away │ 6/10 GPUs free"
        " │ ◐ 1 loading  ● 1 ready  ✖ 1 failed │ 1s ago"
    )


def test_the_header_fits_eighty_cells() -> None:
    assert width(header(make_cluster(), "prod-a", NOW, 80)) <= 80


def test_a_read_only_console_says_so_even_before_the_first_answer() -> None:
    assert "READ-ONLY" in plain(header(None, "prod-a", NOW, 80, read_only=True))


def test_an_old_picture_is_a_warning() -> None:
    value = header(make_cluster(), "prod-a", NOW + 60, 200)

    assert (value[-1].text, value[-1].tone) == ("1m ago", Tone.WARN)


def test_gpus_of_nodes_that_are_away_are_not_counted_as_free() -> None:
    away = make_view(make_node("n1"), Contact.UNREACHABLE)

    assert "GPUs" not in plain(header(make_snapshot(away), "c", NOW, 200))


def test_the_current_tab_is_told_apart_without_colour() -> None:
    assert plain(tabs(("Cluster", "GPUs"), 1)).strip() == "1 Cluster  [2 GPUs]"


@pytest.mark.parametrize(
    ("view", "key", "engine_id"),
    [
        ("engines", ("gpu1", "chat-0badcafe"), "chat-0badcafe"),
        ("gpus", ("gpu1", "1"), "chat-0badcafe"),
        ("gpus", ("gpu1", "2"), None),
        ("cluster", ("gpu2",), "coder-0badcafe"),
        ("cluster", ("gpu3",), None),
        ("fabric", ("gpu1", "mlx5_0", "1"), "chat-0badcafe"),
        ("engines", None, None),
    ],
)
def test_the_engine_under_the_cursor(view: str, key: Key | None, engine_id: str | None) -> None:
    item = engine_under(make_cluster(), view, key)

    assert (item.status.id if item else None) == engine_id


def test_on_a_node_with_two_engines_none_is_meant() -> None:
    node = make_node("n1", engines=(make_engine("a"), make_engine("b")))

    assert engine_under(make_snapshot(make_view(node)), "cluster", ("n1",)) is None


def test_the_palette_knows_nodes_and_engines() -> None:
    texts = [text for text, _, _ in jump_targets(make_cluster())]

    assert "node gpu10" in texts
    assert "engine coder on gpu2" in texts
