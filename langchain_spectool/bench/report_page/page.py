"""Assembles the page and writes it: one file that asks nobody for anything."""

import argparse
import base64
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from langchain_spectool._core.events import Event
from langchain_spectool.bench.report_page.curves import speedup_by_alpha
from langchain_spectool.bench.report_page.figures import Figure
from langchain_spectool.bench.report_page.log_part import log_headline, log_parts
from langchain_spectool.bench.report_page.paper_part import paper_headline, paper_parts
from langchain_spectool.bench.report_page.paper_results import read_paper
from langchain_spectool.bench.report_page.parts import Headline, Part
from langchain_spectool.bench.report_page.scorecard import facts_of
from langchain_spectool.errors import SpectoolError
from langchain_spectool.telemetry.event_log import read_events
from langchain_spectool.traces.trajectory import is_mapping

_TEMPLATE = files("langchain_spectool.bench.report_page") / "template"
_MOST_COMPLAINTS = 5
_EQUATION = (
    "Equation (2) of arXiv 2512.15834, for one guess a turn that hides tool time: G is the time of "
    "the model's turn, g that of the draft model, T that of the tool."
)
_LAYOUT: Mapping[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "height": 420,
    "margin": {"l": 60, "r": 20, "t": 64, "b": 50},
    "hovermode": "closest",
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    "showlegend": True,
}


def main(argv: Sequence[str]) -> int:
    """Run `spectool report`.

    Raises:
        SpectoolError: A file cannot be read or written, or plotly or jinja2 is missing.
        SystemExit: The arguments are wrong (code 2), or ask for help (code 0).
    """
    parser = argparse.ArgumentParser(
        prog="spectool report",
        description="Write a page that opens offline about an event log, the paper's experiment, "
        "or both.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="what an `EventLog` wrote, or what `spectool bench paper --json` printed; of each "
        "one at most",
    )
    parser.add_argument("-o", "--out", required=True, metavar="PAGE", help="the page to write")
    given = parser.parse_args(argv)
    paper, events = _read(given.files)
    page = render(paper, events)
    write(page, given.out)
    print(f"{given.out}: {_counted(events)}{len(page.encode()) / 1e6:.1f} MB")
    return 0


def _counted(events: Sequence[Event] | None) -> str:
    if events is None:
        return ""
    turns = len({event.turn for event in events if event.turn > 0})
    runs = len({event.run for event in events if event.run})
    return f"{len(events)} events, {turns} turns, {runs} runs, "


def write(page: str, path: str) -> None:
    """Write a page.

    Raises:
        SpectoolError: The file cannot be written.
    """
    try:
        Path(path).write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        msg = f"{path!r} cannot be written: {error.strerror}"
        raise SpectoolError(msg) from error


def render(paper: Mapping[str, Any] | None, events: Sequence[Event] | None) -> str:
    """Return the page, in one piece of HTML.

    Args:
        paper: What `spectool bench paper --json` prints.
        events: An event log. Whatever its texts hold is shown to the letter.

    Raises:
        SpectoolError: There is nothing to show, `paper` is something else, or plotly or jinja2 is
            not installed.
    """
    headlines: list[Headline] = []
    parts: list[Part] = []
    if paper is not None:
        results = read_paper(paper)
        headlines.append(paper_headline(results))
        parts += paper_parts(results)
    facts = facts_of(events) if events else None
    if facts is not None:
        headlines.append(log_headline(facts))
        parts += log_parts(facts)
    if not parts:
        msg = "there is nothing to show: the log holds no events"
        raise SpectoolError(msg)
    shadow = paper is None and facts is not None and facts.shadow
    title = "What running tools early would save" if shadow else "What running tools early saved"
    return _page(title, headlines, [*parts, _model_part()])


def _model_part() -> Part:
    return Part(
        id="model",
        title="What is possible",
        sentences=(_EQUATION,),
        figures=[speedup_by_alpha()],
    )


def _page(title: str, headlines: Sequence[Headline], parts: Sequence[Part]) -> str:
    markup, environment = _jinja()
    plotly, script = _plotly(), _text("report.js")
    figures = {f"plot-{figure.id}": _drawn(figure) for part in parts for figure in part.figures}
    return environment.get_template("page.html.j2").render(
        title=title,
        policy=_policy(plotly, script),
        css=markup(_text("report.css")),
        plotly=markup(plotly),
        script=markup(script),
        headlines=headlines,
        parts=parts,
        figures=figures,
        footer=_footer(),
    )


def _drawn(figure: Figure) -> dict[str, Any]:
    return {"data": figure.traces, "layout": {**_LAYOUT, **figure.layout}}


def _policy(*scripts: str) -> str:
    """Forbid the page everything but its own two scripts: no other script runs, nothing is asked.

    A meta element cannot forbid navigation; the page has no form and no link that leads out.
    """
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _jinja() -> tuple[Any, Any]:
    """Return what marks a text as HTML, and the templates; all other text is escaped."""
    jinja2 = _needed("jinja2")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return _needed("markupsafe").Markup, environment


def _plotly() -> str:
    return _needed("plotly.offline").get_plotlyjs()


def _needed(module: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        msg = f"the page needs {package}: pip install 'langchain-spectool[report]'"
        raise SpectoolError(msg) from error


def _text(name: str) -> str:
    return (_TEMPLATE / name).read_text(encoding="utf-8")


def _footer() -> str:
    now = datetime.now(UTC).isoformat(timespec="minutes")
    try:
        own = version("langchain-spectool")
    except PackageNotFoundError:  # run from a checkout
        own = "from a source folder"
    return f"Written by langchain-spectool {own} on {now}. The page asks nobody for anything."


def _events(path: str) -> list[Event]:
    events, bad = read_events(path)
    for complaint in bad[:_MOST_COMPLAINTS]:
        print(f"spectool: {path}: skipped {complaint}", file=sys.stderr)
    if len(bad) > _MOST_COMPLAINTS:
        print(f"spectool: {path}: skipped {len(bad)} lines in all", file=sys.stderr)
    if not events:
        msg = f"{path!r} holds no events: write some with `EventLog`, an observer"
        raise SpectoolError(msg)
    return events


def _read(paths: Sequence[str]) -> tuple[Mapping[str, Any] | None, list[Event] | None]:
    """Return the results and the events of the files, one of each at most."""
    results = {path: found for path in paths if (found := _results(path)) is not None}
    logs = [path for path in paths if path not in results]
    if len(results) > 1 or len(logs) > 1:
        msg = f"one event log and one file of results make a page, not {' and '.join(paths)}"
        raise SpectoolError(msg)
    return next(iter(results.values()), None), _events(logs[0]) if logs else None


def _results(path: str) -> Mapping[str, Any] | None:
    """Return what a benchmark printed; None if it is not one piece of JSON, as a log is not."""
    try:
        found: object = json.loads(Path(path).read_bytes())
    except OSError as error:
        msg = f"{path!r} cannot be read: {error.strerror}"
        raise SpectoolError(msg) from error
    except (ValueError, RecursionError):
        return None
    return found if is_mapping(found) and "kind" not in found else None
