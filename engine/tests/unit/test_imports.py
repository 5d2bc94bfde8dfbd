"""vLLM imports this package in every process: it has to be silent, and cost nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

import vllm_spectool

HEAVY = ("langchain_core", "langgraph", "vllm", "torch", "pydantic", "starlette", "jinja2")


def run(code: str) -> str:
    """Run `code` in a fresh interpreter; return all it prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("vllm_spectool", ()),
        ("vllm_spectool.errors", ()),
        ("vllm_spectool._core.decide", ()),
        ("vllm_spectool._core.messages", ()),
        ("vllm_spectool._core.protocol", ()),
        ("vllm_spectool.web", ("starlette",)),
        ("vllm_spectool.reference", ("starlette", "jinja2")),
    ],
)
def test_an_import_loads_nothing_it_does_not_need(module: str, allowed: tuple[str, ...]) -> None:
    """And prints nothing, in a fresh interpreter."""
    code = f"import sys, {module}; print([each for each in {HEAVY} if each in sys.modules])"
    assert run(code) == f"{[each for each in HEAVY if each in allowed]}\n"


def test_the_core_has_neither_clock_nor_loop() -> None:
    """It is told the time, and waits for nothing."""
    core = Path(vllm_spectool.__file__).parent / "_core"
    modules = ", ".join(f"vllm_spectool._core.{each.stem}" for each in core.glob("[!_]*.py"))
    found = "[each for each in ('asyncio', 'threading', 'socket', 'time') if each in new]"
    code = f"import sys; old = set(sys.modules); import {modules}; new = set(sys.modules) - old"
    ran = run(f"{code}; print({found})")
    assert ran == "[]\n"
