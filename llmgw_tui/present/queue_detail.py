"""The detail of a row of the queue view: a gateway, a model, a tenant or an engine. Pure."""

from llmgw_core.domain.queue import (
    GatewaysPicture,
    GatewayView,
    QueuedEngine,
    QueuedModel,
    QueuedTenant,
    QueueState,
)
from llmgw_tui.present.detail import BLANK, fact, heading
from llmgw_tui.present.queue import (
    QueueItem,
    find_item,
    gateway_name,
    is_short,
    item_state,
    own_cell,
    refused_cell,
)
from llmgw_tui.present.table import Key
from llmgw_tui.present.text import Line, Tone, bar, fit, line, span
from llmgw_tui.present.units import format_age, format_bytes, format_percent, format_uptime

_BAR_CELLS = 12


def detail(picture: GatewaysPicture, key: Key, now: float) -> tuple[Line, ...]:
    """Everything known of one row."""
    item = find_item(picture, key)
    if item is None:
        return (line(span("The gateway does not list it any more.", Tone.DIM)),)
    lines = [line(span(item.name, Tone.TITLE), "  ", *item_state(item).cell), *_away(item, now)]
    if item.tenant is not None and item.model is not None:
        lines += _tenant_lines(item.tenant, item.model)
    elif item.engine is not None:
        lines += _engine_lines(item.engine)
    elif item.model is not None and item.state is not None:
        lines += _model_lines(item.model, item.state)
    else:
        lines += _gateway_lines(item.view, item.state, now)
    if item.kind != "gateway":
        lines += [BLANK, fact("gateway", gateway_name(item.view))]
    return tuple(lines)


def _away(item: QueueItem, now: float) -> list[Line]:
    fault = item.view.fault
    if fault is None:
        return []
    seen = item.view.updated_at
    age = "never seen" if seen is None else f"last seen {format_age(now - seen)} ago"
    lines = [line(span(f"◌ {fault.message}; {age}", Tone.WARN))]
    if fault.hint:
        lines.append(line(span(f"→ {fault.hint}", Tone.STRONG)))
    return [*lines, BLANK]


def _gateway_lines(view: GatewayView, state: QueueState | None, now: float) -> list[Line]:
    lines = [fact("node", view.node or "this machine"), fact("socket", view.socket)]
    known = state.gateway if state else None
    if known is not None:
        lines += [
            fact("address", span(known.address, Tone.ACCENT)),
            fact("pid", str(known.pid)),
            fact("up", format_uptime(known.started_at, now)),
        ]
    if state is None:
        return lines
    ready = sum(engine.state == "ready" for engine in state.engines)
    lines.append(fact("engines", f"{ready} of {len(state.engines)} ready"))
    if state.draining:
        lines.append(line(span("It shuts down: what runs and waits comes to its end.", Tone.WARN)))
    elif not state.engines:
        lines += [
            BLANK,
            line("It knows no engine: name some with --engine, or in gateway.toml."),
        ]
    return [*lines, BLANK, *_engine_block(state.engines)]


def _model_lines(model: QueuedModel, state: QueueState) -> list[Line]:
    engines = tuple(item for item in state.engines if model.model in item.models)
    lines = [
        fact("running", f"{model.running} of {model.slots} slots  ", _bar(model)),
        fact("waiting", f"{model.waiting}, {format_bytes(model.waiting_bytes)}"),
        fact("oldest", f"{model.oldest_wait_s:.1f} s"),
        fact("admitted", f"{model.admitted} so far"),
        fact("refused", *(refused_cell(model.refused) or (span("none", Tone.DIM),))),
        fact("expired", f"{model.expired}, gave up {model.cancelled}"),
    ]
    if model.paused:
        lines.append(line(span("Paused: requests wait until they expire. U resumes.", Tone.WARN)))
    if model.draining:
        lines.append(line(span("Draining: no new requests are taken. U resumes.", Tone.WARN)))
    return [*lines, BLANK, *_share_block(model), BLANK, *_engine_block(engines)]


def _bar(model: QueuedModel) -> str:
    return bar(model.running / model.slots if model.slots else None, _BAR_CELLS)


def _share_block(model: QueuedModel) -> list[Line]:
    lines = [heading("Shares of the tokens, against the weights")]
    for tenant in model.tenants:
        fair = format_percent(tenant.weight_share)
        lines.append(
            line(
                *fit(line(f"{tenant.tenant} ", span(tenant.band, Tone.DIM)), 22),
                span(f" {bar(tenant.share, _BAR_CELLS)} "),
                span(f"{format_percent(tenant.share):>5} of {fair:>5}"),
                span("  ▼ less than its weight", Tone.WARN) if is_short(tenant) else None,
            )
        )
    if model.tenants_left_out:
        lines.append(line(span(f"  and {model.tenants_left_out} more tenants", Tone.DIM)))
    return lines if len(lines) > 1 else [*lines, line(span("  nobody asked yet", Tone.DIM))]


def _engine_block(engines: tuple[QueuedEngine, ...]) -> list[Line]:
    lines = [heading("Engines")]
    for engine in engines:
        item = QueueItem("engine", GatewayView("", ""), engine=engine)
        lines.append(
            line(
                *fit(line(engine.name), 28),
                " ",
                *fit(item_state(item).cell, 11),
                f" {engine.running}/{engine.slots} here, own ",
                *own_cell(engine),
                f", KV {format_percent(engine.kv_usage)}",
            )
        )
    return lines if len(lines) > 1 else [*lines, line(span("  none", Tone.DIM))]


def _tenant_lines(tenant: QueuedTenant, model: QueuedModel) -> list[Line]:
    lines = [
        fact("model", model.model),
        fact("band", f"{tenant.band}, weight {tenant.weight}"),
        fact("running", str(tenant.running)),
        fact("waiting", str(tenant.waiting)),
        fact("oldest", "—" if tenant.oldest_wait_s is None else f"{tenant.oldest_wait_s:.1f} s"),
        fact("rate", f"{tenant.admitted_per_s:.1f} requests/s, {tenant.tokens_per_s:.0f} tokens/s"),
        fact("share", f"{format_percent(tenant.share)} of the model's tokens/s"),
        fact("weight's", f"{format_percent(tenant.weight_share)} of all weights"),
        fact("so far", f"{tenant.admitted} requests, {tenant.used_tokens} tokens"),
        fact("refused", *(refused_cell(tenant.refused) or (span("none", Tone.DIM),))),
    ]
    if is_short(tenant):
        said = "It waits and gets less than its weight: a higher band goes before, or it asks in bursts."
        lines.append(line(span(f"▼ {said}", Tone.WARN)))
    if tenant.paused:
        lines.append(line(span("Paused: its requests wait until they expire.", Tone.WARN)))
    return lines


def _engine_lines(engine: QueuedEngine) -> list[Line]:
    kv = engine.kv_usage
    lines = [
        fact("url", span(engine.url, Tone.ACCENT)),
        fact("serves", span(", ".join(engine.models) or None)),
        fact("running", f"{engine.running} of {engine.slots} slots, by this gateway"),
        fact("its own", *own_cell(engine), span("  running + waiting in the engine", Tone.DIM)),
        fact("KV cache", f"{bar(kv, _BAR_CELLS)} {format_percent(kv)}"),
        fact("served", f"{engine.served} so far, {engine.failures} failed"),
    ]
    if engine.trouble:
        lines.append(line(span(f"▲ {engine.trouble}", Tone.WARN)))
    if engine.draining:
        lines.append(line(span("Draining: it gets nothing new. U resumes.", Tone.WARN)))
    return lines
