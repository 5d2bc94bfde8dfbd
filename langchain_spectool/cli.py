"""The `spectool` command: parse, call one function, print.

Exit codes: 0 all is well; 1 a bar was missed, or speculation changed what was said; 2 the command
cannot be carried out as it was given.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata

from langchain_spectool.errors import SpectoolError

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Raises:
        SystemExit: The arguments are wrong (code 2), or ask for help or the version (code 0).
    """
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    command: Callable[..., int] = options.run
    if rest and command is not _bench:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return command(options, rest)
    except SpectoolError as error:
        print(f"spectool: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED


def _demo(options: argparse.Namespace, _: Sequence[str]) -> int:
    from langchain_spectool.bench.demo import show  # noqa: PLC0415 - each command its own imports

    return show(speed=options.speed, as_json=options.json)


def _doctor(options: argparse.Namespace, _: Sequence[str]) -> int:
    from langchain_spectool.graph.doctor import diagnose, load  # noqa: PLC0415 - as above

    found = diagnose(load(options.graph))
    if options.json:
        print(json.dumps({"graphs": [each.as_json() for each in found]}))
    else:
        print("\n\n".join(map(str, found)))
    return 0


def _bench(options: argparse.Namespace, rest: Sequence[str]) -> int:
    bench = import_module(f"langchain_spectool.bench.{options.what}")
    return bench.main([*rest])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spectool", description="Early tool calls for LangGraph agents: look, check, measure."
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser("demo", help="run two agents with speculation off and on")
    demo.add_argument("--json", action="store_true", help="print figures only")
    demo.add_argument("--speed", type=_positive, default=1.0, help="divides the simulated delays")
    demo.set_defaults(run=_demo)

    doctor = commands.add_parser("doctor", help="say which tools of a graph can run early")
    doctor.add_argument(
        "graph",
        metavar="module:graph",
        help="a compiled graph, a Speculation, a list of tools or a function that returns one; "
        "the module by name or as a path to its file",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=_doctor)

    bench = commands.add_parser("bench", help="measure; see `spectool bench turns --help`")
    measures = bench.add_subparsers(required=True, metavar="what", dest="what")
    for name, about in (
        ("overhead", "what a turn costs when nothing is guessed"),
        ("turns", "what a turn takes when guesses hit and miss"),
    ):
        measures.add_parser(name, help=about, add_help=False)
    bench.set_defaults(run=_bench)
    return parser


def _version() -> str:
    try:
        return metadata.version("langchain-spectool")
    except metadata.PackageNotFoundError:
        return "not installed: this runs from a source folder"


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        msg = f"must be a number above 0, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return value


if __name__ == "__main__":
    sys.exit(main())
