"""The past as small bars: as wide as it is long, nothing drawn where nothing is known."""

from dataclasses import replace

import pytest

from llmgw_core.domain.hardware import Gpu, Host, Port
from llmgw_core.domain.inventory import Contact, FleetSnapshot, Node, NodeView
from llmgw_core.fleet.history import SLOT_S, NodeHistory
from llmgw_tui.present import fabric, gpus, nodes
from llmgw_tui.present.text import plain
from llmgw_tui.present.trend import spark
from llmgw_tui.present.units import format_gbps

GPU = Gpu(0, uuid="GPU-a", memory_total_mib=1000, memory_used_mib=500, utilization_percent=0)
PORT = Port("mlx5_0", 1, rx_gbps=12.34, tx_gbps=0.0, error_rates={"link_downed": 0.1})
NODE = Node("n1", gpus=(GPU,), ports=(PORT,))


def view(seconds: int) -> NodeView:
    history = NodeHistory()
    for at in range(0, seconds, 2):
        busy = replace(GPU, utilization_percent=100 if at >= seconds / 2 else 0)
        history.record(replace(NODE, gpus=(busy,)), float(at))
    return NodeView(NODE, Contact.CONNECTED, 0.0, history=history)


def text(lines: object) -> str:
    assert isinstance(lines, tuple)
    return "\n".join(plain(line) for line in lines)


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ((0.0, 50.0, 100.0), "▁▅█"),
        ((None, 0.0, None), "·▁·"),
        ((500.0, -1.0), "█▁"),
        ((), ""),
    ],
)
def test_bars(values: tuple[float | None, ...], bars: str) -> None:
    assert spark(values, 100.0) == bars


def test_more_values_than_cells_are_drawn_as_means() -> None:
    assert spark([0.0, 100.0] * 40, 100.0, 4) == "▅▅▅▅"


def test_scale_without_a_top_draws_the_floor() -> None:
    assert spark([0.0, 0.0], 0.0) == "▁▁"


def test_gpu_shows_its_past_and_how_long_that_is() -> None:
    shown = text(gpus.detail(FleetSnapshot(0.0, (view(60),)), ("n1", "0"), 0.0))

    assert "Last 1m  as this console saw it" in shown
    assert "load     ▁▁▁▁▁▁██████" in shown
    assert "up to 100 %" in shown


def test_node_shows_the_past_of_its_host_and_the_room_for_models() -> None:
    host = Host(
        cpu_percent=50.0,
        model_cache="/models/hub",
        model_cache_total_bytes=2 << 40,
        model_cache_free_bytes=1 << 40,
    )
    history = NodeHistory()
    history.record(replace(NODE, host=host), 0.0)
    busy = NodeView(replace(NODE, host=host), Contact.CONNECTED, 0.0, history=history)
    dead = replace(busy, node=replace(NODE, host=replace(host, model_cache_free_bytes=None)))

    shown = text(nodes.detail(FleetSnapshot(0.0, (busy,)), ("n1",), 0.0))

    assert "50 % used" in shown
    assert "1024.0 GiB of 2048.0 GiB free, /models/hub" in shown
    assert "CPU      ▅  up to 50 %" in shown
    assert "/models/hub: the disk does not answer" in text(
        nodes.detail(FleetSnapshot(0.0, (dead,)), ("n1",), 0.0)
    )


def test_view_without_a_past_shows_none() -> None:
    bare = replace(view(60), history=None)

    assert "Last" not in text(gpus.detail(FleetSnapshot(0.0, (bare,)), ("n1", "0"), 0.0))


def test_port_shows_traffic_errors_and_past() -> None:
    snapshot = FleetSnapshot(0.0, (view(int(4 * SLOT_S)),))
    shown = text(fabric.detail(snapshot, ("n1", "mlx5_0", "1"), 0.0))
    (row,) = fabric.rows(snapshot, 0.0)

    assert "12.3 in, 0.0 out, Gb/s" in shown
    assert "link_downed 0.1/s" in shown
    assert "in       ████  up to 12 Gb/s" in shown
    assert [plain(cell) for cell in row.cells[5:7]] == ["12.3", "0.0"]


def test_port_that_nobody_counts_shows_dashes() -> None:
    still = replace(PORT, rx_gbps=None, tx_gbps=None, error_rates=None)
    lone = NodeView(replace(NODE, ports=(still,)), Contact.CONNECTED, 0.0)
    snapshot = FleetSnapshot(0.0, (lone,))
    (row,) = fabric.rows(snapshot, 0.0)

    assert [plain(cell) for cell in row.cells[5:7]] == ["—", "—"]
    assert "traffic" not in text(fabric.detail(snapshot, ("n1", "mlx5_0", "1"), 0.0))


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "—"), (0.04, "0.0"), (99.96, "100.0"), (391.2, "391")]
)
def test_gbps(value: float | None, shown: str) -> None:
    assert format_gbps(value) == shown
