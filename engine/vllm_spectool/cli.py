"""The command `vllm-spectool`."""

import argparse
import os
import sys
from collections.abc import Sequence

from vllm_spectool import __version__, doctor, serve
from vllm_spectool.plugin.support import DEFAULT_DRAFT_RUNNING


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = _parser()
    options, flags = parser.parse_known_args(arguments)
    if options.command == "serve":
        try:
            serve.run(_start(options, flags))
        except serve.ConflictError as error:
            parser.error(str(error))
        return 0
    if flags:
        parser.error(f"unknown: {' '.join(flags)}")
    findings = list(doctor.examine(elsewhere=bool(options.url)))
    if options.url:
        findings.append(doctor.ask(options.url, options.api_key))
    sys.stdout.writelines(f"{finding.line}\n" for finding in findings)
    return 0 if all(finding.good for finding in findings) else 1


def _start(options: argparse.Namespace, flags: Sequence[str]) -> serve.Start:
    drafts = None
    if options.draft_arguments is not None:
        drafts = serve.Drafts(tokens=options.draft_arguments, running=options.draft_max_running)
    settings = serve.Settings(
        turns=options.max_resident_turns, drafts=drafts, allow_drift=options.allow_drift
    )
    return serve.plan(options.model, flags, environ=os.environ, settings=settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm-spectool", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser(
        "serve",
        allow_abbrev=False,
        help="start vLLM with the tool cache; flags that are not named here go to vLLM",
    )
    start.add_argument("model", help="a name or a folder, as vLLM takes it")
    start.add_argument(
        "--max-resident-turns",
        type=_at_least_one,
        metavar="N",
        help="most turns of a response (8 unless given); 1 keeps every response to one turn",
    )
    start.add_argument(
        "--draft-arguments",
        type=_at_least_one,
        nargs="?",
        const=serve.DRAFT_TOKENS,
        metavar="N",
        help="offer posted calls to the model as drafts, at most N tokens at once "
        f"({serve.DRAFT_TOKENS} unless given); the start says what that costs",
    )
    start.add_argument(
        "--draft-max-running",
        type=_at_least_one,
        metavar="N",
        help=f"offer none while more than N requests run ({DEFAULT_DRAFT_RUNNING} unless given)",
    )
    start.add_argument(
        "--allow-drift",
        action="store_true",
        help="go on even where the chat template would write a turn otherwise than it stands",
    )
    check = commands.add_parser("doctor", allow_abbrev=False, help="check an installation")
    check.add_argument("--url", help="a running server to ask as well")
    check.add_argument("--api-key", help="one of its keys")
    return parser


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        msg = f"{number} is not 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return number
