"""Writes examples/gateway-dashboard.json, for Grafana 10 or newer: a table of panels is easier to keep right than their JSON.

python scripts/make_dashboard.py
"""

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parent.parent / "examples" / "gateway-dashboard.json"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WHERE = 'model=~"$model"'
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 24

# Title, unit, and for each line its legend and its query.
PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Requests a second by outcome",
        "reqps",
        (("{{outcome}}", f"sum by (outcome) (rate(llmgw_requests_total{{{_WHERE}}}[1m]))"),),
    ),
    (
        "Tokens a second by tenant",
        "short",
        (("{{tenant}}", f"sum by (tenant) (rate(llmgw_tokens_total{{{_WHERE}}}[1m]))"),),
    ),
    (
        "Share of tokens by tenant",
        "percentunit",
        (
            (
                "{{tenant}}",
                (
                    f"sum by (tenant) (rate(llmgw_tokens_total{{{_WHERE}}}[5m]))"
                    f" / scalar(sum(rate(llmgw_tokens_total{{{_WHERE}}}[5m])))"
                ),
            ),
        ),
    ),
    (
        "Running and waiting against slots",
        "short",
        (
            ("running {{model}}", f"sum by (model) (llmgw_requests_running{{{_WHERE}}})"),
            ("waiting {{model}}", f"sum by (model) (llmgw_queue_waiting{{{_WHERE}}})"),
            ("slots {{model}}", f"llmgw_slots{{{_WHERE}}}"),
        ),
    ),
    (
        "Oldest wait by band",
        "s",
        (("{{band}}", f"max by (band) (llmgw_queue_oldest_wait_seconds{{{_WHERE}}})"),),
    ),
    (
        "Wait for a slot, p50 and p99",
        "s",
        tuple(
            (
                f"p{share} {{{{band}}}}",
                (
                    f"histogram_quantile(0.{share}, sum by (le, band)"
                    f" (rate(llmgw_queue_wait_seconds_bucket{{{_WHERE}}}[5m])))"
                ),
            )
            for share in ("50", "99")
        ),
    ),
    (
        "Admitted a second by band",
        "reqps",
        (("{{band}}", f"sum by (band) (rate(llmgw_admitted_total{{{_WHERE}}}[1m]))"),),
    ),
    (
        "Refused a second by reason",
        "reqps",
        (("{{reason}}", f"sum by (reason) (rate(llmgw_refused_total{{{_WHERE}}}[1m]))"),),
    ),
    (
        "Bytes held by those that wait",
        "bytes",
        (("{{model}}", f"llmgw_queue_bytes{{{_WHERE}}}"),),
    ),
    (
        "Slot to the answer's head, p50 and p99",
        "s",
        tuple(
            (
                f"p{share} {{{{model}}}}",
                (
                    f"histogram_quantile(0.{share}, sum by (le, model)"
                    f" (rate(llmgw_first_byte_seconds_bucket{{{_WHERE}}}[5m])))"
                ),
            )
            for share in ("50", "99")
        ),
    ),
    (
        "Whole request, p50 and p99",
        "s",
        tuple(
            (
                f"p{share} {{{{model}}}}",
                (
                    f"histogram_quantile(0.{share}, sum by (le, model)"
                    f" (rate(llmgw_request_seconds_bucket{{{_WHERE}}}[5m])))"
                ),
            )
            for share in ("50", "99")
        ),
    ),
    (
        "Sent to a second engine, a second",
        "reqps",
        (("{{model}}", f"sum by (model) (rate(llmgw_retries_total{{{_WHERE}}}[5m]))"),),
    ),
    (
        "Engines: takes requests",
        "bool_yes_no",
        (("{{engine}}", "llmgw_engine_ready"),),
    ),
    (
        "Engines: ours that run, and what they say themselves",
        "short",
        (
            ("ours {{engine}}", "llmgw_engine_requests"),
            ("own running {{engine}}", "llmgw_engine_own_running"),
            ("own waiting {{engine}}", "llmgw_engine_own_waiting"),
        ),
    ),
    (
        "Engines: KV cache in use, failures a second",
        "percentunit",
        (
            ("KV {{engine}}", "llmgw_engine_kv_usage"),
            ("failures {{engine}}", "rate(llmgw_engine_failures_total[5m])"),
        ),
    ),
)


def make_dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "title": "llmgw gateway",
        "uid": "llmgw-gateway",
        "schemaVersion": 39,
        "tags": ["llmgw"],
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_choose_source(), _choose_model()]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }


def _choose_source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _choose_model() -> dict[str, Any]:
    return {
        "name": "model",
        "label": "Model",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(llmgw_slots, model)", "refId": "model"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(
    number: int, title: str, unit: str, lines: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    place = number * _WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {
            "x": place % _COLUMNS,
            "y": place // _COLUMNS * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": expr,
                "legendFormat": legend,
            }
            for place, (legend, expr) in enumerate(lines)
        ],
    }


def render_dashboard() -> str:
    """Return the file's text."""
    return json.dumps(make_dashboard(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(render_dashboard(), "utf-8")
