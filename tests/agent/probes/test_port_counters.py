"""Rates of ports: differences alone, of usable ports alone, and nothing invented when a counter goes back or refuses."""

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent import live
from llmgw_core.agent.inventory import NodeProbe, read_node
from llmgw_core.agent.probes import port_counters
from llmgw_core.agent.probes.port_counters import (
    PortCounters,
    PortRates,
    compare_errors,
    compare_traffic,
    parse_count,
)
from llmgw_core.agent.sampler import _steady
from llmgw_core.domain.hardware import Port
from llmgw_core.domain.inventory import Node
from tests.support.agents import wait_for
from tests.support.hardware import ib_port, roce_port, write_sysfs

PORT = Port("mlx5_0", 1, usable=True, rate_gbps=400.0)
KEY = ("mlx5_0", 1)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_counters, "MIN_INTERVAL_S", 0.0)
    monkeypatch.setattr(port_counters, "ERRORS_INTERVAL_S", 0.0)


@pytest.fixture
def count(tmp_path: Path) -> Callable[..., None]:
    """Writes counters of mlx5_0:1, `__` for the slash: counters__port_rcv_data=5; None: it is not there."""

    def write(**values: object) -> None:
        for name, value in values.items():
            path = tmp_path / "class/infiniband/mlx5_0/ports/1" / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if value is not None:
                path.write_text(f"{value}\n")

    return write


@pytest.fixture
def counters(tmp_path: Path) -> PortCounters:
    return PortCounters(str(tmp_path))


class Clock:
    """Monotonic time that goes on by a second at each question."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def test_traffic_is_the_difference_in_words_of_four_bytes() -> None:
    rates = compare_traffic((10.0, 0, 1000), (12.0, 4 * 12_500_000_000, 1000), 400.0)

    assert rates == (200.0, 0.0)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(None, (12.0, 5, 5), id="the first reading"),
        pytest.param((10.0, 5, 5), None, id="it refuses now"),
        pytest.param((10.0, 500, 500), (12.0, 4, 4), id="it was reset, or has wrapped"),
        pytest.param((10.0, 0, 0), (12.0, 1 << 60, 1 << 60), id="more than the link carries"),
        pytest.param((10.0, 0, 0), (10.0, 5, 5), id="no time has passed"),
    ],
)
def test_interval_that_tells_nothing_gives_no_rate(
    before: tuple[float, int, int] | None, now: tuple[float, int, int] | None
) -> None:
    assert compare_traffic(before, now, 400.0) == (None, None)


@given(*[st.tuples(st.floats(0, 1e9), st.integers(0, 1 << 64), st.integers(0, 1 << 64))] * 2)
def test_rate_is_never_negative_nor_huge(
    before: tuple[float, int, int], now: tuple[float, int, int]
) -> None:
    for limit in (None, 400.0):
        for rate in compare_traffic(before, now, limit):
            assert rate is None or 0 <= rate <= (10_000 if limit is None else 800)


@pytest.mark.parametrize(
    "text", [None, "", "N/A (no PMA)", "-1", "²", "1 2", "9" * 21, "0x10", "1.5"]
)
def test_text_that_is_no_count_is_none(text: str | None) -> None:
    assert parse_count(text) is None


def test_errors_that_moved_are_given_per_second() -> None:
    before, now = {"symbol_error": 1, "link_downed": 2}, {"symbol_error": 21, "link_downed": 2}

    assert compare_errors(before, now, 10.0) == {"symbol_error": 2.0}


def test_error_counter_that_went_back_is_left_out_and_none_known_is_no_zero() -> None:
    assert compare_errors({"a": 5, "b": 1}, {"a": 4, "b": 1}, 10.0) == {}
    assert compare_errors({"a": 5}, {"a": 4}, 10.0) is None
    assert compare_errors({}, {"a": 4}, 10.0) is None


def test_second_reading_gives_rates(
    counters: PortCounters, count: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_counters, "time", Clock())
    count(counters__port_rcv_data=0, counters__port_xmit_data=0, counters__symbol_error=3)
    first = counters.read([PORT])
    count(counters__port_rcv_data=10**9, counters__port_xmit_data=0, counters__symbol_error=3)

    rates = counters.read([PORT])[KEY]

    assert first == {KEY: PortRates()}
    assert rates.rx_gbps is not None
    assert 0 < rates.rx_gbps < 40
    assert (rates.tx_gbps, rates.error_rates) == (0.0, {})


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"counters_ext__port_rcv_data_64": 0, "counters_ext__port_xmit_data_64": 0}, 8.0),
        ({"hw_counters__rx_bytes": 0, "hw_counters__tx_bytes": 0}, 2.0),
        (
            {f"hw_counters__ip{v}{way}Octets": 0 for v in (4, 6) for way in ("In", "Out")},
            4.0,
        ),
    ],
)
def test_drivers_that_name_their_counters_otherwise(
    before: dict[str, int],
    now: float,
    counters: PortCounters,
    count: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(port_counters, "time", clock)
    # An old `counters` that stands at its end says nothing, and must not pass for silence on the wire.
    count(counters__port_rcv_data=2**32 - 1, counters__port_xmit_data=2**32 - 1, **before)
    counters.read([PORT])
    count(**dict.fromkeys(before, 250_000_000))
    began = counters._seen[KEY].traffic
    rates = counters.read([PORT])[KEY]
    ended = counters._seen[KEY].traffic

    assert began is not None
    assert ended is not None
    assert rates.rx_gbps == pytest.approx(now / (ended[0] - began[0]), abs=0.001)


@pytest.mark.parametrize("end", [65535])
def test_error_counter_at_its_end_is_not_known(
    end: int, counters: PortCounters, count: Callable[..., None]
) -> None:
    count(counters__symbol_error=end)
    counters.read([PORT])

    assert counters.read([PORT])[KEY].error_rates is None


@pytest.mark.parametrize(
    "port",
    [
        dataclasses.replace(PORT, usable=False),
        dataclasses.replace(PORT, vf=True),
    ],
)
def test_port_that_is_not_usable_or_a_virtual_function_is_not_read(
    port: Port, counters: PortCounters, tmp_path: Path
) -> None:
    folder = tmp_path / "class/infiniband/mlx5_0/ports/1/counters"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "port_rcv_data")  # whoever opens it waits without end

    assert counters.read([port]) == {}


def test_file_that_refused_is_left_alone(
    counters: PortCounters, count: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(port_counters, "_read", asked.append)
    counters.read([PORT])
    first = len(asked)

    counters.read([PORT])

    assert first > 0
    assert len(asked) == first


# Under the probe.


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[NodeProbe]:
    write_sysfs(tmp_path, [ib_port("mlx5_0"), roce_port("mlx5_1")])
    made = NodeProbe({"LLMGW_SYSFS_ROOT": str(tmp_path), "PATH": ""})
    yield made
    made.close()


def read_watched(probe: NodeProbe) -> Node:
    probe.refresh_gpus(1.0, is_watched=True)
    return probe.assess(())


def rates(node: Node) -> list[tuple[float | None, float | None]]:
    return [(port.rx_gbps, port.tx_gbps) for port in node.ports]


def test_rates_are_there_while_somebody_watches_and_for_usable_ports_alone(
    probe: NodeProbe, count: Callable[..., None]
) -> None:
    count(counters__port_rcv_data=5, counters__port_xmit_data=7)
    once = probe.read()
    first = read_watched(probe)
    second = read_watched(probe)
    probe.end_watch()
    after = probe.read()
    again = read_watched(probe)

    assert rates(second) == [(0.0, 0.0), (None, None)]
    for node in (once, first, after, again):
        assert rates(node) == [(None, None)] * 2


def test_single_inventory_reads_no_counter(tmp_path: Path, count: Callable[..., None]) -> None:
    write_sysfs(tmp_path, [ib_port("mlx5_0")])
    folder = tmp_path / "class/infiniband/mlx5_0/ports/1/counters"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "port_rcv_data")

    node = read_node({"LLMGW_SYSFS_ROOT": str(tmp_path), "PATH": ""})

    assert rates(node) == [(None, None)]


def test_counters_that_hang_cost_the_rates_alone(
    probe: NodeProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_COUNTERS_WAIT_S", 0.05)
    folder = tmp_path / "class/infiniband/mlx5_0/ports/1/counters"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "port_rcv_data")
    before = threading.active_count()

    nodes = [read_watched(probe) for _ in range(5)]
    hanging = threading.active_count() - before
    os.close(os.open(folder / "port_rcv_data", os.O_WRONLY))  # let it go

    assert [rates(node) for node in nodes] == [[(None, None)] * 2] * 5
    assert hanging == 1
    wait_for(lambda: threading.active_count() == before, "the thread ends")


def test_rates_alone_are_no_change_to_be_told_at_once() -> None:
    node = Node("n", ports=(PORT,))
    busy = dataclasses.replace(PORT, rx_gbps=5.0, tx_gbps=1.0, error_rates={"symbol_error": 1.0})

    assert _steady(node) == _steady(dataclasses.replace(node, ports=(busy,)))
