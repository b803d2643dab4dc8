"""Gateways for the console's tests and pictures: domain objects, no network, one fixed clock."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from llmgw_core.domain.inventory import NodeFault
from llmgw_core.domain.queue import (
    QUEUE_SCHEMA,
    GatewayIdentity,
    GatewaysPicture,
    GatewayView,
    QueuedEngine,
    QueuedModel,
    QueuedTenant,
    QueueState,
)
from llmgw_core.errors import LlmgwError
from tests.support.fleets import NOW

SOCKET = "/run/user/1000/llmgw/gateway-8080.sock"


def make_tenant(tenant: str, band: str = "normal", **changes: object) -> QueuedTenant:
    """An idle tenant."""
    return replace(QueuedTenant(band, tenant, weight_share=0.5), **changes)  # type: ignore[arg-type]


def make_queue_engine(name: str, port: int, **changes: object) -> QueuedEngine:
    """A ready engine that runs something."""
    engine = QueuedEngine(
        name,
        f"http://127.0.0.1:{port}",
        ("llama-70b",),
        "ready",
        slots=16,
        running=14,
        served=2210,
        engine_running=14,
        engine_waiting=0,
        kv_usage=0.62,
    )
    return replace(engine, **changes)  # type: ignore[arg-type]


def make_queue() -> QueueState:
    """Two models: one that is full, with a tenant that gets less than its weight, and one that loads."""
    search = make_tenant(
        "search",
        "high",
        weight=2,
        running=22,
        waiting=9,
        oldest_wait_s=0.8,
        admitted=1820,
        used_tokens=912_000,
        admitted_per_s=6.1,
        tokens_per_s=2100.0,
        share=0.88,
        weight_share=0.67,
    )
    batch = make_tenant(
        "batch",
        "low",
        running=6,
        waiting=31,
        oldest_wait_s=41.0,
        admitted=402,
        used_tokens=190_400,
        admitted_per_s=0.7,
        tokens_per_s=290.0,
        refused={"tenant-full": 12},
        share=0.12,
        weight_share=0.33,
    )
    llama = QueuedModel(
        "llama-70b",
        "open",
        slots=32,
        running=28,
        waiting=40,
        waiting_bytes=1_310_720,
        oldest_wait_s=41.0,
        admitted=2222,
        expired=3,
        cancelled=1,
        refused={"tenant-full": 12},
        tenants=(search, batch),
    )
    return QueueState(
        QUEUE_SCHEMA,
        "2026-01-01T00:00:00Z",
        gateway=GatewayIdentity("ab" * 8, "127.0.0.1:8080", 812, "2025-12-31T21:55:00Z"),
        models=(llama, QueuedModel("qwen-vl", "loading")),
        engines=(
            make_queue_engine("chat-1 on gpu1", 8000),
            make_queue_engine("chat-2 on gpu2", 8001, engine_waiting=2, kv_usage=0.97),
            make_queue_engine(
                "vl on gpu3",
                8002,
                models=(),
                state="loading",
                trouble="ConnectionRefusedError",
                running=0,
                engine_running=None,
                engine_waiting=None,
                kv_usage=None,
            ),
        ),
    )


def make_gateways(*views: GatewayView, away: tuple[str, ...] = ()) -> GatewaysPicture:
    """All of them found; without any given, one on gpu1."""
    whole = views or (GatewayView("gpu1", SOCKET, make_queue(), NOW - 1),)
    return GatewaysPicture(whole, 4, away, is_searched=True)


def make_lost_gateway() -> GatewayView:
    """A gateway that answered once and does so no more."""
    fault = NodeFault("gateway", f"no gateway answers at {SOCKET}: Connection refused", "start it")
    return GatewayView("gpu1", SOCKET, make_queue(), NOW - 90, fault)


class FakeGateways:
    """Pictures on demand, and a record of what was steered."""

    def __init__(self, *pictures: GatewaysPicture) -> None:
        self._pictures: asyncio.Queue[GatewaysPicture] = asyncio.Queue()
        for picture in pictures:
            self._pictures.put_nowait(picture)
        self.steered: list[tuple[str, ...]] = []
        self.followers = 0
        self.searches = 0
        self.error: LlmgwError | None = None

    def push(self, picture: GatewaysPicture) -> None:
        """Let the console see this picture next."""
        self._pictures.put_nowait(picture)

    async def pictures(self) -> AsyncIterator[GatewaysPicture]:
        """Every picture pushed, in order; never ends."""
        self.followers += 1
        try:
            while True:
                yield await self._pictures.get()
        finally:
            self.followers -= 1

    async def steer(self, node: str, socket: str, verb: str, kind: str, name: str) -> None:
        """Note it."""
        self.steered.append((node, socket, verb, kind, name))
        if self.error is not None:
            raise self.error

    def search_now(self) -> None:
        """Count."""
        self.searches += 1
