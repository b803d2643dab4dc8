"""Gateways as a console finds them: through a node's agent over a real sshd, and on this machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw_core.agent.gateways import find_gateways, list_folders, read_queue, steer_gateway
from llmgw_core.domain.queue import GatewaysPicture
from llmgw_core.errors import GatewayError
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.gateways import GatewayWatch
from llmgw_core.fleet.ssh import SshTransport
from llmgw_core.fleet.ssh_dial import JumpHosts
from tests.support.gateways import Engine, open_bench, wait_for
from tests.support.sshd import MakeSshd, ssh_environ


class Seen:
    """The latest picture."""

    def __init__(self) -> None:
        self.picture = GatewaysPicture()

    @asynccontextmanager
    async def follow(self, watch: GatewayWatch) -> AsyncIterator[None]:
        async def read() -> None:
            async for picture in watch.pictures():
                self.picture = picture

        reading = asyncio.create_task(read())
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    @property
    def paused(self) -> list[bool]:
        return [
            model.paused
            for view in self.picture.gateways
            if view.state is not None
            for model in view.state.models
        ]


@pytest.mark.slow
async def test_gateway_on_a_node_is_found_followed_and_steered_over_ssh(
    tmp_path: Path, make_sshd: MakeSshd
) -> None:
    usual = tmp_path / "usual"
    sshd = make_sshd(env={"LLMGW_GATEWAY_DIR": str(usual)})
    environ = ssh_environ(sshd.ssh_config)
    targets = (Target("n1", address=sshd.alias), Target("n2", address="127.0.0.1", port=1))
    seen = Seen()

    def connect(target: Target) -> SshTransport:
        return SshTransport(target, environ, JumpHosts())

    async with Fleet(targets, connect=connect) as fleet:
        # The same gateway is found on this machine, too: it is shown once.
        watch = GatewayWatch(fleet, {"LLMGW_GATEWAY_DIR": str(usual)})
        async with seen.follow(watch):
            async with open_bench(tmp_path, Engine()) as bench:
                watch.search_now()
                await wait_for(lambda: seen.paused == [False], "it is found")
                await wait_for(
                    lambda: [view.node for view in seen.picture.gateways] == ["n1"], "by its node"
                )
                (view,) = seen.picture.gateways
                assert view.state is not None
                assert view.state.gateway is not None
                assert view.state.gateway.address == f"127.0.0.1:{bench.gateway.port}"
                assert [engine.url for engine in view.state.engines] == [bench.engines[0].url]
                assert seen.picture.away == ("n2",)

                await watch.steer("n1", view.socket, "pause", "model", "m")
                await wait_for(lambda: seen.paused == [True], "it is paused")
                with pytest.raises(GatewayError, match="no model 'nix'"):
                    await watch.steer("n1", view.socket, "pause", "model", "nix")
                with pytest.raises(GatewayError, match="pauses, resumes and drains"):
                    await watch.steer("n1", view.socket, "explode", "model", "m")
                await watch.steer("n1", view.socket, "resume", "model", "m")
            await wait_for(
                lambda: all(item.fault is not None for item in seen.picture.gateways), "it is lost"
            )
            assert seen.paused == [False]  # what was last seen stays


async def test_gateway_with_a_socket_elsewhere_is_found_by_its_usual_place(tmp_path: Path) -> None:
    env = {"LLMGW_GATEWAY_DIR": str(tmp_path / "usual")}
    async with open_bench(tmp_path, Engine()) as bench:
        (found,) = await asyncio.to_thread(find_gateways, env)

        assert found == str(tmp_path / "usual" / f"gateway-{bench.gateway.port}.sock")
        state = await asyncio.to_thread(read_queue, found)
        assert state["gateway"]["address"].endswith(str(bench.gateway.port))
    assert find_gateways(env) == ()
    assert list((tmp_path / "usual").iterdir()) == []


def test_folder_that_others_may_write_to_is_not_looked_into(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    assert find_gateways({"LLMGW_GATEWAY_DIR": str(tmp_path)}) == ()


def test_usual_places_are_those_of_a_service_and_of_a_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 1000)

    found = [str(folder) for folder in list_folders({})]

    assert found == ["/run/user/1000/llmgw", "/tmp/llmgw-gateway-1000"]


async def test_of_many_tenants_those_that_wait_are_told_and_the_rest_counted(
    tmp_path: Path,
) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        socket = str(bench.gateway.socket)
        for number in range(5):
            queue = bench.gateway.gates.queues[0]
            queue.slots = queue.running + 1
            queue.push("normal", f"t{number}", 1, now=0.0)
            ticket = queue.pop(0.0)
            assert ticket is not None
            queue.release(ticket, number)

        state = await asyncio.to_thread(read_queue, socket, 2)

        (model,) = state["models"]
        assert [item["tenant"] for item in model["tenants"]] == ["t3", "t4"]
        assert model["tenants_left_out"] == 3
        with pytest.raises(GatewayError, match="is a number"):
            await asyncio.to_thread(read_queue, socket, -1)


async def test_what_answers_and_is_no_gateway_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "gateway-1.sock"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n[1]")
        writer.close()

    async with await asyncio.start_unix_server(answer, str(path)):
        with pytest.raises(GatewayError, match="no document"):
            await asyncio.to_thread(read_queue, str(path))
        with pytest.raises(GatewayError, match="no document"):
            await asyncio.to_thread(steer_gateway, str(path), "pause", "model", "m")
