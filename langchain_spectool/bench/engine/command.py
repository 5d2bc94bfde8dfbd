"""`spectool bench engine`: measures a server with the tool cache, and says whether bars are met.

Counts carry the bars. Times are shown without one, also where nothing is gained.
"""

import argparse
import asyncio
import json
import math
import os
import platform
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx

from langchain_spectool.bench.engine.agents import ARMS, MAX_TOKENS
from langchain_spectool.bench.engine.bars import as_json
from langchain_spectool.bench.engine.cells import Cell, Results, Stage
from langchain_spectool.bench.engine.meters import Meter, adapter_for, block_size, page_of
from langchain_spectool.bench.engine.printing import print_tables
from langchain_spectool.bench.engine.server import Server, Start, accelerator, packages, started
from langchain_spectool.bench.report import machine, progress, versions
from langchain_spectool.errors import SpectoolError

NOTE: Final = (
    "The guess is always right and its early run is over when the question is asked: this is what "
    "a hit is worth, and claims no hit rate. Prefill tokens, steps and executions are counts; "
    "times depend on the machine and carry no bar."
)
CONVERSATION_TOKENS: Final = 600
"""About what one conversation comes to. The server under pressure holds two of them."""
_USUAL_BLOCK: Final = 16
_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is played."""

    repeats: int = 3
    quick: bool = False
    seed: int = 0

    @property
    def cells(self) -> list[Cell]:
        """Return all cells, those of the server under pressure last."""
        few, many, crowd, tasks = (1, 2, 4, 2) if self.quick else (1, 8, 32, 4)
        wait_s = 0.05 if self.quick else 0.5
        grid = [
            Cell(agents=agents, tool_s=tool_s, tasks=tasks if agents == few else 1)
            for agents in (few, many)
            for tool_s in (0.0, wait_s)
        ]
        return [
            *grid,
            Cell(agents=crowd, tool_s=wait_s),
            Cell(agents=8, tool_s=wait_s, pressure=True),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which servers there are, or how to start them."""

    url: str | None = None
    pressure_url: str | None = None
    start: Start | None = None
    api_key: str | None = None


def main(argv: Sequence[str]) -> int:
    """Measure, print, and return the exit status: 1 for a missed bar, 2 for no measurement."""
    given = _parsed(argv)
    try:
        place = _place(given)
        found = measure(Plan(repeats=given.repeats, quick=given.quick, seed=given.seed), place)
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


def measure(plan: Plan, place: Place) -> dict[str, Any]:
    """Measure; return what docs/engine-benchmark.md describes, as JSON values.

    Raises:
        SpectoolError: A server does not come up, or has no tool cache.
        httpx.HTTPError: A server refuses a request.
    """
    began_s, load = time.perf_counter(), os.getloadavg()[0]
    started_here = packages(place.start.python) if place.start else None
    found: dict[str, Any] = {
        "benchmark": "engine",
        "note": NOTE,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {**versions("httpx"), "server": started_here},
        "machine": {**machine(), "accelerator": accelerator(), "load_before": load},
        "settings": _settings(plan),
        "servers": {},
        "not_run": {},
    }
    results: list[Results] = []
    with progress("engine", len(plan.cells) * plan.repeats * len(ARMS)) as advance:
        for name in ("roomy", "pressure"):
            results += _part(name, plan, place, found, advance)
    found["cells"] = [each.as_json() for each in results]
    found |= as_json(results)
    found["wall_s"] = round(time.perf_counter() - began_s, 1)
    return found


def _part(
    name: str, plan: Plan, place: Place, found: dict[str, Any], advance: Callable[[], None]
) -> list[Results]:
    """Play the cells that belong on one server."""
    cells = [each for each in plan.cells if each.pressure == (name == "pressure")]
    with _server(name, place, found["servers"]) as server:
        if server is None:
            found["not_run"][name] = "a server of its own: give --pressure-url, or --python"
            return []
        results, found["servers"][name] = asyncio.run(
            _played(cells, plan, server, place.api_key, advance)
        )
    return results


@contextmanager
def _server(
    name: str, place: Place, servers: Mapping[str, Mapping[str, Any]]
) -> Generator[Server | None]:
    if place.start is None:
        url = place.pressure_url if name == "pressure" else place.url
        yield Server(url=url) if url else None
        return
    more: list[str] = []
    if name == "pressure":
        block = servers["roomy"]["block_tokens"] or _USUAL_BLOCK
        # One block is vLLM's own, and one is to spare.
        blocks = 2 * math.ceil(CONVERSATION_TOKENS / block) + 2
        more = ["--num-gpu-blocks-override", str(blocks)]
    with started(place.start, *more) as server:
        yield server


async def _played(
    cells: Sequence[Cell],
    plan: Plan,
    server: Server,
    api_key: str | None,
    advance: Callable[[], None],
) -> tuple[list[Results], dict[str, Any]]:
    async with _client(server.url, api_key) as client:
        await _check_cache(client)
        card = (await client.get("/v1/models")).raise_for_status().json()["data"][0]
        page = await page_of(client)
        adapter = adapter_for(page)
        # Only vLLM writes its iterations into its log.
        meter = Meter(client, adapter, server.log if adapter.engine == "vllm" else None)
        stage = Stage(
            client=client, model=card["id"], meter=meter, seed=plan.seed, run=secrets.token_hex(4)
        )
        results = await stage.play(cells, plan.repeats, advance)
        block_tokens, blocks = block_size(page)
        caching = page.labels("vllm:cache_config_info").get("enable_prefix_caching")
        return results, {
            "engine": adapter.engine,
            "version": await _version(client),
            "model": card["id"],
            "context_tokens": card.get("max_model_len"),
            "block_tokens": block_tokens,
            "blocks": blocks,
            "prefix_caching": caching == "True",
            "counted_by": meter.source,
            "flags": server.flags,
        }


@asynccontextmanager
async def _client(url: str, api_key: str | None) -> AsyncGenerator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(
        base_url=url.removesuffix("/").removesuffix("/v1"),
        headers=headers,
        limits=limits,
        timeout=_TIMEOUT_S,
        trust_env=False,
    ) as client:
        yield client


async def _check_cache(client: httpx.AsyncClient) -> None:
    try:
        response = await client.get("/v1/cache-tool-output")
    except httpx.TransportError as error:
        msg = f"nothing answers at {client.base_url}: {error!r}"
        raise SpectoolError(msg) from error
    if not response.is_success:
        msg = f"{client.base_url} has no tool cache ({response.status_code}): see docs/engine.md"
        raise SpectoolError(msg)
    status: Mapping[str, Any] = response.json()
    if "o3" not in status["on"]:
        msg = f"the tool cache of {client.base_url} is off: {status['reason']}"
        raise SpectoolError(msg)


async def _version(client: httpx.AsyncClient) -> str | None:
    response = await client.get("/version")
    return response.json()["version"] if response.is_success else None


def _settings(plan: Plan) -> dict[str, Any]:
    return {
        "quick": plan.quick,
        "repeats": plan.repeats,
        "seed": plan.seed,
        "arms": [asdict(arm) for arm in ARMS],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
        "streaming": False,
        "pressure_conversations_held": 2,
        "prefix_cache": "shared by no two conversations (cache_salt)",
    }


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
    return Place(start=Start(python=given.python.absolute(), model=given.model, flags=given.flags))


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
    parser.add_argument("--repeats", type=int, metavar="N", help="of each cell (default: 3)")
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
