"""The queue view: every gateway with its models, tenants and engines, as a tree of rows. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llmgw_core.domain.inventory import Contact, FleetSnapshot
from llmgw_core.domain.queue import (
    GatewaysPicture,
    GatewayView,
    QueuedEngine,
    QueuedModel,
    QueuedTenant,
    QueueState,
)
from llmgw_tui.present.states import State
from llmgw_tui.present.table import Column, Key, Row
from llmgw_tui.present.text import Line, Span, Tone, line, span
from llmgw_tui.present.units import format_age, format_number, format_percent

COLUMNS = (
    Column("NAME", least=16, most=40, keep=9),
    Column("STATE", least=9, most=18, keep=9),
    Column("BAND", least=6, most=10, keep=7),
    Column("RUN", least=7, most=9, keep=9, right=True),
    Column("WAIT", least=4, most=7, keep=9, right=True),
    Column("OLDEST", least=6, most=7, keep=8, right=True),
    Column("REQ/S", least=5, most=7, keep=3, right=True),
    Column("TOK/S", least=5, most=8, keep=7, right=True),
    Column("SHARE", least=11, most=12, keep=6, right=True),
    Column("OWN", least=7, most=9, keep=5, right=True),
    Column("KV", least=5, most=5, keep=5, right=True),
    Column("REFUSED", least=15, most=40, keep=4),
    Column("MODEL", least=8, most=30, keep=2),
)
GATEWAY, MODEL, TENANT, ENGINE = "gateway", "model", "tenant", "engine"
_SHORT = 0.75  # of what its weight would give: a tenant that waits and gets less is marked
_HERE = "this machine"
_MODEL_STATES = {
    "open": State("●", "open", Tone.OK),
    "loading": State("◐", "loading", Tone.BUSY),
    "down": State("✖", "down", Tone.ERROR),
}
_ENGINE_STATES = {
    "ready": State("●", "ready", Tone.OK),
    "loading": State("◐", "loading", Tone.BUSY),
    "suspect": State("▲", "suspect", Tone.WARN),
    "down": State("✖", "down", Tone.ERROR),
}
_PAUSED = State("⏸", "paused", Tone.WARN)
_DRAINING = State("◓", "draining", Tone.BUSY)
_AWAY = State("◌", "no answer", Tone.WARN)


@dataclass(frozen=True)
class QueueItem:
    """What a row is of. The model is None for a gateway, and for an engine that serves none yet."""

    kind: str
    view: GatewayView
    state: QueueState | None = None
    model: QueuedModel | None = None
    tenant: QueuedTenant | None = None
    engine: QueuedEngine | None = None

    @property
    def key(self) -> Key:
        """(node, socket, kind, …): its identity, whatever its place."""
        place = (self.view.node, self.view.socket, self.kind)
        name = self.model.model if self.model else ""
        if self.tenant is not None:
            return (*place, name, self.tenant.band, self.tenant.tenant)
        if self.engine is not None:
            return (*place, self.engine.url)
        return (*place, name)

    @property
    def name(self) -> str:
        """What a person calls it, and what the gateway is told."""
        if self.tenant is not None:
            return self.tenant.tenant
        if self.engine is not None:
            return self.engine.name
        return self.model.model if self.model else gateway_name(self.view)


def gateway_name(view: GatewayView) -> str:
    """`gpu1 127.0.0.1:8080`."""
    known = view.state.gateway if view.state else None
    where = known.address if known else view.socket.rpartition("/")[2].removesuffix(".sock")
    return f"{view.node or _HERE} {where}"


def items(picture: GatewaysPicture) -> Iterator[QueueItem]:
    """All rows: a gateway, below it its models, below each its tenants and the engines that serve it first."""
    for view in picture.gateways:
        state = view.state
        yield QueueItem(GATEWAY, view, state)
        if state is None:
            continue
        told = set()
        for model in state.models:
            yield QueueItem(MODEL, view, state, model)
            for tenant in model.tenants:
                yield QueueItem(TENANT, view, state, model, tenant)
            for engine in state.engines:
                if model.model in engine.models and engine.url not in told:
                    told.add(engine.url)
                    yield QueueItem(ENGINE, view, state, model, engine=engine)
        for engine in state.engines:
            if engine.url not in told:
                yield QueueItem(ENGINE, view, state, engine=engine)


def find_item(picture: GatewaysPicture | None, key: Key | None) -> QueueItem | None:
    """The item of that key, None when it is not there."""
    if picture is None or key is None:
        return None
    return next((item for item in items(picture) if item.key == key), None)


def rows(picture: GatewaysPicture) -> tuple[Row, ...]:
    """One row an item; those of a gateway that does not answer are greyed."""
    return tuple(_row(item) for item in items(picture))


def _row(item: QueueItem) -> Row:
    if item.tenant is not None and item.model is not None:
        row = _tenant_row(item, item.tenant, item.model)
    elif item.engine is not None:
        row = _engine_row(item, item.engine)
    elif item.model is not None:
        row = _model_row(item, item.model)
    else:
        return _gateway_row(item)
    return row.as_dim() if item.view.fault else row


def item_state(item: QueueItem) -> State:
    """The state of whatever it is, as glyph and word."""
    if item.kind == GATEWAY:
        if item.view.fault is not None:
            return _AWAY
        if item.state is None:
            return State("◌", "asking", Tone.DIM)
        return _DRAINING if item.state.draining else State("●", "serving", Tone.OK)
    if item.tenant is not None:
        return _PAUSED if item.tenant.paused else _tenant_state(item.tenant)
    if item.engine is not None:
        look = _ENGINE_STATES.get(item.engine.state) or _unknown(item.engine.state)
        return _DRAINING if item.engine.draining and item.engine.state == "ready" else look
    model = item.model
    if model is None:
        return _unknown("unknown")
    if model.paused or model.draining:
        return _PAUSED if model.paused else _DRAINING
    return _MODEL_STATES.get(model.status) or _unknown(model.status)


def _tenant_state(tenant: QueuedTenant) -> State:
    if tenant.waiting:
        return State("◔", "waiting", Tone.BUSY)
    return State("■", "running", Tone.ACCENT) if tenant.running else State("□", "idle", Tone.DIM)


def _unknown(word: str) -> State:
    return State("?", word, Tone.WARN)


def _gateway_row(item: QueueItem) -> Row:
    models = item.state.models if item.state else ()
    tenants = [tenant for model in models for tenant in model.tenants]
    is_known = item.state is not None
    oldest = max((model.oldest_wait_s for model in models), default=0.0)
    row = Row(
        item.key,
        (
            line(span(gateway_name(item.view), Tone.TITLE)),
            item_state(item).cell,
            (),
            line(span(sum(model.running for model in models) if is_known else None)),
            _waiting_cell(sum(model.waiting for model in models)) if is_known else line(span(None)),
            _oldest_cell(oldest or None),
            _rate_cell(sum(tenant.admitted_per_s for tenant in tenants)),
            line(f"{sum(tenant.tokens_per_s for tenant in tenants):.0f}"),
            (),
            (),
            (),
            (),
            (),
        ),
    )
    return row.as_dim() if not is_known else row


def _model_row(item: QueueItem, model: QueuedModel) -> Row:
    return Row(
        item.key,
        (
            line("  ", span(model.model, Tone.STRONG)),
            item_state(item).cell,
            (),
            line(f"{model.running}/{model.slots}"),
            _waiting_cell(model.waiting),
            _oldest_cell(model.oldest_wait_s or None),
            _rate_cell(sum(tenant.admitted_per_s for tenant in model.tenants)),
            line(f"{sum(tenant.tokens_per_s for tenant in model.tenants):.0f}"),
            (),
            (),
            (),
            refused_cell({**model.refused, **_ended_waiting(model)}),
            (),
        ),
    )


def _tenant_row(item: QueueItem, tenant: QueuedTenant, model: QueuedModel) -> Row:
    return Row(
        item.key,
        (
            line("    ", span(tenant.tenant)),
            item_state(item).cell,
            line(tenant.band),
            line(str(tenant.running)),
            _waiting_cell(tenant.waiting),
            _oldest_cell(tenant.oldest_wait_s),
            _rate_cell(tenant.admitted_per_s),
            line(f"{tenant.tokens_per_s:.0f}"),
            share_cell(tenant),
            (),
            (),
            refused_cell(tenant.refused),
            line(span(model.model, Tone.DIM)),
        ),
    )


def _engine_row(item: QueueItem, engine: QueuedEngine) -> Row:
    trouble = line(span(engine.trouble, Tone.WARN)) if engine.trouble else ()
    return Row(
        item.key,
        (
            line("    ", span(f"▸ {engine.name}", Tone.ACCENT)),
            item_state(item).cell,
            (),
            line(f"{engine.running}/{engine.slots}"),
            (),
            (),
            (),
            (),
            (),
            own_cell(engine),
            line(span(None if engine.kv_usage is None else format_percent(engine.kv_usage))),
            trouble,
            line(span(", ".join(engine.models) or None, Tone.DIM)),
        ),
    )


def _waiting_cell(waiting: int) -> Line:
    return line(span(waiting, Tone.BUSY if waiting else Tone.DIM))


def _oldest_cell(seconds: float | None) -> Line:
    if seconds is None:
        return ()
    return line(f"{seconds:.1f}s" if seconds < 10 else format_age(seconds))  # noqa: PLR2004


def _rate_cell(rate: float) -> Line:
    return line(span(f"{rate:.1f}", Tone.NORMAL if rate else Tone.DIM))


def own_cell(engine: QueuedEngine) -> Line:
    """`14+2`: what the engine itself says that it runs, and that waits in it."""
    if engine.engine_running is None or engine.engine_waiting is None:
        return line(span(None))
    waiting = engine.engine_waiting
    return line(f"{engine.engine_running}", span(f"+{waiting}", Tone.WARN if waiting else Tone.DIM))


def share_cell(tenant: QueuedTenant) -> Line:
    """`73/67 %`: of the tokens a second, and what its weight would give; marked where it waits and gets less."""
    if tenant.weight_share is None:
        return ()
    fair = format_percent(tenant.weight_share)
    if tenant.share is None:
        return line(span(f"—/{fair}", Tone.DIM))
    text = f"{format_percent(tenant.share).removesuffix(' %')}/{fair}"
    return line(span("▼ ", Tone.WARN) if is_short(tenant) else None, text)


def is_short(tenant: QueuedTenant) -> bool:
    """Whether it waits and gets clearly less than its weight would give."""
    if tenant.share is None or tenant.weight_share is None:
        return False
    return tenant.waiting > 0 and tenant.share < _SHORT * tenant.weight_share


def refused_cell(refused: Mapping[str, int]) -> Line:
    """`12 model-full, 3 expired`, the most first."""
    told = sorted(((number, name) for name, number in refused.items() if number), reverse=True)
    parts: list[Span] = [
        span(f"{', ' if place else ''}{number} {name}", Tone.WARN)
        for place, (number, name) in enumerate(told)
    ]
    return tuple(parts)


def _ended_waiting(model: QueuedModel) -> dict[str, int]:
    return {"expired": model.expired} if model.expired else {}


def empty(picture: GatewaysPicture | None, snapshot: FleetSnapshot | None) -> tuple[Line, ...]:
    """What stands in place of the table: no gateway was found, or not yet."""
    if picture is None or not picture.is_searched:
        return (line(span("Asking the nodes for gateways…", Tone.DIM)),)
    connecting = sum(
        view.contact is Contact.CONNECTING for view in (snapshot.nodes if snapshot else ())
    )
    count = format_number(picture.asked)
    lines = [
        line(span("No gateway", Tone.TITLE)),
        line(f"None runs as you on the {count} nodes that answered, nor on this machine."),
        line("Start one where its engines are, or here: ", span("llmgw gateway", Tone.STRONG)),
        line(span("One that runs as another user is seen by that user alone.", Tone.DIM)),
    ]
    if picture.away:
        names = ", ".join(picture.away[:6]) + (" …" if len(picture.away) > 6 else "")  # noqa: PLR2004
        lines.append(line(span(f"▲ {names}: no answer, so not counted.", Tone.WARN)))
    if connecting:
        lines.append(line(span(f"◌ {connecting} still connecting", Tone.DIM)))
    return tuple(lines)
