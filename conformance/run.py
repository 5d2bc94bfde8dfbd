"""Runs the ecosystem's own tests against every build; exit status 0 means conformant.

Usage: python conformance/run.py PATH_OF_THE_RUNNER [BUILD ...]
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

BUILDS: dict[str, tuple[dict[str, str], list[str]]] = {
    "tool_node": ({"TOOLNODE_IMPL": "langchain_spectool:SpeculativeToolNode"}, []),
    "middleware": ({"AGENT_MIDDLEWARE": "langchain_spectool:SpeculationMiddleware"}, ["langchain"]),
    "middleware_first": (
        {
            "AGENT_MIDDLEWARE": "langchain_spectool:SpeculationMiddleware",
            "AGENT_MIDDLEWARE_POS": "first",
        },
        ["langchain"],
    ),
    "prefilled_tool_node": ({"TOOLNODE_IMPL": "conformance.builds:PrefilledToolNode"}, []),
    "prefilled_middleware": ({"AGENT_MIDDLEWARE": "conformance.builds:prefilled"}, ["langchain"]),
    "erratic_tool_node": ({"TOOLNODE_IMPL": "conformance.builds:ErraticToolNode"}, []),
    "erratic_middleware": ({"AGENT_MIDDLEWARE": "conformance.builds:erratic"}, ["langchain"]),
}
"""By name: what the runner is told, and the suites that the build concerns (none: all three)."""


def expected(build: str) -> set[str]:
    """Return the tests that may fail with `build`."""
    if not build.startswith("prefilled"):
        return set()
    lines = (HERE / "expected_failures.txt").read_text(encoding="utf-8").splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def run(runner: str, build: str) -> bool:
    """Run one build; say whether it conforms."""
    settings, suites = BUILDS[build]
    env = {**os.environ, **settings, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(  # noqa: S603 - the caller's own path
        ["sh", runner, *suites], env=env, capture_output=True, text=True, check=False
    )
    failed = set(re.findall(r"^\w+: (?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE))
    summaries = re.findall(r"^\w+: .*\[exit \d+\]$", done.stdout, re.MULTILINE)
    surprises = failed - expected(build)
    ok = not surprises and (bool(failed) or done.returncode == 0) and bool(summaries)
    print(f"{build}: {'ok' if ok else 'NOT CONFORMANT'}")
    for line in [*summaries, *(f"unexpected: {name}" for name in sorted(surprises))]:
        print(f"  {line}")
    if not summaries:
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
    return ok


def main(arguments: list[str]) -> int:
    """Run the builds named, or all."""
    runner, *builds = arguments
    results = [run(runner, build) for build in builds or BUILDS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
