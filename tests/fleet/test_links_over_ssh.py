"""Links over both ways of SSH: logins that a full sshd drops, and a network that goes."""

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw_core.domain.inventory import Contact
from llmgw_core.errors import ConnectionDropped
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.openssh import OpenSshHops, OpenSshTransport
from llmgw_core.fleet.ssh import SshTransport
from llmgw_core.fleet.ssh_dial import JumpHosts
from llmgw_core.fleet.transport import Channel, Transport
from tests.support.sshd import MakeSshd, Namespaces, Sshd, ssh_environ, wait_until, write_ssh_config

pytestmark = pytest.mark.slow
DEADLINE_S = 40.0
NOTICED_WITHIN_S = 15.0
Connect = Callable[[Target], Transport]


def by_asyncssh(config: Path) -> Connect:
    environ, jumps = ssh_environ(config), JumpHosts()
    return lambda target: SshTransport(target, environ, jumps)


def by_openssh(config: Path) -> Connect:
    environ, jumps = ssh_environ(config), OpenSshHops()
    return lambda target: OpenSshTransport(target, environ, jumps)


WAYS = pytest.mark.parametrize("reach", [by_asyncssh, by_openssh])
Reach = Callable[[Path], Connect]


@WAYS
@pytest.mark.faults
async def test_login_that_a_full_sshd_dropped_is_tried_again_before_it_counts(
    make_sshd: MakeSshd, reach: Reach
) -> None:
    sshd = make_sshd(lines=["MaxStartups 1"])
    occupied = socket.create_connection((sshd.address, sshd.port))
    occupied.recv(4)  # it greets: the only place is taken
    target = Target("n1", address="node")

    async with Fleet([target], connect=reach(sshd.ssh_config)) as fleet:
        await asyncio.to_thread(
            wait_until, lambda: "MaxStartups" in sshd.log, "the first login was dropped"
        )
        occupied.close()
        seen = await fleet.settle(DEADLINE_S)

    assert [view.node.reachable for view in seen.nodes] == [True]


@WAYS
@pytest.mark.faults
async def test_eight_nodes_behind_a_jump_host_with_few_logins_all_come(
    make_sshd: MakeSshd, reach: Reach, tmp_path: Path
) -> None:
    bastion, node = make_sshd(alias="bastion", lines=["MaxStartups 1"]), make_sshd()
    with node.ssh_config.open("a") as config:
        config.write("  ProxyJump bastion\n\n" + bastion.ssh_config.read_text("utf-8"))
    targets = [Target(f"n{number}", address="node") for number in range(8)]

    async with Fleet(targets, connect=reach(node.ssh_config)) as fleet:
        seen = await fleet.settle(DEADLINE_S)

    assert [view.contact for view in seen.nodes] == [Contact.CONNECTED] * 8
    assert bastion.log.count("Accepted publickey") == 1


async def ask(channel: Channel) -> bytes:
    """What the shell there answers."""
    await channel.write(b"echo fine\n")
    async with asyncio.timeout(DEADLINE_S):
        return await channel.read(100)


def start_in(make_sshd: MakeSshd, spaces: Namespaces, number: int) -> Sshd:
    sshd: Sshd = make_sshd(
        alias=f"n{number}", address=spaces.addresses[number], netns=spaces.names[number]
    )
    return sshd


@WAYS
@pytest.mark.faults
async def test_cut_network_is_noticed_in_time_and_a_silent_healthy_node_is_kept(
    make_sshd: MakeSshd,
    make_namespaces: Callable[[], Namespaces],
    reach: Reach,
    tmp_path: Path,
) -> None:
    spaces = make_namespaces()
    sshds = [start_in(make_sshd, spaces, number) for number in (0, 1)]
    connect = reach(write_ssh_config(tmp_path / "ssh_config", *sshds))
    cut, healthy = (connect(Target(name, address=name)) for name in ("n0", "n1"))
    lost, kept = await cut.open_shell(), await healthy.open_shell()
    await ask(lost)
    await ask(kept)

    spaces.set_link(0, "down")
    began = time.monotonic()
    with pytest.raises(ConnectionDropped) as caught:
        async with asyncio.timeout(DEADLINE_S):
            await lost.read(1)
    took_s = time.monotonic() - began

    assert took_s < NOTICED_WITHIN_S
    assert "nothing came back for 12 s" in caught.value.why
    # It has been as silent as the other, and works.
    assert await ask(kept) == b"fine\n"
    await cut.close()
    await healthy.close()


@WAYS
@pytest.mark.faults
async def test_network_that_is_away_for_some_seconds_costs_no_connection(
    make_sshd: MakeSshd, make_namespaces: Callable[[], Namespaces], reach: Reach
) -> None:
    spaces = make_namespaces()
    sshd = start_in(make_sshd, spaces, 0)
    way = reach(sshd.ssh_config)(Target("n0", address="n0"))
    channel = await way.open_shell()
    await ask(channel)

    spaces.set_link(0, "down")
    await channel.write(b"echo fine\n")
    await asyncio.sleep(3)  # as a switch that restarts a port
    spaces.set_link(0, "up")

    async with asyncio.timeout(DEADLINE_S):
        assert await channel.read(100) == b"fine\n"
    await way.close()
