"""Reaching one address of a fabric from another, over the loopback's many addresses."""

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent import fabric_probe
from llmgw_core.agent.fabric_probe import connect_fabric, listen_fabric

TOKEN = "0123456789abcdef"  # noqa: S105 - of a test


def test_who_knows_the_token_connects() -> None:
    heard = listen_fabric(TOKEN, "127.0.0.2")
    assert heard.port is not None

    came = connect_fabric(TOKEN, "127.0.0.2", heard.port, "127.0.0.3")

    assert (came.connected, came.error) == (True, None)


def test_another_listener_at_that_address_is_no_proof() -> None:
    heard = listen_fabric("somebody-else", "127.0.0.2")
    assert heard.port is not None

    came = connect_fabric(TOKEN, "127.0.0.2", heard.port, "127.0.0.3")

    assert (came.connected, came.error) == (False, "wrong-peer")


def test_address_that_is_not_ours_cannot_be_listened_on() -> None:
    heard = listen_fabric(TOKEN, "192.0.2.1")

    assert (heard.port, heard.error) == (None, "EADDRNOTAVAIL")


def test_nobody_there_is_told_by_its_errno() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.4", 0))

        came = connect_fabric(TOKEN, "127.0.0.4", held.getsockname()[1])

    assert (came.connected, came.error) == (False, "ECONNREFUSED")


def test_netdev_stands_for_its_address() -> None:
    heard = listen_fabric(TOKEN, None, "lo")

    assert heard.address == "127.0.0.1"


def test_netdev_that_is_not_there_has_no_address() -> None:
    assert listen_fabric(TOKEN, None, "nope0").error == "EADDRNOTAVAIL"


def test_listener_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric_probe, "WAIT_S", 0.05)
    before = set(threading.enumerate())

    heard = listen_fabric(TOKEN, "127.0.0.5")
    for thread in set(threading.enumerate()) - before:
        thread.join(2.0)

    assert heard.port is not None
    assert connect_fabric(TOKEN, "127.0.0.5", heard.port).error == "ECONNREFUSED"


@given(st.text(max_size=40), st.integers())
def test_no_address_breaks_the_probe(address: str, port: int) -> None:
    if address.startswith("127."):
        return

    assert not connect_fabric(TOKEN, f"x{address}", port).connected
    assert listen_fabric(TOKEN, f"x{address}").port is None
