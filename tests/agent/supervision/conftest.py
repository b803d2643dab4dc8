"""A bench for each test: engines run under a state directory of their own, and none is left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engines import Bench, open_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as made:
        yield made
