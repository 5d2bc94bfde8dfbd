"""The command `vllm-spectool`."""

import argparse
import os
import sys
from collections.abc import Sequence

from vllm_spectool import doctor, serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = _parser()
    options, flags = parser.parse_known_args(arguments)
    if options.command == "serve":
        serve.run(
            serve.plan(options.model, flags, turns=options.max_resident_turns, environ=os.environ)
        )
        return 0
    if flags:
        parser.error(f"unknown: {' '.join(flags)}")
    findings = list(doctor.examine())
    if options.url:
        findings.append(doctor.ask(options.url, options.api_key))
    sys.stdout.writelines(f"{finding.line}\n" for finding in findings)
    return 0 if all(finding.good for finding in findings) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm-spectool", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser(
        "serve",
        allow_abbrev=False,
        help="start vLLM with the tool cache; flags that are not named here go to vLLM",
    )
    start.add_argument("model", help="a name or a folder, as vLLM takes it")
    start.add_argument(
        "--max-resident-turns",
        type=_turns,
        metavar="N",
        help="most turns of a response (8 unless given); 1 keeps every response to one turn",
    )
    check = commands.add_parser("doctor", allow_abbrev=False, help="check an installation")
    check.add_argument("--url", help="a running server to ask as well")
    check.add_argument("--api-key", help="one of its keys")
    return parser


def _turns(text: str) -> int:
    turns = int(text)
    if turns < 1:
        msg = f"{turns} is not 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return turns
