"""The `spectool` command: parse, call one function, print.

Exit codes: 0 all is well; 1 a bar was missed, or speculation changed what was said; 2 the command
cannot be carried out as it was given.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
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


def _learn(options: argparse.Namespace, _: Sequence[str]) -> int:
    from langchain_spectool.bench.learn import LearnOptions, show  # noqa: PLC0415 - as above

    given = LearnOptions(
        traces=options.traces,
        out=options.out,
        tools=options.tools,
        merge=options.merge,
        shared_across=options.shared_across,
    )
    return show(given, as_json=options.json)


def _replay(options: argparse.Namespace, _: Sequence[str]) -> int:
    from langchain_spectool.bench.replay import ReplayOptions, show  # noqa: PLC0415 - as above

    seeds = [*options.seed, *options.seeds]
    if seeds and not options.split:
        msg = "--seed belongs to a split: add --split task"
        raise SpectoolError(msg)
    given = ReplayOptions(
        traces=options.traces,
        tools=options.tools,
        patterns=options.patterns,
        source=options.source,
        seeds=(seeds or [0]) if options.split else [],
        online=options.online,
    )
    return show(given, as_json=options.json)


def _bench(options: argparse.Namespace, rest: Sequence[str]) -> int:
    bench = import_module(f"langchain_spectool.bench.{options.what}")
    return bench.main([*rest])


def _model(options: argparse.Namespace, _: Sequence[str]) -> int:
    from langchain_spectool.bench.model.command import show  # noqa: PLC0415 - as above
    from langchain_spectool.bench.model.settings import ModelOptions  # noqa: PLC0415 - as above

    names = {each.name for each in fields(ModelOptions)}
    given = {name: value for name, value in vars(options).items() if name in names}
    given["closed_at"] = tuple(options.closed_at)
    return show(ModelOptions(**given), as_json=options.json)


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

    _add_learn(commands.add_parser("learn", help="learn patterns from recorded runs"))
    _add_replay(
        commands.add_parser("replay", help="say how well recorded runs would have been guessed")
    )

    _add_model(
        commands.add_parser("model", help="say what speculation saves, by a model of its time")
    )
    report = commands.add_parser(
        "report",
        help="draw a page of what was logged or measured; see `spectool report --help`",
        add_help=False,
    )
    report.set_defaults(run=_bench, what="report_page")

    bench = commands.add_parser("bench", help="measure; see `spectool bench turns --help`")
    measures = bench.add_subparsers(required=True, metavar="what", dest="what")
    for name, about in (
        ("overhead", "what a turn costs when nothing is guessed"),
        ("turns", "what a turn takes when guesses hit and miss"),
        ("sources", "what each source of guesses hits, saves and wastes"),
        ("paper", "the workload of the paper, against its figures and the model's"),
        ("engine", "what a server with the tool cache saves over the round trip"),
        ("tables", "nothing: writes the documents' tables from what was measured"),
    ):
        measures.add_parser(name, help=about, add_help=False)
    bench.set_defaults(run=_bench)
    return parser


def _add_learn(learn: argparse.ArgumentParser) -> None:
    _add_traces(learn)
    learn.add_argument("-o", "--out", required=True, metavar="FILE", help="the file to write")
    learn.add_argument("--merge", action="store_true", help="add to what FILE holds already")
    learn.add_argument(
        "--shared-across",
        type=int,
        metavar="N",
        help="keep a value of an argument only if it was seen in N runs or more",
    )
    learn.set_defaults(run=_learn)


def _add_replay(replay: argparse.ArgumentParser) -> None:
    _add_traces(replay)
    replay.add_argument("--patterns", metavar="FILE", help="what `spectool learn` wrote")
    replay.add_argument(
        "--source",
        default="patterns",
        metavar="module:speculator",
        help="a speculator, its class, or a function that returns one (default: patterns)",
    )
    replay.add_argument(
        "--split",
        choices=["task"],
        help="learn from seven tenths of the tasks and replay the others; without it, start "
        "empty, replay all runs and learn from each turn once it is scored",
    )
    replay.add_argument(
        "--seed", type=int, action="append", default=[], metavar="N", help="of the split"
    )
    replay.add_argument(
        "--seeds", type=int, nargs="+", default=[], metavar="N", help="the same, several at once"
    )
    online = replay.add_mutually_exclusive_group()
    online.add_argument(
        "--online", action="store_true", default=None, help="learn from replayed turns"
    )
    online.add_argument(
        "--offline", dest="online", action="store_false", help="learn nothing from them"
    )
    replay.set_defaults(run=_replay)


def _add_model(model: argparse.ArgumentParser) -> None:
    for name, dest, about in (
        ("--G", "generation_s", "seconds the model writes a turn"),
        ("--T", "tool_s", "seconds a tool takes"),
        ("--g", "guess_s", "seconds until a guess"),
    ):
        model.add_argument(name, dest=dest, type=float, metavar="S", help=about)
    model.add_argument("--alpha", type=float, metavar="P", help="share of right guesses, 0 to 1")
    model.add_argument(
        "--traces", nargs="+", default=[], metavar="FILE", help="fit them to an event log or runs"
    )
    model.add_argument("--tools", metavar="FILE", help="of the runs, with `x_read_only`")
    for name, about in (
        ("--samples", "samples a turn; --alpha is that of one"),
        ("--calls", "calls a turn"),
        ("--depth", "calls guessed ahead, 1 for no chain"),
    ):
        model.add_argument(name, type=int, default=1, metavar="N", help=f"{about} (default: 1)")
    model.add_argument(
        "--turns", type=int, metavar="N", help="turns with calls before one that closes the run"
    )
    model.add_argument(
        "--closed-at",
        nargs="+",
        type=float,
        default=[],
        metavar="SHARE",
        help="where in the stream each call closes, for early dispatch",
    )
    for name, dest, about in (
        ("--likeness", "likeness", "of samples: 1 all the same (default), 0 independent"),
        ("--spread-G", "generation_spread", "of the logarithm of G (default: as recorded, 0.65)"),
        ("--spread-T", "tool_spread", "of T, as a share of it (default: 0.25)"),
        ("--cost", "cost_s", "seconds that guessing adds to a turn (default: 0)"),
        ("--cost-usd", "cost_usd", "dollars that guessing costs a turn (default: 0)"),
        ("--second-usd", "second_usd", "dollars that a second less of waiting is worth"),
    ):
        model.add_argument(
            name, dest=dest, type=float, default=argparse.SUPPRESS, metavar="X", help=about
        )
    model.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn")
    model.add_argument("--json", action="store_true", help="print JSON")
    model.set_defaults(run=_model)


def _add_traces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACES",
        help="files or folders: messages as JSON or JSON Lines, LangGraph checkpoint databases "
        "of SQLite, runs exported from LangSmith",
    )
    parser.add_argument(
        "--tools", metavar="FILE", help="list of tools in OpenAI's form, with `x_read_only`"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


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
