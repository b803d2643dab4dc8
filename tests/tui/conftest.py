"""The same picture on every machine, whatever its environment."""

import time

import pytest


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual draws otherwise with these set."""
    for variable in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
