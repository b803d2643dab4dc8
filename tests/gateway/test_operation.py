"""Running it: keys, admin, metrics, reload, drain, TLS, and the command itself."""

import asyncio
import json
import os
import signal
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from llmgw_core.cli.main import main
from llmgw_core.errors import ConfigError, GatewayError
from llmgw_core.gateway.keys import ApiKey, add_key, load_keys
from llmgw_core.gateway.routing import ReplicaState
from llmgw_core.gateway.service import Gateway
from llmgw_core.gateway.settings import load_settings
from tests.gateway.test_edge import error_of
from tests.support.engines import free_port
from tests.support.gateways import Bench, Engine, open_bench, wait_for

BANDS = ("high", "normal", "low")


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def ask_as(bench: Bench, headers: dict[str, str], **fields: Any) -> tuple[int, bytes]:
    body = {"model": "m", "prompt": "x", **fields}
    async with bench.client.post(
        f"{bench.url}/v1/completions", json=body, headers=headers
    ) as answer:
        return answer.status, await answer.read()


async def test_key_says_tenant_band_and_models(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    search = add_key(path, ApiKey("search", "normal", 3, ("m*",)))
    other = add_key(path, ApiKey("other", models=("else",)))
    async with open_bench(tmp_path, Engine(), keys=str(path)) as bench:
        assert (await ask_as(bench, bearer(search)))[0] == 200
        assert (await ask_as(bench, {"X-Api-Key": search}))[0] == 200
        for headers in ({}, bearer(""), bearer(search + "x"), bearer("é\udcff"[:1])):
            status, body = await ask_as(bench, headers)
            assert (status, error_of(body)["code"]) == (401, "invalid_api_key")
        status, body = await ask_as(bench, bearer(other))
        assert (status, error_of(body)["code"]) == (404, "model_not_found")
        async with bench.client.get(f"{bench.url}/v1/models", headers=bearer(other)) as answer:
            assert (await answer.json())["data"] == []

        for wanted in ("high", "low"):
            await ask_as(bench, {**bearer(search), "X-Llmgw-Band": wanted})

        (state,) = [queue.state(0.0) for queue in bench.gateway.gates.queues]
        found = {(item.band, item.tenant): (item.admitted, item.weight) for item in state.tenants}
        assert found == {("normal", "search"): (3, 3), ("low", "search"): (1, 3)}


def test_file_of_keys_holds_no_key_and_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "keys.toml"
    secret = add_key(path, ApiKey("t", "low", 2, ("a", "b*"), is_admin=True))

    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ring = load_keys(path, BANDS, allow_anonymous=False)
    assert ring.find(secret) == ApiKey("t", "low", 2, ("a", "b*"), is_admin=True)
    assert ring.find(None) is None


@pytest.mark.parametrize(
    "text",
    [
        "keys = 7",
        '[[keys]]\nsha256 = "sk-a-key-written-here-by-mistake"\ntenant = "t"',
        '[[keys]]\nsha256 = "{h}"\ntenant = "t"\nband = "attic"',
        '[[keys]]\nsha256 = "{h}"\ntenant = "t"\nweight = 0',
        '[[keys]]\nsha256 = "{h}"\ntenant = "t\\nx"',
        '[[keys]]\nsha256 = "{h}"\ntenant = "t"\nbandd = "low"',
        "[[keys",
    ],
)
def test_bad_file_of_keys_is_refused_without_showing_a_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text.replace("{h}", "0" * 64))

    with pytest.raises(ConfigError, match=str(path)) as caught:
        load_keys(path, BANDS, allow_anonymous=True)

    assert "by-mistake" not in str(caught.value)


def test_file_of_keys_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    add_key(path, ApiKey("t"))
    path.chmod(0o666)

    with pytest.raises(ConfigError, match="others may write"):
        load_keys(path, BANDS, allow_anonymous=True)


async def test_without_keys_it_does_not_start(tmp_path: Path) -> None:
    settings = load_settings(None, {"listen": "127.0.0.1:0", "access_log": "off"})

    with pytest.raises(ConfigError, match="no API keys"):
        async with Gateway(settings):
            pass


async def test_port_in_use_is_said(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        settings = load_settings(
            None,
            {
                "listen": f"127.0.0.1:{bench.gateway.port}",
                "access_log": "off",
                "allow_anonymous": True,
            },
        )
        with pytest.raises(GatewayError, match="cannot listen"):
            async with Gateway(settings):
                pass


async def ask_admin(bench: Bench, target: str, value: object = None) -> tuple[int, Any]:
    connector = aiohttp.UnixConnector(str(bench.gateway.socket))
    async with aiohttp.ClientSession(connector=connector) as client:
        method = "GET" if value is None else "POST"
        async with client.request(method, f"http://admin{target}", json=value) as answer:
            text = await answer.read()
            return answer.status, json.loads(text) if text[:1] == b"{" else text.decode()


async def test_admin_socket_shows_and_steers_the_queue(tmp_path: Path) -> None:
    engine = Engine()
    async with open_bench(tmp_path, engine) as bench:
        assert stat.S_IMODE(bench.gateway.socket.stat().st_mode) == 0o600
        assert (await ask_admin(bench, "/admin/pause", {"model": "m"}))[0] == 200
        waiting = asyncio.create_task(bench.ask())
        await wait_for(lambda: bench.gateway.gates.waiting == 1, "it waits")

        _, state = await ask_admin(bench, "/admin/queue")

        assert state["schema"] == "llmgw.queue/1"
        (model,) = state["models"]
        assert (model["model"], model["waiting"], model["running"]) == ("m", 1, 0)
        assert (model["paused"], model["slots"]) == (True, 128)
        assert model["tenants"][0]["oldest_wait_s"] >= 0
        assert state["engines"][0]["state"] == "ready"

        await ask_admin(bench, "/admin/resume", {"model": "m"})
        assert (await waiting)[0] == 200

        await ask_admin(bench, "/admin/drain", {"model": "m"})
        status, body, _ = await bench.ask()
        assert (status, error_of(body)["code"]) == (503, "draining")
        await ask_admin(bench, "/admin/resume", {"model": "m"})

        await ask_admin(bench, "/admin/pause", {"tenant": "anonymous"})
        waiting = asyncio.create_task(bench.ask())
        await wait_for(lambda: bench.gateway.gates.waiting == 1, "the tenant waits")
        await ask_admin(bench, "/admin/resume", {"tenant": "anonymous"})
        assert (await waiting)[0] == 200

        for target, value, status in (
            ("/admin/pause", {"model": "nix"}, 404),
            ("/admin/pause", {"engine": engine.url}, 400),
            ("/admin/drain", {"engine": "nix"}, 404),
            ("/admin/drain", {"engine": engine.url, "model": "m"}, 400),
            ("/admin/drain", {}, 400),
            ("/admin/explode", {"model": "m"}, 404),
        ):
            assert (await ask_admin(bench, target, value))[0] == status


async def test_admin_key_may_what_the_socket_may(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    root = add_key(path, ApiKey("ops", is_admin=True))
    plain = add_key(path, ApiKey("t"))
    async with open_bench(tmp_path, Engine(), keys=str(path)) as bench:
        for target in ("/admin/queue", "/metrics"):
            for secret, status in ((root, 200), (plain, 404)):
                async with bench.client.get(bench.url + target, headers=bearer(secret)) as answer:
                    assert answer.status == status


async def test_metrics_count_what_happened(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine(), slots=1, queue={"waiting": 0}) as bench:
        first = asyncio.create_task(bench.ask("hold", stream=True))
        await wait_for(lambda: bench.engines[0].open == 1, "one runs")
        await bench.ask()
        await bench.ask(model="nix" * 50)
        bench.engines[0].go_on.set()
        await first

        _, text = await ask_admin(bench, "/metrics")

    who = 'band="normal",model="m"'
    assert f'llmgw_requests_total{{{who},outcome="ok",tenant="anonymous"}} 1.0' in text
    assert f'llmgw_requests_total{{{who},outcome="model_full",tenant="anonymous"}} 1.0' in text
    assert f'llmgw_refused_total{{{who},reason="model-full",tenant="anonymous"}} 1.0' in text
    assert 'llmgw_slots{model="m"} 1.0' in text
    assert "nixnix" not in text


async def test_reload_takes_keys_and_engines_over_and_drops_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    former = add_key(path, ApiKey("former"))
    engines = (Engine(), Engine(models=("n",)))
    first = [{"url": "placeholder"}]
    await engines[0].start()
    await engines[1].start()
    first = [{"url": engines[0].url}]
    async with open_bench(tmp_path, *engines, keys=str(path), engines=first) as bench:
        body = {"model": "m", "prompt": "hold", "stream": True}
        async with bench.client.post(
            f"{bench.url}/v1/completions", json=body, headers=bearer(former)
        ) as stream:
            path.unlink()
            fresh = add_key(path, ApiKey("fresh"))
            changes = {"keys": str(path), "engines": [{"url": engines[1].url}], "slots": 7}
            bench.gateway.reload(load_settings(None, changes))
            await bench.wait_ready()

            assert (await ask_as(bench, bearer(former)))[0] == 401
            assert (await ask_as(bench, bearer(fresh), model="n"))[0] == 200
            assert (await ask_as(bench, bearer(fresh)))[0] == 404
            path.write_text("broken")
            with pytest.raises(ConfigError):
                bench.gateway.reload(load_settings(None, changes))
            assert (await ask_as(bench, bearer(fresh), model="n"))[0] == 200

            engines[0].go_on.set()
            assert (await stream.read()).endswith(b"[DONE]\n\n")


async def test_drain_ends_what_runs_and_takes_nothing_new(tmp_path: Path) -> None:
    engine = Engine()
    async with open_bench(tmp_path, engine) as bench:
        stream = asyncio.create_task(bench.ask("hold", stream=True))
        await wait_for(lambda: engine.open == 1, "it runs")
        reader, writer = await bench.dial()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n"
        writer.write(head + b'{"model": "m"}')
        assert b" 200 " in await reader.readline()

        draining = asyncio.create_task(bench.gateway.drain())
        await wait_for(lambda: bench.gateway.edge.is_draining, "it drains")
        with pytest.raises(ConnectionRefusedError):
            await bench.dial()
        await reader.readuntil(b"}}")
        writer.write(head + b'{"model": "m"}')
        answer = await reader.read()
        assert b" 503 " in answer.split(b"\r\n")[0]
        assert b"Retry-After" in answer

        engine.go_on.set()
        await draining
        assert (await stream)[1].endswith(b"[DONE]\n\n")
        writer.close()


async def test_drain_that_takes_too_long_ends_streams_with_a_reason(tmp_path: Path) -> None:
    engine = Engine()
    async with open_bench(tmp_path, engine, drain_s=0.2, slots=1) as bench:
        stream = asyncio.create_task(bench.ask("hold", stream=True))
        await wait_for(lambda: engine.open == 1, "it runs")
        waiting = asyncio.create_task(bench.ask())
        await wait_for(lambda: bench.gateway.gates.waiting == 1, "one waits")

        await bench.gateway.drain()

        assert b'"code": "draining"' in (await stream)[1]
        status, body, _ = await waiting
        assert (status, error_of(body)["code"]) == (503, "draining")


async def test_tls_by_files(tmp_path: Path) -> None:
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    making = await asyncio.create_subprocess_exec(
        "openssl", *words.split(), cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL
    )
    assert await making.wait() == 0
    files: dict[str, Any] = {
        "tls_certificate": str(tmp_path / "cert.pem"),
        "tls_key": str(tmp_path / "key.pem"),
    }
    async with open_bench(tmp_path, Engine(), **files) as bench:
        context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        url = f"https://localhost:{bench.gateway.port}/v1/models"
        async with bench.client.get(url, ssl=context) as answer:
            assert answer.status == 200


@pytest.mark.slow
def test_command_serves_reloads_and_drains_on_sigterm(tmp_path: Path) -> None:
    asyncio.run(_run_command(tmp_path))


async def _run_command(tmp_path: Path) -> None:
    engine = Engine()
    await engine.start()
    port = free_port()
    path = tmp_path / "keys.toml"
    secret = add_key(path, ApiKey("t"))
    command = [sys.executable, "-m", "llmgw_core.cli.main", "gateway", "--keys", str(path)]
    command += ["--engine", engine.url, "--listen", f"127.0.0.1:{port}", "--access-log", "off"]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--socket",
        str(tmp_path / "admin.sock"),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
    )
    assert process.stderr is not None
    try:
        assert b"admin at" in await process.stderr.readline()
        async with aiohttp.ClientSession(headers=bearer(secret)) as client:
            await _wait_served(client, port)
            url = f"http://127.0.0.1:{port}/v1/completions"
            body = {"model": "m", "prompt": "hold", "stream": True}
            async with client.post(url, json=body) as stream:
                process.send_signal(signal.SIGHUP)
                assert b"reloaded" in await process.stderr.readline()
                process.send_signal(signal.SIGTERM)
                assert b"draining" in await process.stderr.readline()
                engine.go_on.set()
                assert (await stream.read()).endswith(b"[DONE]\n\n")
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        assert not (tmp_path / "admin.sock").exists()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await engine.kill()


async def _wait_served(client: aiohttp.ClientSession, port: int) -> None:
    async with asyncio.timeout(20):
        while True:
            async with client.get(f"http://127.0.0.1:{port}/v1/models") as answer:
                if (await answer.json())["data"]:
                    return
            await asyncio.sleep(0.05)


def test_add_key_prints_the_key_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys.toml"
    words = ["gateway", "add-key", "search", "--keys", str(path), "--model", "llama-*", "--weight"]

    assert main([*words, "2"]) == 0

    secret = capsys.readouterr().out.strip()
    key = load_keys(path, BANDS, allow_anonymous=False).find(secret)
    assert key == ApiKey("search", "normal", 2, ("llama-*",))
    assert main(["gateway", "add-key", "no good"]) == 2


def test_install_writes_a_unit_that_runs_these_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert main(["gateway", "--engine", "http://127.0.0.1:8000", "install"]) == 0

    path = tmp_path / "systemd/user/llmgw-gateway.service"
    assert capsys.readouterr().out.strip() == str(path)
    assert "gateway --engine http://127.0.0.1:8000\n" in path.read_text()


async def test_queue_command_reads_the_socket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        await bench.ask()
        words = ["queue", "--socket", str(bench.gateway.socket)]

        assert await asyncio.to_thread(main, [*words, "--json", "--pause", "model=m"]) == 0
        state = json.loads(capsys.readouterr().out)
        assert (state["models"][0]["paused"], state["models"][0]["admitted"]) == (True, 1)
        assert await asyncio.to_thread(main, [*words, "--resume", "model=m"]) == 0
        assert "anonymous" in capsys.readouterr().out
        assert await asyncio.to_thread(main, [*words, "--drain", "model=nix"]) == 10
        assert "no model" in capsys.readouterr().err
        assert await asyncio.to_thread(main, [*words, "--drain", "nothing"]) == 2
        (replica,) = bench.gateway.table.replicas
        assert replica.state is ReplicaState.READY
    assert await asyncio.to_thread(main, words) == 10
    assert "no gateway answers" in capsys.readouterr().err
