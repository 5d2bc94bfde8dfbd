"""The page on engines is complete, and the example does what it says there."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from langchain_spectool._core.verdicts import EngineVerdict
from langchain_spectool.engines import ToolCacheClient

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine.md").read_text("utf-8")


def _first_column(header: str) -> set[str]:
    lines = PAGE.splitlines()
    names: set[str] = set()
    for row in lines[lines.index(header) + 2 :]:
        if not row.startswith("|"):
            break
        names.update(re.findall(r"`(\w+)`", row.split("|")[1]))
    return names


def test_every_verdict_is_listed() -> None:
    """Each has a line, and nothing else has."""
    assert _first_column("| verdict | meaning |") == set(get_args(EngineVerdict))


def test_every_argument_is_listed() -> None:
    """The same for what a client takes."""
    taken = set(inspect.signature(ToolCacheClient).parameters)
    assert _first_column("| argument | default | meaning |") == taken


@pytest.mark.parametrize("options", [(), ("--whole",)], ids=["stream", "whole"])
def test_the_example_makes_one_request(options: tuple[str, ...]) -> None:
    """Two without the engine, one with it, and equal messages."""
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "engine_agent.py", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    shown = PAGE.partition("engine off:")[2].partition("```")[0]
    assert ran.stdout.endswith(f"engine off:{shown}")
