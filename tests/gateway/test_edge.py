"""The gateway over real sockets: what passes, what is refused, and that no slot is ever left behind."""

import asyncio
import json
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.gateway.routing import ReplicaState
from tests.support.gateways import DONE, EVENT, USAGE, Bench, Engine, open_bench, wait_for


def error_of(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


async def test_answer_passes_unchanged_and_what_it_used_is_known(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        status, body, headers = await bench.ask("plain", user="x")
        assert (status, json.loads(body)["usage"]["total_tokens"]) == (200, 12)
        assert headers["Content-Type"] == "application/json"

        status, body, headers = await bench.ask("stream", stream=True)
        assert (status, body) == (200, EVENT * 3 + USAGE + DONE)
        assert headers["Content-Type"] == "text/event-stream"

        (state,) = [queue.state(0.0) for queue in bench.gateway.gates.queues]
        assert [(item.admitted, item.used_tokens) for item in state.tenants] == [(2, 24)]
        assert [asked["user"] for asked in bench.engines[0].requests[:1]] == ["x"]


async def test_of_eight_streams_two_run_two_wait_and_four_are_refused_at_once(
    tmp_path: Path,
) -> None:
    engine = Engine()
    queue = {"waiting": 2, "timeout_s": 1.0}
    async with open_bench(tmp_path, engine, slots=2, queue=queue) as bench:
        asking = [asyncio.create_task(bench.ask("hold", stream=True)) for _ in range(8)]
        await wait_for(lambda: sum(task.done() for task in asking) == 4, "four refused")
        assert engine.open == 2
        refused = [task.result() for task in asking if task.done()]
        assert {status for status, _, _ in refused} == {429}
        assert {error_of(body)["code"] for _, body, _ in refused} == {"model_full"}
        assert all(1 <= int(headers["Retry-After"]) <= 60 for _, _, headers in refused)

        engine.go_on.set()
        outcome = Counter([status for status, _, _ in await asyncio.gather(*asking)])

        assert outcome == {200: 4, 429: 4}
        assert len(engine.requests) == 4


async def test_who_waits_too_long_is_told_so(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine(), slots=1, queue={"timeout_s": 0.2}) as bench:
        first = asyncio.create_task(bench.ask("hold"))
        await wait_for(lambda: bench.engines[0].open == 1, "the first runs")

        status, body, headers = await bench.ask()

        assert (status, error_of(body)["code"]) == (504, "queue_timeout")
        assert "Retry-After" in headers
        bench.engines[0].go_on.set()
        assert (await first)[0] == 200


@pytest.mark.parametrize("prompt", ["hold", "hold-head"])
@pytest.mark.parametrize("is_stream", [True, False])
async def test_when_the_client_goes_the_engine_is_told_and_the_slot_is_free(
    tmp_path: Path, prompt: str, *, is_stream: bool
) -> None:
    engine = Engine()
    async with open_bench(tmp_path, engine, slots=1) as bench:
        going = asyncio.create_task(bench.ask(prompt, stream=is_stream))
        await wait_for(lambda: engine.open == 1, "it runs")
        waiting = asyncio.create_task(bench.ask())
        await wait_for(lambda: bench.gateway.gates.waiting == 1, "another waits")

        going.cancel()

        assert (await waiting)[0] == 200
        await wait_for(lambda: engine.aborted == 1, "the engine was told")
        (replica,) = bench.gateway.table.replicas
        assert replica.state is ReplicaState.READY


async def test_who_goes_while_he_waits_leaves_nothing(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine(), slots=1) as bench:
        first = asyncio.create_task(bench.ask("hold"))
        await wait_for(lambda: bench.engines[0].open == 1, "the first runs")
        going = [asyncio.create_task(bench.ask()) for _ in range(20)]
        await wait_for(lambda: bench.gateway.gates.waiting == 20, "twenty wait")

        for task in going:
            task.cancel()

        await wait_for(lambda: bench.gateway.gates.waiting == 0, "all are gone")
        bench.engines[0].go_on.set()
        assert (await first)[0] == 200
        assert len(bench.engines[0].requests) == 1


BAD_BODIES: list[tuple[bytes, str]] = [
    (b"", "invalid_json"),
    (b"{", "invalid_json"),
    (b"\xff\xfe", "invalid_json"),
    (b"[1]", "invalid_json"),
    (b"[" * 200_000, "invalid_json"),
    (b'{"model": ' + b"1" * 9_000 + b"}", "invalid_json"),
    (b"{}", "invalid_value"),
    (b'{"model": 7}', "invalid_value"),
    (b'{"model": null}', "invalid_value"),
    (b'{"model": "m", "stream": "yes"}', "invalid_value"),
    (b'{"model": "m", "max_tokens": "many"}', "invalid_value"),
    (b'{"model": "m", "max_tokens": -1}', "invalid_value"),
    (b'{"model": "m", "n": true}', "invalid_value"),
    (b'{"model": "m", "n": 1e99}', "invalid_value"),
]


@pytest.mark.parametrize(("body", "code"), BAD_BODIES, ids=lambda value: repr(value)[:30])
async def test_bad_body_is_answered_by_the_gateway(tmp_path: Path, body: bytes, code: str) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        async with bench.client.post(f"{bench.url}/v1/completions", data=body) as answer:
            assert answer.status == 400
            assert error_of(await answer.read())["code"] == code
        assert bench.engines[0].requests == []


async def test_unknown_paths_methods_and_models(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        for method, path, status in (
            ("GET", "/v1/chat/completions", 405),
            ("POST", "/v1/files", 404),
            ("GET", "/nothing", 404),
            ("GET", "/admin/queue", 404),
            ("GET", "/metrics", 404),
            ("GET", "/v1/models/nix", 404),
            ("GET", "/v1/models/m", 200),
            ("GET", "/health", 200),
        ):
            async with bench.client.request(method, bench.url + path) as answer:
                assert (path, answer.status) == (path, status)
        status, body, _ = await bench.ask(model="nix")
        assert (status, error_of(body)["code"]) == (404, "model_not_found")
        status, body, _ = await bench.ask(model="nix", path="/v1/messages")
        assert json.loads(body)["type"] == "error"


async def test_hundred_megabytes_are_refused_before_they_come(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine(), max_body_mib=1) as bench:
        reader, writer = await bench.dial()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n{"
        )
        assert b" 413 " in await reader.readline()
        writer.close()

        async def pieces() -> Any:
            for _ in range(100):
                yield b"x" * (1 << 20)

        try:
            async with bench.client.post(f"{bench.url}/v1/completions", data=pieces()) as answer:
                assert answer.status == 413
        except ConnectionError:
            pass  # it was still sending when the gateway had heard enough


async def test_slow_loris_is_let_go(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine(), head_timeout_s=0.3, body_timeout_s=0.3) as bench:
        reader, writer = await bench.dial()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-")
        assert await reader.read() == b""
        writer.close()

        reader, writer = await bench.dial()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert b" 408 " in await reader.readline()
        writer.close()


async def test_half_closed_connection_counts_as_gone(tmp_path: Path) -> None:
    body = b'{"model": "m", "prompt": "hold"}'
    async with open_bench(tmp_path, Engine()) as bench:
        reader, writer = await bench.dial()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await wait_for(lambda: bench.engines[0].open == 1, "it runs")

        writer.write_eof()

        assert await reader.read() == b""
        await wait_for(lambda: bench.engines[0].aborted == 1, "the engine was told")
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"X-%d: x\r\n" % number for number in range(5_000)),
        b"X-Long: " + b"x" * 100_000 + b"\r\n",
        b"no header at all\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
    ],
    ids=lambda head: repr(head[:20]),
)
async def test_bad_head_is_refused_and_the_others_go_on(tmp_path: Path, head: bytes) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        reader, writer = await bench.dial()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n{}")
        answer = await reader.readline()
        assert b" 400 " in answer, answer
        writer.close()
        assert (await bench.ask())[0] == 200
        assert len(bench.engines[0].requests) == 1


async def test_hop_by_hop_headers_and_keys_do_not_reach_the_engine(tmp_path: Path) -> None:
    secret = tmp_path / "engine.key"
    secret.write_text("of-the-engine\n")
    engine = Engine()
    await engine.start()
    entry = {"url": engine.url, "api_key_file": str(secret)}
    async with open_bench(tmp_path, engine, engines=[entry]) as bench:
        headers = {
            "Connection": "keep-alive, X-Once",
            "X-Once": "1",
            "TE": "trailers",
            "Cookie": "a=b",
            "X-Llmgw-Band": "low",
            "X-Trace": "kept",
        }
        async with bench.client.post(
            f"{bench.url}/v1/completions", json={"model": "m"}, headers=headers
        ) as answer:
            assert answer.status == 200
            assert answer.headers["Server"] == "llmgw"
        head = bench.engines[0].heads[-1].lower()
    for word in (b"x-once", b"\r\nte:", b"cookie", b"x-llmgw"):
        assert word not in head
    assert b"authorization: bearer of-the-engine" in head
    assert b"x-trace: kept" in head


async def test_both_legs_send_small_pieces_at_once(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        asking = asyncio.create_task(bench.ask("hold", stream=True))
        await wait_for(lambda: bench.engines[0].open == 1, "it runs")
        (visit,) = bench.gateway.edge.open
        assert visit.passage is not None
        transports = [visit.passage.request.transport]
        assert visit.passage.upstream is not None
        connection = visit.passage.upstream.connection
        assert connection is not None
        transports.append(connection.transport)

        for transport in transports:
            assert transport is not None
            raw = transport.get_extra_info("socket")
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        bench.engines[0].go_on.set()
        await asking


async def test_expect_100_continue_is_answered(tmp_path: Path) -> None:
    body = b'{"model": "m"}'
    async with open_bench(tmp_path, Engine()) as bench:
        reader, writer = await bench.dial()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body))
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        await reader.readline()
        writer.write(body)
        assert b" 200 " in await reader.readline()
        writer.close()


async def test_log_has_who_and_how_long_and_no_prompt(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        await bench.ask("a secret plan")
        await bench.ask("a secret plan", model="nix")
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]

    assert [(line["status"], line["outcome"], line["tenant"]) for line in lines] == [
        (200, "ok", "anonymous"),
        (404, "model_not_found", "anonymous"),
    ]
    assert lines[0]["prompt_tokens"] == 7
    assert "secret" not in (tmp_path / "access.log").read_text()


async def test_while_it_loads_clients_are_told_when_to_come_back(tmp_path: Path) -> None:
    engine = Engine(is_healthy=False)
    await engine.start()

    async def look(bench: Bench) -> None:
        await wait_for(lambda: bench.gateway.table.replicas[0].trouble != "", "it was asked")
        status, body, headers = await bench.ask()
        assert (status, error_of(body)["code"]) == (503, "model_loading")
        assert int(headers["Retry-After"]) > 0
        engine.is_healthy = True
        await bench.wait_ready()

    entry = {"url": engine.url, "model": "m"}
    async with open_bench(tmp_path, engine, engines=[entry], on_open=look) as bench:
        assert (await bench.ask())[0] == 200
