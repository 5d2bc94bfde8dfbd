"""Lets the case modules import `harness`, which lies beside them, and runs them in every shape."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

FORMS = ("create_agent", "graph")
WAYS = ("ainvoke", "invoke")


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """An agent made by `create_agent`, or a graph built by hand."""
    return str(request.param)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Run by `ainvoke` or by `invoke`."""
    return str(request.param)


@pytest.fixture
def shape(form: str, way: str) -> dict[str, Any]:
    """Every form, run every way, as arguments of a `Scene`."""
    return {"form": form, "way": way}


@pytest.fixture
def ran() -> list[Any]:
    """What the test's tools note when their bodies run."""
    return []
