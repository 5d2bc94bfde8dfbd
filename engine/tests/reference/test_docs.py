"""What the documents say is so."""

import json
import re
from pathlib import Path

from vllm_spectool._core.outcomes import OUTCOMES
from vllm_spectool.reference import Reference

ENGINE = Path(__file__).parents[2]
PROTOCOL = (ENGINE / "PROTOCOL.md").read_text()


def test_the_readmes_code_runs() -> None:
    """Each Python block, as it stands."""
    blocks = re.findall(r"```python\n(.*?)```", (ENGINE / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})  # noqa: S102 - our own text


def test_the_protocol_names_every_outcome() -> None:
    """And no other, in its last table."""
    table = PROTOCOL.partition("| outcome |")[2]
    names = [
        re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.split("\n") if row[:2] == "| "
    ]
    assert sorted(name for each in names for name in each) == sorted(OUTCOMES)


def test_the_protocols_status_is_the_servers() -> None:
    """With its default limits."""
    block = re.findall(r"```json\n(.*?)```", PROTOCOL, re.DOTALL)[0]
    assert json.loads(block) == Reference().status()


def test_the_protocols_json_is_json() -> None:
    """Every block of it."""
    for block in re.findall(r"```json\n(.*?)```", PROTOCOL, re.DOTALL):
        assert json.loads(block)
