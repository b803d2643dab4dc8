"""An operator of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.operator_here import OperatorHere, operator_here


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[OperatorHere]:
    """Somebody who runs `llmgw` here; what was started ends with the test."""
    with operator_here(tmp_path) as made:
        yield made
