"""What the runtime's tests share, and a look at what each leaves behind."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_spectool._runtime import runs

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _no_run_is_left() -> Iterator[None]:
    """Every test ends with an empty registry."""
    yield
    left = runs._all()
    for run in left:
        run.end()
    assert not left
