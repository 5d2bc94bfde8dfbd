"""The contract suite, which the reference engine passes as well, against the real server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from live_prompts import contract

SUITE = Path(__file__).parents[2] / "contract"
CORE = "cache_routes or (whole and (another_key or each_turn_has or a_deleted))"
"""What the other live tests do not have; all of it takes several minutes on two cores."""


def test_the_contract_holds(url: str, api_key: str, tmp_path: Path) -> None:
    """Its core; the whole of it where `SPECTOOL_CONTRACT_WHOLE` is 1."""
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps(contract()))
    chosen = [] if os.environ.get("SPECTOOL_CONTRACT_WHOLE") == "1" else ["-k", CORE]
    environ = {
        **os.environ,
        "SPECTOOL_CONTRACT_URL": url,
        "SPECTOOL_CONTRACT_MODEL": "smollm2",
        "SPECTOOL_CONTRACT_API_KEY": api_key,
        "SPECTOOL_CONTRACT_PROMPTS": str(prompts),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(SUITE), *chosen]
    told = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.fail(told.stdout[-6000:])
