"""Engines on bad days: each client gets a clear answer or a clean end, the others go on, and no slot is left behind."""

import asyncio
import json
from pathlib import Path

import pytest

from llmgw_core.gateway.routing import ReplicaState
from tests.gateway.test_edge import error_of
from tests.support.gateways import EVENT, Bench, Engine, open_bench, wait_for


def last_event(body: bytes) -> dict[str, object]:
    assert body.endswith(b"\n\n")
    found: dict[str, object] = json.loads(body.rstrip().rpartition(b"data: ")[2])
    return found


def bytes_passed(bench: Bench) -> int:
    passages = [visit.passage for visit in bench.gateway.edge.open]
    return sum(passage.meter.bytes for passage in passages if passage is not None)


@pytest.mark.parametrize("prompt", ["die-mid", "garbage-mid"])
async def test_stream_that_breaks_ends_with_an_error_event(tmp_path: Path, prompt: str) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        asking = asyncio.create_task(bench.ask(prompt, stream=True))
        await wait_for(lambda: bytes_passed(bench) >= 3 * len(EVENT), "the stream goes on")
        bench.engines[0].go_on.set()
        status, body, _ = await asking

        assert status == 200
        assert body.startswith(EVENT * 3)
        assert error_of(json.dumps(last_event(body)).encode())["code"] == "engine_failed"
        await bench.wait_ready()
        assert (await bench.ask())[0] == 200


async def test_engine_that_stalls_in_a_stream_is_left(tmp_path: Path) -> None:
    engine = Engine()
    async with open_bench(tmp_path, engine, stall_timeout_s=0.3) as bench:
        status, body, _ = await bench.ask("hold", stream=True)
        assert status == 200
        assert error_of(json.dumps(last_event(body)).encode())["code"] == "engine_stalled"
        await wait_for(lambda: engine.aborted == 1, "the engine was told")

        status, body, _ = await bench.ask("hold-head")
        assert (status, error_of(body)["code"]) == (504, "engine_timeout")


async def test_torn_answer_is_an_error_not_half_an_answer(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        status, body, _ = await bench.ask("torn")
        assert (status, error_of(body)["code"]) == (502, "engine_failed")


async def test_what_is_no_stream_of_events_is_torn_for_the_client_too(tmp_path: Path) -> None:
    async with open_bench(tmp_path, Engine()) as bench:
        with pytest.raises((ConnectionError, OSError, Exception)) as caught:
            await bench.ask("torn-file")
        assert type(caught.value).__name__ in ("ClientPayloadError", "ClientOSError")


@pytest.mark.parametrize("prompt", ["close", "garbage", "503"])
async def test_request_without_an_answer_is_tried_once_elsewhere(
    tmp_path: Path, prompt: str
) -> None:
    engines = (Engine(), Engine())
    async with open_bench(tmp_path, *engines) as bench:
        status, body, _ = await bench.ask(prompt)

        assert (status, error_of(body)["code"]) == (502, "engine_failed")
        assert [len(engine.requests) for engine in engines] == [1, 1]
        await bench.wait_ready()
        assert (await bench.ask())[0] == 200


@pytest.mark.parametrize("prompt", ["400", "500"])
async def test_what_an_engine_answers_is_passed_on_and_not_tried_again(
    tmp_path: Path, prompt: str
) -> None:
    engines = (Engine(), Engine())
    async with open_bench(tmp_path, *engines) as bench:
        status, body, _ = await bench.ask(prompt)

        assert (status, body) == (int(prompt), b'{"error": {"message": "no"}}')
        assert sum(len(engine.requests) for engine in engines) == 1


async def test_broken_engine_gets_no_second_request(tmp_path: Path) -> None:
    engines = (Engine(), Engine())
    async with open_bench(tmp_path, *engines) as bench:
        engines[0].is_dead = True  # and says 200 to /health and /v1/models

        answers = [await bench.ask() for _ in range(20)]

        assert len(engines[0].requests) == 1
        assert [status for status, _, _ in answers].count(200) == 19
        engines[0].is_dead = False
        await bench.wait_ready()
        for _ in range(4):
            await bench.ask()
        assert len(engines[0].requests) > 1


async def test_replica_that_dies_with_a_hundred_streams_takes_none_of_the_others_along(
    tmp_path: Path,
) -> None:
    engines = (Engine(), Engine())
    async with open_bench(tmp_path, *engines, slots=100) as bench:
        asking = [asyncio.create_task(bench.ask("hold", stream=True)) for _ in range(200)]
        await wait_for(lambda: all(engine.open == 100 for engine in engines), "all run")

        await engines[0].kill()
        await wait_for(lambda: sum(task.done() for task in asking) == 100, "hundred ended")
        engines[1].go_on.set()
        bodies = [body for _, body, _ in await asyncio.gather(*asking)]

        broken = [body for body in bodies if b"engine_failed" in body]
        assert len(broken) == 100
        assert all(last_event(body) for body in broken)
        assert all(body.endswith(b"[DONE]\n\n") for body in bodies if body not in broken)
        assert [replica.running for replica in bench.gateway.table.replicas] == [0, 0]
        await engines[0].start()
        await bench.wait_ready()


async def test_engine_that_is_gone_is_left_and_taken_back(tmp_path: Path) -> None:
    engine = Engine()
    async with open_bench(tmp_path, engine) as bench:
        await engine.kill()
        (replica,) = bench.gateway.table.replicas
        await wait_for(lambda: replica.state is ReplicaState.DOWN, "down")

        status, body, headers = await bench.ask()

        assert (status, error_of(body)["code"]) == (503, "no_engine")
        assert "Retry-After" in headers
        await engine.start()
        await bench.wait_ready()
        assert (await bench.ask())[0] == 200


async def test_who_waits_for_an_engine_that_dies_is_told_so(tmp_path: Path) -> None:
    engine = Engine()
    async with open_bench(tmp_path, engine, slots=1) as bench:
        first = asyncio.create_task(bench.ask("hold", stream=True))
        await wait_for(lambda: engine.open == 1, "one runs")
        waiting = asyncio.create_task(bench.ask())
        await wait_for(lambda: bench.gateway.gates.waiting == 1, "one waits")

        await engine.kill()

        assert b"engine_failed" in (await first)[1]
        status, body, _ = await waiting
        assert (status, error_of(body)["code"]) == (503, "no_engine")
        await engine.start()


async def test_client_that_reads_nothing_any_more_loses_its_slot(tmp_path: Path) -> None:
    body = b'{"model": "m", "prompt": "flood", "stream": true}'
    async with open_bench(tmp_path, Engine(), stall_timeout_s=0.5, slots=1) as bench:
        reader, writer = await bench.dial()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await wait_for(lambda: bench.engines[0].open == 1, "it runs")

        assert (await bench.ask())[0] == 200
        assert bench.engines[0].aborted == 1
        writer.transport.abort()


async def test_full_engine_gets_nothing_more_before_it_was_read_again(tmp_path: Path) -> None:
    busy = b'vllm:num_requests_running{engine="0"} 9.0\nvllm:num_requests_waiting{engine="0"} %d\n'
    engine = Engine(metrics=busy % 50)
    async with open_bench(tmp_path, engine) as bench:
        first = asyncio.create_task(bench.ask("hold"))
        await wait_for(lambda: engine.open == 1, "one runs")
        second = asyncio.create_task(bench.ask())
        await wait_for(lambda: bench.gateway.gates.waiting == 1, "the other waits here")

        engine.metrics = busy % 0

        assert (await second)[0] == 200
        engine.go_on.set()
        await first


async def test_least_loaded_replica_is_chosen(tmp_path: Path) -> None:
    engines = (Engine(), Engine(), Engine())
    async with open_bench(tmp_path, *engines, slots=4) as bench:
        asking = [asyncio.create_task(bench.ask("hold")) for _ in range(9)]
        await wait_for(lambda: sum(engine.open for engine in engines) == 9, "all run")

        assert [engine.open for engine in engines] == [3, 3, 3]
        for engine in engines:
            engine.go_on.set()
        await asyncio.gather(*asking)


async def test_drained_engine_ends_what_it_runs_and_gets_nothing(tmp_path: Path) -> None:
    engines = (Engine(), Engine())
    async with open_bench(tmp_path, *engines) as bench:
        asking = [asyncio.create_task(bench.ask("hold", stream=True)) for _ in range(2)]
        await wait_for(lambda: [engine.open for engine in engines] == [1, 1], "both run")
        bench.gateway.table.replicas[0].is_draining = True

        for _ in range(5):
            assert (await bench.ask())[0] == 200

        assert [len(engine.requests) for engine in engines] == [1, 6]
        for engine in engines:
            engine.go_on.set()
        assert all(body.endswith(b"[DONE]\n\n") for _, body, _ in await asyncio.gather(*asking))


async def test_like_prompts_go_to_like_engines_where_that_is_asked_for(tmp_path: Path) -> None:
    engines = (Engine(), Engine(), Engine())

    async def spread(bench: Bench, prompt: str) -> int:
        before = [len(engine.requests) for engine in engines]
        for _ in range(6):
            assert (await bench.ask(prompt))[0] == 200
        after = [len(engine.requests) for engine in engines]
        return sum(now > then for now, then in zip(after, before, strict=True))

    async with open_bench(tmp_path, *engines, prefix_affinity=True) as bench:
        assert [await spread(bench, f"document {number}") for number in range(24)] == [1] * 24
        assert all(engine.requests for engine in engines)
