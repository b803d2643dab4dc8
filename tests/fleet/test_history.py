"""The past of a node's readings: bounded, honest about gaps and about what came before the console."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.domain.hardware import Gpu, Host, Port
from llmgw_core.domain.inventory import Node
from llmgw_core.fleet.history import MAX_SERIES, SLOT_S, SLOTS, NodeHistory


def node(util: int | None = None, *, rx: float | None = None, uuid: str = "GPU-a") -> Node:
    host = Host(cpu_percent=5.0, memory_total_bytes=100, memory_available_bytes=25)
    port = Port("mlx5_0", 1, rx_gbps=rx)
    return Node("n", host=host, gpus=(Gpu(0, uuid=uuid, utilization_percent=util),), ports=(port,))


def load(history: NodeHistory, uuid: str = "GPU-a") -> tuple[float | None, ...]:
    return history.values("gpu", uuid, "utilization_percent")


def test_console_that_just_came_has_no_past() -> None:
    history = NodeHistory()
    history.record(node(40), 1e6)

    assert load(history) == (40.0,)


def test_values_of_one_slot_are_their_mean() -> None:
    history = NodeHistory()
    for second, util in enumerate([10, 20, 60]):
        history.record(node(util), 100 * SLOT_S + second)

    assert load(history) == (30.0,)


def test_time_without_readings_is_a_gap_and_no_zero() -> None:
    history = NodeHistory()
    history.record(node(10), 0)
    history.record(node(None), SLOT_S)
    history.record(node(20), 3 * SLOT_S)

    assert load(history) == (10.0, None, None, 20.0)


def test_reading_that_stopped_ends_in_a_gap() -> None:
    history = NodeHistory()
    history.record(node(10), 0)
    history.record(node(None), 2 * SLOT_S)

    assert load(history) == (10.0, None, None)


def test_ten_minutes_are_kept_and_no_more() -> None:
    history = NodeHistory()
    for second in range(0, 1800, 2):
        history.record(node(second % 100), float(second))

    kept = load(history)

    assert len(kept) == SLOTS
    assert 600 <= len(kept) * SLOT_S <= 700
    assert None not in kept


def test_gap_longer_than_the_window_leaves_the_newest_alone() -> None:
    history = NodeHistory()
    history.record(node(10), 0)
    history.record(node(20), 100_000.0)

    assert load(history)[-1] == 20.0
    assert set(load(history)[:-1]) == {None}


def test_ports_and_host_have_theirs() -> None:
    history = NodeHistory()
    history.record(node(1, rx=12.5), 0)

    assert history.values("port", "mlx5_0:1", "rx_gbps") == (12.5,)
    assert history.values("host", "", "cpu_percent") == (5.0,)
    assert history.values("host", "", "memory_used_percent") == (75.0,)
    assert history.values("port", "mlx5_0:1", "tx_gbps") == ()
    assert history.values("port", "mlx5_9:1", "rx_gbps") == ()


def test_gpu_that_was_exchanged_is_forgotten_with_the_window() -> None:
    history = NodeHistory()
    history.record(node(10), 0)
    for slot in range(1, SLOTS + 1):
        history.record(node(20, uuid="GPU-b"), slot * SLOT_S)

    assert load(history) == ()
    assert len(load(history, "GPU-b")) == SLOTS


def test_memory_has_a_bound_whatever_a_node_claims_to_have() -> None:
    history = NodeHistory()
    for turn in range(20):
        ports = tuple(Port(f"mlx5_{turn}_{n}", 1, rx_gbps=1.0) for n in range(200))
        history.record(Node("n", ports=ports), float(turn))

    assert len(history._series) == MAX_SERIES
    assert sum(sys.getsizeof(item._values) for item in history._series.values()) < 350_000


@given(st.lists(st.tuples(st.integers(0, 5000), st.none() | st.integers(0, 100))))
def test_values_are_means_of_what_came(readings: list[tuple[int, int | None]]) -> None:
    history = NodeHistory()
    for at, util in sorted(readings, key=lambda item: item[0]):
        history.record(node(util), float(at))

    came = [util for _, util in readings if util is not None]
    kept = [value for value in load(history) if value is not None]

    assert len(load(history)) <= SLOTS
    assert all(min(came) - 0.01 <= value <= max(came) + 0.01 for value in kept)
