"""The queue's state as a document, `llmgw.queue/1`: what `llmgw queue` and the console show."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from llmgw_core.admission.queue import ModelState, TenantState
from llmgw_core.domain.queue import QUEUE_SCHEMA
from llmgw_core.gateway.gate import Gates
from llmgw_core.gateway.routing import Replica

RATES_OVER_S = 10.0
_Key = tuple[str, str, str]


class Rates:
    """How fast counters rise, over the last ten seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[_Key, tuple[int, int]]]] = deque()

    def sample(self, now: float, states: Iterable[ModelState]) -> None:
        """Take the counters; about once a second."""
        taken = {
            _key(item): (item.admitted, item.used_tokens)
            for state in states
            for item in state.tenants
        }
        self._samples.append((now, taken))
        while now - self._samples[0][0] > RATES_OVER_S:
            self._samples.popleft()

    def of(self, item: TenantState, now: float) -> tuple[float, float]:
        """(admitted, tokens) a second."""
        if not self._samples:
            return 0.0, 0.0
        since, taken = self._samples[0]
        admitted, tokens = taken.get(_key(item), (0, 0))
        span_s = max(now - since, 1.0)
        return (item.admitted - admitted) / span_s, (item.used_tokens - tokens) / span_s


def draw_queue(
    gates: Gates, rates: Rates, now: float, most_tenants: int | None = None
) -> dict[str, object]:
    """The document, without who the gateway is.

    Args:
        most_tenants: of all models together those that wait, run or used most; None: all.
    """
    states = [queue.state(now) for queue in gates.queues]
    return {
        "schema": QUEUE_SCHEMA,
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "models": [
            _draw_model(state, kept, gates, rates, now)
            for state, kept in zip(states, _choose_tenants(states, most_tenants), strict=True)
        ],
        "engines": [_draw_engine(replica) for replica in gates.table.replicas],
    }


def _choose_tenants(
    states: Sequence[ModelState], most: int | None
) -> Iterator[tuple[TenantState, ...]]:
    """Of each model the tenants to tell of, in their order."""
    everyone = [item for state in states for item in state.tenants]
    if most is None or len(everyone) <= most:
        return (state.tenants for state in states)
    everyone.sort(key=lambda item: (item.waiting, item.running, item.used_tokens), reverse=True)
    kept = {_key(item) for item in everyone[:most]}
    return (tuple(item for item in state.tenants if _key(item) in kept) for state in states)


def _draw_model(
    state: ModelState, kept: tuple[TenantState, ...], gates: Gates, rates: Rates, now: float
) -> dict[str, object]:
    total = sum(rates.of(item, now)[1] for item in state.tenants)
    weights = sum(item.weight for item in state.tenants) or 1
    return {
        "model": state.model,
        "status": gates.table.status(state.model).value,
        "slots": state.slots,
        "running": state.running,
        "waiting": state.waiting,
        "waiting_bytes": state.waiting_bytes,
        "oldest_wait_s": max((item.oldest_wait_s or 0.0 for item in state.tenants), default=0.0),
        "admitted": state.admitted,
        "expired": state.expired,
        "cancelled": state.cancelled,
        "refused": {
            reason.value: number for reason, number in sorted(state.refused.items(), key=str)
        },
        "paused": state.is_paused,
        "draining": state.is_draining,
        "tenants": [
            {
                **_draw_tenant(item, rates, now),
                "share": round(rates.of(item, now)[1] / total, 4) if total else None,
                "weight_share": round(item.weight / weights, 4),
            }
            for item in kept
        ],
        "tenants_left_out": len(state.tenants) - len(kept),
    }


def _draw_tenant(item: TenantState, rates: Rates, now: float) -> dict[str, object]:
    admitted, tokens = rates.of(item, now)
    return {
        "band": item.band,
        "tenant": item.tenant,
        "waiting": item.waiting,
        "running": item.running,
        "oldest_wait_s": None if item.oldest_wait_s is None else round(item.oldest_wait_s, 3),
        "admitted": item.admitted,
        "used_tokens": item.used_tokens,
        "admitted_per_s": round(admitted, 3),
        "tokens_per_s": round(tokens, 3),
        "refused": {
            reason.value: number for reason, number in sorted(item.refused.items(), key=str)
        },
        "weight": item.weight,
        "paused": item.is_paused,
    }


def _draw_engine(replica: Replica) -> dict[str, object]:
    return {
        "name": replica.name,
        "url": replica.url,
        "models": list(replica.models),
        "state": replica.state.value,
        "trouble": replica.trouble,
        "draining": replica.is_draining,
        "slots": replica.slots,
        "running": replica.running,
        "served": replica.served,
        "failures": replica.failures,
        "engine_running": replica.engine_running,
        "engine_waiting": replica.engine_waiting,
        "kv_usage": replica.kv_usage,
    }


def _key(item: TenantState) -> _Key:
    return item.model, item.band, item.tenant
