"""The example dashboard and alert rules: every metric that they name is one that a gateway tells."""

import json
import re
import runpy
from pathlib import Path

from tests.gateway.test_operation import ask_admin
from tests.support.gateways import Engine, open_bench

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"


def named_in(text: str) -> set[str]:
    return set(re.findall(r"\bllmgw_[a-z_]+", text))


async def test_every_metric_that_is_named_is_told_and_every_one_told_is_shown(
    tmp_path: Path,
) -> None:
    alerts = named_in((EXAMPLES / "gateway-alerts.yml").read_text("utf-8"))
    dashboard = json.loads((EXAMPLES / "gateway-dashboard.json").read_text("utf-8"))
    drawn = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in named_in(target["expr"])
    }
    async with open_bench(tmp_path, Engine()) as bench:
        await bench.ask()
        _, text = await ask_admin(bench, "/metrics")
    told = set(re.findall(r"^# TYPE (llmgw_\w+) ", text, re.MULTILINE))
    told = {name for name in told if not name.endswith("_created")}

    assert {name.removesuffix("_bucket") for name in alerts | drawn} - told == set()
    assert told - {name.removesuffix("_bucket") for name in alerts | drawn} == set()


def test_dashboard_is_what_its_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "scripts/make_dashboard.py"))

    assert (EXAMPLES / "gateway-dashboard.json").read_text("utf-8") == script["render_dashboard"]()


def test_each_alert_says_what_to_do() -> None:
    rules = (EXAMPLES / "gateway-alerts.yml").read_text("utf-8").split("- alert: ")[1:]

    assert len(rules) > 5
    for rule in rules:
        assert all(word in rule for word in ("expr:", "for:", "severity:", "summary:", "todo:"))
