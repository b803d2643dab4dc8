"""Whether an engine answers, asked over and over: health, model list, once a token, and its own load.

An engine whose core is dead goes on saying 200 to /health and /v1/models: after any failure of a request a token must
come back before another request is sent.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from llmgw_core.gateway.routing import Replica, ReplicaState

READY_INTERVAL_S = 1.0
OTHER_INTERVAL_S = 0.5
HEALTH_TIMEOUT_S = 25.0  # SGLang's /health makes a token
ASK_TIMEOUT_S = 10.0
TOKEN_TIMEOUT_S = 180.0  # the first request may compile
MISSES_MOST = 3  # rounds without an answer in time, before a ready engine is taken for down
MAX_BODY_BYTES = 8 << 20
_NOT_HERE = (400, 404, 405, 422, 501)  # this engine does not serve that kind of request
_OK, _NOT_FOUND = 200, 404
_LOADS = {
    "running": re.compile(
        rb"^(?:vllm:num_requests_running|sglang:num_running_reqs)(?:\{[^\n]*\})? (\S+)",
        re.MULTILINE,
    ),
    "waiting": re.compile(
        rb"^(?:vllm:num_requests_waiting|sglang:num_queue_reqs)(?:\{[^\n]*\})? (\S+)", re.MULTILINE
    ),
    "kv": re.compile(
        rb"^(?:vllm:kv_cache_usage_perc|sglang:token_usage)(?:\{[^\n]*\})? (\S+)", re.MULTILINE
    ),
}


@dataclass(frozen=True)
class Load:
    """What an engine says of itself."""

    running: int
    waiting: int
    kv_usage: float | None


def parse_load(text: bytes) -> Load | None:
    """Read `vllm:num_requests_running{engine="0",model_name="m"} 3.0` and its like; several engines are summed up.

    None: there is no such metric.
    """
    values: dict[str, list[float]] = {}
    for name, pattern in _LOADS.items():
        try:
            values[name] = [float(item) for item in pattern.findall(text)]
        except ValueError:
            return None
    numbers = [*values["running"], *values["waiting"]]
    if not values["running"] or not values["waiting"] or not all(0 <= n < 1e9 for n in numbers):  # noqa: PLR2004
        return None
    usage = max(values["kv"], default=None)
    return Load(int(sum(values["running"])), int(sum(values["waiting"])), usage)


class _Missing(Exception):
    """What is wrong with the engine."""

    def __init__(self, why: str, *, is_listening: bool) -> None:
        super().__init__(why)
        self.is_listening = is_listening


class Prober:
    """Keeps one replica's state. `run` ends when cancelled."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        replica: Replica,
        on_change: Callable[[], None],
    ) -> None:
        self.replica = replica
        self.is_held_back = False  # by who knows more, such as that a rank of its gang is dead
        self._session = session
        self._on_change = on_change
        self._poke = asyncio.Event()
        self._misses = 0
        self._was_ready = False

    def poke(self) -> None:
        """Look again at once."""
        self._poke.set()

    async def run(self) -> None:
        """Ask, for ever."""
        while True:
            self._poke.clear()
            before = (self.replica.state, self.replica.models)
            await self._look()
            if (self.replica.state, self.replica.models) != before:
                self._on_change()
            is_ready = self.replica.state is ReplicaState.READY
            try:
                async with asyncio.timeout(READY_INTERVAL_S if is_ready else OTHER_INTERVAL_S):
                    await self._poke.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        replica = self.replica
        if self.is_held_back:
            self._step_down("its launch is not ready", ReplicaState.LOADING)
            return
        failures = replica.failures
        try:
            await self._ask_health()
            cards = await self._ask_models()
            is_proven = replica.state is ReplicaState.READY
            if not is_proven:
                await self._ask_token(next(iter(cards)))
        except TimeoutError:
            self._misses += 1
            if replica.state is not ReplicaState.READY or self._misses >= MISSES_MOST:
                self._step_down("it does not answer in time", ReplicaState.DOWN)
            return
        except _Missing as error:
            state = ReplicaState.LOADING if error.is_listening else ReplicaState.DOWN
            self._step_down(str(error), state)
            return
        self._misses = 0
        replica.cards = cards
        replica.models = tuple(cards)
        await self._read_load()
        if not is_proven and replica.failures == failures and not self.is_held_back:
            replica.state, replica.trouble = ReplicaState.READY, ""
            self._was_ready = True

    def _step_down(self, why: str, state: ReplicaState) -> None:
        if state is ReplicaState.DOWN and not self._was_ready:
            state = (
                ReplicaState.LOADING
            )  # nobody can tell from afar what is not up yet from what is gone
        self.replica.state, self.replica.trouble = state, why

    async def _ask_health(self) -> None:
        status, _ = await self._ask("/health", HEALTH_TIMEOUT_S)
        if status not in (_OK, _NOT_FOUND):
            raise _Missing(f"/health says {status}", is_listening=True)

    async def _ask_models(self) -> dict[str, dict[str, object]]:
        status, body = await self._ask("/v1/models", ASK_TIMEOUT_S)
        try:
            data = json.loads(body)
            items = data["data"] if status == _OK else []
            cards = {item["id"]: item for item in items if isinstance(item["id"], str)}
        except (ValueError, KeyError, TypeError, RecursionError):
            cards = {}
        if not cards:
            raise _Missing(f"/v1/models says {status} and lists nothing", is_listening=True)
        return cards

    async def _ask_token(self, model: str) -> None:
        token = {"model": model, "max_tokens": 1, "temperature": 0}
        requests: tuple[tuple[str, dict[str, object]], ...] = (
            ("/v1/completions", {**token, "prompt": "Hi"}),
            ("/v1/chat/completions", {**token, "messages": [{"role": "user", "content": "Hi"}]}),
            ("/v1/embeddings", {"model": model, "input": "Hi"}),
        )
        said = ""
        for path, value in requests:
            status, _ = await self._ask(path, TOKEN_TIMEOUT_S, value)
            if status == _OK:
                return
            said = said or f"{path} says {status}"
            if status not in _NOT_HERE:
                break
        raise _Missing(said, is_listening=True)

    async def _read_load(self) -> None:
        try:
            status, body = await self._ask("/metrics", ASK_TIMEOUT_S)
        except (TimeoutError, _Missing):
            return
        load = parse_load(body) if status == _OK else None
        if load is not None:
            was_full = not self.replica.free_slots
            self.replica.note_load(load.running, load.waiting, load.kv_usage)
            if was_full and self.replica.free_slots:
                self._on_change()

    async def _ask(
        self, path: str, timeout_s: float, value: dict[str, object] | None = None
    ) -> tuple[int, bytes]:
        """(status, body). TimeoutError and _Missing are all that comes else."""
        key = self.replica.api_key
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    "GET" if value is None else "POST",
                    self.replica.url + path,
                    json=value,
                    headers=headers,
                    allow_redirects=False,
                ) as answer,
            ):
                body = await answer.content.read(MAX_BODY_BYTES)
                while len(body) < MAX_BODY_BYTES and (more := await answer.content.readany()):
                    body += more
                return answer.status, body
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise _Missing(why, is_listening=False) from None
