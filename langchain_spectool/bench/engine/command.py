"""`spectool bench engine`: measures a server with the tool cache, and says whether bars are met.

Counts carry the bars. Times are shown without one, also where nothing is gained.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from langchain_spectool.bench.engine.measuring import measure
from langchain_spectool.bench.engine.plan import Place, Plan
from langchain_spectool.bench.engine.printing import print_tables
from langchain_spectool.bench.engine.server import Start
from langchain_spectool.errors import SpectoolError


def main(argv: Sequence[str]) -> int:
    """Measure, print, and return the exit status: 1 for a missed bar, 2 for no measurement."""
    given = _parsed(argv)
    try:
        found = measure(_plan(given), _place(given))
    except (SpectoolError, httpx.HTTPError) as error:
        print(f"spectool bench engine: {error or repr(error)}", file=sys.stderr)
        return 2
    text = json.dumps(found, indent=2)
    if given.out:
        given.out.write_text(f"{text}\n", "utf-8")
    if given.json:
        print(text)
    else:
        print_tables(found)
    return 0 if all(bar["met"] for bar in found["bars"]) else 1


def _plan(given: argparse.Namespace) -> Plan:
    return Plan(
        repeats=given.repeats,
        quick=given.quick,
        seed=given.seed,
        drafts=given.drafts,
        until_s=time.monotonic() + given.within,
    )


def _place(given: argparse.Namespace) -> Place:
    if given.url:
        return Place(url=given.url, pressure_url=given.pressure_url, api_key=given.api_key)
    if not (given.python and given.model):
        msg = (
            "no server: give --url of one that runs, or --python of an environment with vLLM and "
            "--model with a folder (engine/set_up_vllm.sh makes both)"
        )
        raise SpectoolError(msg)
    for path in (given.python, given.model):
        if not path.exists():
            msg = f"there is no {path}"
            raise SpectoolError(msg)
    # Not resolved: the interpreter of a virtual environment is a link out of it.
    start = Start(
        python=given.python.absolute(), model=given.model, flags=given.flags, logs=given.logs
    )
    return Place(start=start)


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="spectool bench engine",
        description="Compares round trips with responses that go on in place, on one server. "
        "Exits with status 1 if a bar is missed. Needs httpx.",
        epilog="What follows a `--` goes to vLLM, as in `-- --enforce-eager`.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="also write the JSON there")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument(
        "--pressure-url", metavar="URL", help="of another one that has too few blocks"
    )
    parser.add_argument("--api-key", metavar="KEY", help="of these servers")
    parser.add_argument(
        "--python", type=Path, metavar="PATH", help="interpreter that has vLLM: start one"
    )
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="what that one serves")
    parser.add_argument(
        "--logs", type=Path, metavar="FOLDER", help="where to leave what those started write"
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="of each cell (default: 3)")
    parser.add_argument(
        "--within",
        type=float,
        default=math.inf,
        metavar="S",
        help="seconds; fewer repeats where more would take longer, one at least",
    )
    parser.add_argument(
        "--drafts", action="store_true", help="also one server that drafts arguments, with --python"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the arms' order")
    parser.add_argument(
        "--quick", action="store_true", help="all of it small, to see that it works"
    )
    own, flags = _split(argv)
    given = parser.parse_args(own)
    given.flags = flags
    if given.repeats is None:
        given.repeats = 1 if given.quick else 3
    if given.repeats < 1:
        parser.error(f"--repeats must be 1 or more, got {given.repeats}")
    return given


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if "--" not in argv:
        return argv, ()
    cut = list(argv).index("--")
    return argv[:cut], argv[cut + 1 :]
