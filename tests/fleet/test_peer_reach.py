"""Whether ranks would reach one another: real sockets on addresses of the loopback."""

import asyncio
import itertools

import pytest

from llmgw_core.agent.fabric_probe import connect_fabric, listen_fabric
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.reach import FabricConnection, FabricListener
from llmgw_core.errors import Unreachable
from llmgw_core.fleet.peer_reach import (
    ALL_PAIRS_UP_TO,
    MOST_TOLD,
    PeerTry,
    judge_tries,
    list_directions,
    probe_peers,
)
from llmgw_core.planning.interfaces import ChosenInterface


class Here:
    """An agent's own sockets, without the agent."""

    async def fabric_listen(
        self, token: str, address: str | None, netdev: str | None
    ) -> FabricListener:
        return await asyncio.to_thread(listen_fabric, token, address, netdev)

    async def fabric_connect(
        self, token: str, peer: str, port: int, address: str | None, netdev: str | None
    ) -> FabricConnection:
        return await asyncio.to_thread(connect_fabric, token, peer, port, address, netdev)


class Walled(Here):
    """Who is behind a firewall that lets nobody in: its listener cannot be called."""

    async def fabric_listen(
        self, token: str, address: str | None, netdev: str | None
    ) -> FabricListener:
        heard = await super().fabric_listen("another", address, netdev)
        return FabricListener(heard.address, heard.port)


class Away(Here):
    """Who does not answer."""

    async def fabric_listen(
        self, token: str, address: str | None, netdev: str | None
    ) -> FabricListener:
        raise Unreachable("gpu9 is away", "", "", "gpu9")


def at(number: int) -> ChosenInterface:
    return ChosenInterface("lo", f"127.0.1.{number}", "")


async def test_every_pair_is_connected_both_ways() -> None:
    chosen = {f"n{number}": at(number) for number in range(1, 6)}

    tries = await probe_peers(dict.fromkeys(chosen, Here()), chosen)

    assert [(item.caller, item.listener) for item in tries] == list(list_directions(tuple(chosen)))
    assert all(item.connected for item in tries)
    assert judge_tries(tries, chosen) == ()


async def test_direction_that_is_shut_is_an_error_and_the_other_is_not() -> None:
    chosen = {"a": at(11), "b": at(12)}

    tries = await probe_peers({"a": Here(), "b": Walled()}, chosen)

    (error,) = judge_tries(tries, chosen)
    assert (error.severity, error.subject, error.node) == (Severity.ERROR, "a → b", "b")
    assert "127.0.1.12" in error.what
    assert "firewall" in error.fix


async def test_address_that_the_node_lost_is_an_error() -> None:
    chosen = {"a": at(21), "b": ChosenInterface("eth9", "192.0.2.77", "")}

    tries = await probe_peers(dict.fromkeys(chosen, Here()), chosen)

    findings = judge_tries(tries, chosen)
    assert [item.severity for item in findings] == [Severity.ERROR] * 2
    assert "cannot listen there: EADDRNOTAVAIL" in findings[0].what
    assert "no longer this node's" in findings[1].what


async def test_node_that_is_away_costs_a_warning() -> None:
    chosen = {"a": at(31), "b": at(32)}

    tries = await probe_peers({"a": Here(), "b": Away()}, chosen)

    (told,) = judge_tries(tries, chosen)
    assert (told.severity, told.what) == (
        Severity.WARNING,
        "could not be tried: gpu9 is away",
    )


@pytest.mark.slow
async def test_many_callers_of_one_node_get_listeners_one_after_the_other() -> None:
    chosen = {f"n{number}": at(40 + number) for number in range(30)}

    tries = await probe_peers(dict.fromkeys(chosen, Here()), chosen)

    assert len(tries) == 2 * (29 + 28)
    assert [item for item in tries if not item.connected] == []


def test_many_nodes_are_tried_as_a_star_and_a_ring() -> None:
    names = tuple(f"n{number}" for number in range(ALL_PAIRS_UP_TO + 1))

    ways = set(list_directions(names))

    assert {(caller, listener) for listener, caller in ways} == ways
    assert all(("n0", name) in ways for name in names[1:])
    assert all(pair in ways for pair in itertools.pairwise(names))
    assert len(ways) == len(list_directions(names)) < len(names) * (len(names) - 1)


def test_flood_of_failures_is_told_in_few_words() -> None:
    chosen = {"a": at(1), "b": at(2)}
    tries = [PeerTry("a", "b", False, "ETIMEDOUT")] * (MOST_TOLD + 5)

    findings = judge_tries(tries, chosen)

    assert len(findings) == MOST_TOLD + 1
    assert "5 more" in findings[-1].what
