"""Every health code that the probes can give is documented."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FLAG = re.compile(r'(?:GpuHealth|_error|_warning|_info|_flag)\(\s*"([a-z-]+)"')


def test_every_code_is_documented() -> None:
    sources = (ROOT / "llmgw_core/agent/probes").glob("*.py")
    given = {code for path in sources for code in FLAG.findall(path.read_text())}
    documented = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs/gpu-health.md").read_text()))

    assert len(given) > 20
    assert given - documented == set()
