"""An engine is asked politely and believed only when every answer is right."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from llmgw_core.agent import readiness
from llmgw_core.agent.readiness import Answer, Prober, ask_engine, find_api_key, http_request
from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.launch import RankPlan
from tests.support.engines import wait_until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def plan(port: int = 1, **changes: object) -> RankPlan:
    values: dict[str, object] = {
        "engine_id": "e-00000001",
        "name": "e",
        "engine": EngineKind.VLLM,
        "model": "m",
        "served_model_name": "tiny",
        "node": "n",
        "argv": ("vllm", "serve"),
        "env": {},
        "port": port,
        **changes,
    }
    return RankPlan(**values)  # type: ignore[arg-type]  # a test's own mix of fields


def answer(status: int, value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


@contextmanager
def serve(replies: dict[str, bytes]) -> Iterator[int]:
    """A server that gives these bytes for these paths, and 404 else, until left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer_all, args=(listener, replies))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def _answer_all(listener: socket.socket, replies: dict[str, bytes]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            path = connection.recv(65536).split(b" ")[1].decode()
            connection.sendall(replies.get(path, answer(404, {})))


HEALTHY = {"/health": OK, "/v1/models": answer(200, {"data": [{"id": "tiny"}]})}


def test_nobody_listening_is_not_a_word_against_it() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))

        said = ask_engine(plan(bound.getsockname()[1]), None, Answer())

    assert (said.is_listening, said.is_healthy, said.misses) == (False, False, 1)


def test_chat_is_asked_where_completions_are_not_served() -> None:
    with serve({**HEALTHY, "/v1/chat/completions": OK}) as port:
        said = ask_engine(plan(port), None, Answer())

    assert (said.is_healthy, said.is_verified) == (True, True)


def test_embedding_model_is_asked_for_an_embedding() -> None:
    with serve({**HEALTHY, "/v1/embeddings": OK}) as port:
        assert ask_engine(plan(port), None, Answer()).is_verified


def test_token_is_asked_for_once() -> None:
    with serve(HEALTHY) as port:
        said = ask_engine(plan(port), None, Answer(is_verified=True))

    assert (said.is_healthy, said.is_verified, said.misses) == (True, True, 0)


@pytest.mark.parametrize(
    "models",
    [
        answer(200, {"data": []}),
        answer(200, [1]),
        answer(200, {"data": [3]}),
        answer(500, {}),
        b"junk",
    ],
)
def test_model_list_that_is_wrong_is_not_healthy(models: bytes) -> None:
    with serve({"/health": OK, "/v1/models": models}) as port:
        said = ask_engine(plan(port), None, Answer(is_verified=True))

    assert not said.is_healthy
    assert said.trouble


def test_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw_core.agent.readiness.MAX_BODY_BYTES", 1000)
    with serve({"/x": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 50_000}) as port:
        status, body = http_request(("127.0.0.1", port), "/x", None, None, 5)

    assert status == 200
    assert len(body) <= 65536


def test_server_that_says_nothing_runs_into_the_timeout() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(TimeoutError),
    ):
        http_request(("127.0.0.1", listener.getsockname()[1]), "/health", None, None, 0.1)


@pytest.mark.parametrize(
    ("changes", "secrets", "key"),
    [
        ({}, {}, None),
        ({}, {"VLLM_API_KEY": "a"}, "a"),
        ({"env": {"VLLM_API_KEY": "b"}}, {}, "b"),
        ({"argv": ("vllm", "--api-key", "c")}, {}, "c"),
        ({"argv": ("vllm", "--api-key=d")}, {}, "d"),
    ],
)
def test_key_is_found_where_the_engine_finds_it(
    changes: dict[str, object], secrets: dict[str, str], key: str | None
) -> None:
    assert find_api_key(plan(**changes), secrets) == key  # type: ignore[arg-type]  # as above


def test_ready_engine_is_asked_seldom_while_nobody_looks_and_at_once_when_somebody_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "READY_INTERVAL_S", 0.01)
    monkeypatch.setattr(readiness, "UNWATCHED_INTERVAL_S", 60.0)
    with serve(HEALTHY) as port:
        prober = Prober(plan(port, verify=False), None, verified=True)
        try:
            wait_until(lambda: prober.latest.rounds > 3, "it is asked again and again")
            prober.set_watched(False)
            time.sleep(0.3)
            left = prober.latest.rounds
            time.sleep(0.3)
            assert prober.latest.rounds == left

            prober.set_watched(True)
            wait_until(lambda: prober.latest.rounds > left + 1, "it is asked as before")
        finally:
            prober.close(5.0)
