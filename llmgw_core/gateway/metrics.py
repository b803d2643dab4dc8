"""What is measured, in Prometheus' form. docs/gateway.md lists names and labels.

Labels come from the table of engines and the file of keys, so that no client can make new ones.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from llmgw_core.admission.queue import ModelState
from llmgw_core.gateway.routing import Replica, ReplicaState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WHO = ("model", "band", "tenant")


@dataclass(frozen=True)
class Picture:
    """What the gauges are read from, at the moment of a scrape."""

    models: tuple[ModelState, ...]
    replicas: tuple[Replica, ...]
    log_dropped: int


@dataclass(frozen=True)
class Ended:
    """One request that is over."""

    model: str
    band: str
    tenant: str
    outcome: str
    waited_s: float
    first_byte_s: float | None
    seconds: float
    prompt_tokens: int
    answer_tokens: int
    retries: int


class Metrics:
    """Counters of what ended, and gauges of what is."""

    def __init__(self, look: Callable[[], Picture]) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._requests = Counter(
            "llmgw_requests", "Requests that ended", [*_WHO, "outcome"], registry=registry
        )
        self._tokens = Counter("llmgw_tokens", "Tokens used", [*_WHO, "kind"], registry=registry)
        self._retries = Counter(
            "llmgw_retries", "Requests sent to a second engine", ["model"], registry=registry
        )
        self._waits = Histogram(
            "llmgw_queue_wait_seconds",
            "From arrival to slot",
            ["model", "band"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "llmgw_first_byte_seconds",
            "From slot to the answer's head",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._whole = Histogram(
            "llmgw_request_seconds",
            "From arrival to the last byte",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._registry.register(_Gauges(look))
        self._kept: dict[tuple[str, str, str], tuple[Counter, ...]] = {}

    def note(self, ended: Ended) -> None:
        """Count a request that ran, to whatever end."""
        model, band, tenant = ended.model, ended.band, ended.tenant
        self._requests.labels(model, band, tenant, ended.outcome).inc()
        self._whole.labels(model).observe(ended.seconds)
        self._waits.labels(model, band).observe(ended.waited_s)
        if ended.first_byte_s is not None:
            self._first.labels(model).observe(ended.first_byte_s)
            self._tokens.labels(model, band, tenant, "prompt").inc(ended.prompt_tokens)
            self._tokens.labels(model, band, tenant, "answer").inc(ended.answer_tokens)
        if ended.retries:
            self._retries.labels(model).inc(ended.retries)

    def note_refused(self, outcome: str) -> None:
        """Count a request that was refused before it was known for whom or what it was."""
        self._requests.labels("", "", "", outcome).inc()

    def render(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    def __init__(self, look: Callable[[], Picture]) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """Nothing is looked at before the first scrape."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Read everything once."""
        picture = self._look()
        yield from _collect_models(picture.models)
        yield from _collect_replicas(picture.replicas)
        dropped = CounterMetricFamily("llmgw_access_log_dropped", "Lines that were not written")
        dropped.add_metric([], picture.log_dropped)
        yield dropped


def _collect_models(models: tuple[ModelState, ...]) -> Iterable[Metric]:
    slots = GaugeMetricFamily("llmgw_slots", "Requests that may run at once", labels=["model"])
    waiting = GaugeMetricFamily("llmgw_queue_waiting", "Requests that wait", labels=_WHO)
    running = GaugeMetricFamily("llmgw_requests_running", "Requests that run", labels=_WHO)
    oldest = GaugeMetricFamily(
        "llmgw_queue_oldest_wait_seconds", "Of the one at the head", labels=_WHO
    )
    held = GaugeMetricFamily("llmgw_queue_bytes", "Bodies of requests that wait", labels=["model"])
    admitted = CounterMetricFamily("llmgw_admitted", "Requests given a slot", labels=_WHO)
    refused = CounterMetricFamily("llmgw_refused", "Requests not let in", labels=[*_WHO, "reason"])
    for model in models:
        slots.add_metric([model.model], model.slots)
        held.add_metric([model.model], model.waiting_bytes)
        for item in model.tenants:
            who = [item.model, item.band, item.tenant]
            waiting.add_metric(who, item.waiting)
            running.add_metric(who, item.running)
            oldest.add_metric(who, item.oldest_wait_s or 0.0)
            admitted.add_metric(who, item.admitted)
            for reason, number in item.refused.items():
                refused.add_metric([*who, reason.value], number)
    return (slots, waiting, running, oldest, held, admitted, refused)


def _collect_replicas(replicas: tuple[Replica, ...]) -> Iterable[Metric]:
    label = ["engine"]
    ready = GaugeMetricFamily("llmgw_engine_ready", "1: takes requests", labels=label)
    running = GaugeMetricFamily("llmgw_engine_requests", "Ours that run there", labels=label)
    own_running = GaugeMetricFamily("llmgw_engine_own_running", "As it says itself", labels=label)
    own_waiting = GaugeMetricFamily("llmgw_engine_own_waiting", "As it says itself", labels=label)
    usage = GaugeMetricFamily("llmgw_engine_kv_usage", "0 to 1, as it says itself", labels=label)
    failures = CounterMetricFamily("llmgw_engine_failures", "Ours that failed there", labels=label)
    for replica in replicas:
        name = [replica.name]
        is_ready = replica.state is ReplicaState.READY and not replica.is_draining
        ready.add_metric(name, float(is_ready))
        running.add_metric(name, replica.running)
        failures.add_metric(name, replica.failures)
        if replica.engine_running is not None and replica.engine_waiting is not None:
            own_running.add_metric(name, replica.engine_running)
            own_waiting.add_metric(name, replica.engine_waiting)
        if replica.kv_usage is not None:
            usage.add_metric(name, replica.kv_usage)
    return (ready, running, own_running, own_waiting, usage, failures)
