"""The fleet over real sshds: real bootstrap, real agents."""

import asyncio
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmgw_core.domain.inventory import Contact, FleetSnapshot, NodeView
from llmgw_core.errors import ConnectRefused, NoPython, Unreachable, UsageError
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.fleet import Fleet, default_transport
from llmgw_core.fleet.links import RETRY_MAX_S, Backoff
from llmgw_core.fleet.ssh import SshTransport
from llmgw_core.fleet.ssh_dial import JumpHosts
from llmgw_core.fleet.transport import Channel, Transport
from tests.support.sshd import (
    MakeSshd,
    Namespaces,
    Sshd,
    end_marked,
    ssh_environ,
    write_ssh_config,
)

DEADLINE_S = 40.0


def make_fleet(tmp_path: Path, *sshds: Sshd, **options: str) -> Fleet:
    """A fleet with one node for each sshd, named as its alias."""
    environ = ssh_environ(write_ssh_config(tmp_path / "ssh_config", *sshds))
    jumps = JumpHosts()
    targets = [
        Target(sshd.alias, address=sshd.alias, python=options.get("python")) for sshd in sshds
    ]
    return Fleet(
        targets, connect=lambda target: SshTransport(target, environ, jumps), interval_s=0.5
    )


def view(snapshot: FleetSnapshot, name: str) -> NodeView:
    return next(item for item in snapshot.nodes if item.node.name == name)


async def wait_for_view(fleet: Fleet, name: str, is_so: Callable[[NodeView], bool]) -> NodeView:
    async with asyncio.timeout(DEADLINE_S):
        async for snapshot in fleet.snapshots():
            if is_so(view(snapshot, name)):
                return view(snapshot, name)
    raise AssertionError("the fleet closed")


class BrokenTransport:
    """A way to a node that fails as it was told."""

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    async def open_shell(self) -> Channel:
        if self._error is None:
            await asyncio.Event().wait()
            raise AssertionError
        raise self._error

    async def close(self) -> None:
        pass


def broken(error: BaseException | None) -> Callable[[Target], Transport]:
    return lambda _: BrokenTransport(error)


@pytest.mark.slow
async def test_nodes_answer_under_the_operators_names(make_sshd: MakeSshd, tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path, make_sshd(alias="n10"), make_sshd(alias="n2"))

    async with fleet:
        snapshot = await fleet.settle(DEADLINE_S)
        hello = fleet.client("n2").hello

    assert [(item.node.name, item.node.address) for item in snapshot.nodes] == [
        ("n2", "n2"),
        ("n10", "n10"),
    ]
    assert [item.contact for item in snapshot.nodes] == [Contact.CONNECTED] * 2
    assert [item.node.error for item in snapshot.nodes] == [None, None]
    assert hello.bundle


@pytest.mark.slow
@pytest.mark.faults
async def test_one_node_goes_and_comes_back_and_the_other_never_notices(
    make_sshd: MakeSshd, tmp_path: Path
) -> None:
    steady, shaky = make_sshd(alias="steady"), make_sshd(alias="shaky")
    fleet = make_fleet(tmp_path, steady, shaky)
    seen: set[Contact] = set()

    async def note_steady() -> None:
        async for snapshot in fleet.snapshots():
            seen.add(view(snapshot, "steady").contact)

    async with fleet:
        await fleet.settle(DEADLINE_S)
        noting = asyncio.create_task(note_steady())
        await asyncio.to_thread(shaky.stop)
        gone = await wait_for_view(fleet, "shaky", lambda v: v.contact is Contact.UNREACHABLE)
        hello = fleet.client("steady").hello
        await asyncio.to_thread(shaky.start)
        back = await wait_for_view(fleet, "shaky", lambda v: v.contact is Contact.CONNECTED)
        noting.cancel()

    assert (gone.node.reachable, gone.node.host.hostname) == (False, back.node.host.hostname)
    assert gone.node.error is not None
    assert gone.updated_at is not None
    assert back.node.error is None
    assert seen == {Contact.CONNECTED}
    assert hello.pid


@pytest.mark.slow
async def test_a_node_that_cannot_be_reached_leaves_the_others_alone(
    make_sshd: MakeSshd, tmp_path: Path
) -> None:
    well, down = make_sshd(alias="well"), make_sshd(alias="down")
    down.stop()
    fleet = make_fleet(tmp_path, well, down)

    async with fleet:
        snapshot = await fleet.settle(DEADLINE_S)
        with pytest.raises(ConnectRefused):
            fleet.client("down")

    assert view(snapshot, "well").contact is Contact.CONNECTED
    fault = view(snapshot, "down").node.error
    assert fault is not None
    assert fault.code == "refused"
    assert view(snapshot, "down").retry_at is not None


@pytest.mark.slow
@pytest.mark.faults
async def test_one_session_without_forwarding_or_sftp_is_enough(
    make_sshd: MakeSshd, tmp_path: Path
) -> None:
    sshd = make_sshd(alias="n1", lines=["MaxSessions 1", "DisableForwarding yes"])

    async with make_fleet(tmp_path, sshd) as fleet:
        snapshot = await fleet.settle(DEADLINE_S)

    assert view(snapshot, "n1").node.error is None


@pytest.mark.slow
@pytest.mark.faults
async def test_a_noisy_login_shell_does_no_harm(make_sshd: MakeSshd, tmp_path: Path) -> None:
    sshd = make_sshd(alias="n1")
    noise = "echo Welcome; echo 'LLMGW1 not the marker'; head -c 100000 /dev/urandom; echo >&2 no\n"
    for name in (".bashrc", ".profile", ".zshenv"):
        (sshd.home / name).write_text(noise, "utf-8")

    async with make_fleet(tmp_path, sshd) as fleet:
        snapshot = await fleet.settle(DEADLINE_S)

    assert view(snapshot, "n1").node.error is None


@pytest.mark.slow
async def test_a_node_without_python_says_so(make_sshd: MakeSshd, tmp_path: Path) -> None:
    sshd = make_sshd(alias="n1", lines=["ForceCommand PATH=/nonexistent exec /bin/sh -s"])

    async with make_fleet(tmp_path, sshd) as fleet:
        snapshot = await fleet.settle(DEADLINE_S)

    fault = view(snapshot, "n1").node.error
    assert fault is not None
    assert fault.code == NoPython.code


@pytest.mark.slow
async def test_two_network_namespaces_are_two_nodes(
    make_sshd: MakeSshd, make_namespaces: Callable[[], Namespaces], tmp_path: Path
) -> None:
    spaces = make_namespaces()
    sshds = [
        make_sshd(alias=f"n{number}", netns=name, address=address)
        for number, (name, address) in enumerate(zip(spaces.names, spaces.addresses, strict=True))
    ]

    async with make_fleet(tmp_path, *sshds) as fleet:
        snapshot = await fleet.settle(DEADLINE_S)

    assert [item.node.error for item in snapshot.nodes] == [None, None]


@pytest.fixture
def marked_env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment for an agent on this machine that ends with the test."""
    mark = uuid.uuid4().hex
    yield {
        "LLMGW_TEST_MARK": mark,
        "LLMGW_STATE_DIR": str(tmp_path / "state"),
        "LLMGW_CACHE_DIR": str(tmp_path / "cache"),
    }
    end_marked(f"LLMGW_TEST_MARK={mark}")


@pytest.mark.slow
async def test_this_machine_needs_no_ssh(marked_env: dict[str, str]) -> None:
    async with Fleet([Target("here", env=marked_env)]) as fleet:
        snapshot = await fleet.settle(DEADLINE_S)

    assert (view(snapshot, "here").node.error, view(snapshot, "here").node.address) == (None, None)


async def test_an_unexpected_exception_is_one_nodes_fault() -> None:
    fleet = Fleet([Target("a", address="a")], connect=broken(ZeroDivisionError("oops")))

    async with fleet:
        snapshot = await fleet.settle(DEADLINE_S)

    fault = view(snapshot, "a").node.error
    assert fault is not None
    assert "ZeroDivisionError: oops" in fault.message


async def test_a_node_that_says_nothing_is_unreachable_after_the_wait() -> None:
    async with Fleet([Target("a", address="a")], connect=broken(None)) as fleet:
        snapshot = await fleet.settle(0.05)

        fault = view(snapshot, "a").node.error
        assert fault is not None
        assert (fault.code, view(snapshot, "a").contact) == ("timeout", Contact.CONNECTING)
        with pytest.raises(Unreachable, match="not connected yet"):
            fleet.client("a")


async def test_first_snapshot_comes_at_once_with_every_node() -> None:
    targets = [Target("n10", address="x"), Target("n2", address="y")]

    async with Fleet(targets, connect=broken(None)) as fleet:
        first = await anext(aiter(fleet.snapshots()))

    assert [(item.node.name, item.contact) for item in first.nodes] == [
        ("n2", Contact.CONNECTING),
        ("n10", Contact.CONNECTING),
    ]


async def test_snapshot_is_the_same_object_until_something_changes() -> None:
    async with Fleet([Target("a", address="a")], connect=broken(None)) as fleet:
        assert fleet.snapshot() is fleet.snapshot()


async def test_snapshots_end_with_the_fleet() -> None:
    fleet = Fleet([Target("a", address="a")], connect=broken(None))

    async def count() -> int:
        return len([snapshot async for snapshot in fleet.snapshots()])

    async with fleet:
        counting = asyncio.create_task(count())
        await asyncio.sleep(0)

    assert await asyncio.wait_for(counting, DEADLINE_S) >= 1


async def test_the_operators_fabric_joins_nodes() -> None:
    targets = [Target(name, address=name, fabric="rack1") for name in ("a", "b")]

    async with Fleet(targets, connect=broken(None)) as fleet:
        snapshot = fleet.snapshot()

    assert [(island.id, island.nodes) for island in snapshot.islands] == [("rack1", ("a", "b"))]


async def test_an_unknown_node_is_a_usage_error() -> None:
    fleet = Fleet([Target("a", address="a")], connect=broken(None))

    with pytest.raises(UsageError, match="no node b"):
        fleet.client("b")


def test_pauses_grow_to_a_minute_and_differ() -> None:
    backoff = Backoff(random.Random(1))  # noqa: S311 - the same pauses each time
    pauses = []
    for _ in range(12):
        backoff.advance()
        pauses.append(backoff.delay_s)

    assert 0.5 <= pauses[0] <= 1.0
    assert RETRY_MAX_S / 2 <= pauses[-1] <= RETRY_MAX_S
    assert len(set(pauses)) == len(pauses)


def test_a_fleet_of_this_machine_alone_loads_no_asyncssh() -> None:
    program = (
        "import sys; from llmgw_core.fleet.config import Target;"
        "from llmgw_core.fleet.fleet import Fleet, default_transport;"
        "default_transport(Target('here')); print('asyncssh' in sys.modules)"
    )

    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert said.stdout.strip() == "False"


def test_a_target_with_an_address_is_reached_by_ssh() -> None:
    assert isinstance(default_transport(Target("a", address="a")), SshTransport)
