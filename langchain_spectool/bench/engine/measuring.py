"""Starts the servers one after another, and plays on each what belongs there."""

import asyncio
import math
import os
import platform
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from langchain_spectool.bench.engine.agents import ARMS, DRAFTING, MAX_TOKENS
from langchain_spectool.bench.engine.bars import as_json
from langchain_spectool.bench.engine.cells import MORE_TOKENS, Results, Stage, Where
from langchain_spectool.bench.engine.meters import Meter, adapter_for, block_size, page_of
from langchain_spectool.bench.engine.plan import Place, Plan
from langchain_spectool.bench.engine.server import Server, accelerator, packages, started
from langchain_spectool.bench.report import machine, progress, versions
from langchain_spectool.errors import SpectoolError

NOTE: Final = (
    "The guess is the call that the question suggests, and its early run is over when it is asked: "
    "this is what a hit is worth, and claims no hit rate. Prefill tokens, steps and executions are "
    "counts; times depend on the machine and carry no bar."
)
HELD: Final = 2
"""How many of the longest conversations the server under pressure holds."""
_USUAL_BLOCK: Final = 16
_TIMEOUT_S: Final = 300.0
_NEEDS: Final[Mapping[Where, str]] = {
    "roomy": "it needs a server: give --url, or --python",
    "pressure": "it needs a server of its own: give --pressure-url, or --python",
    "drafts": "it needs a server of its own: give --python",
}


def measure(plan: Plan, place: Place) -> dict[str, Any]:
    """Measure; return what docs/engine-benchmark.md describes, as JSON values.

    Raises:
        SpectoolError: A server does not come up, has no tool cache, or its model calls no tool.
        httpx.HTTPError: A server refuses a request.
    """
    began_s, load = time.perf_counter(), os.getloadavg()[0]
    found: dict[str, Any] = {
        "benchmark": "engine",
        "note": NOTE,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": versions("httpx"),
        "server_versions": packages(place.start.python) if place.start else None,
        "machine": machine(),
        "accelerator": accelerator(),
        "load_before": load,
        "settings": _settings(plan),
    }
    with progress("engine", sum(len(each.ways) for each in plan.cells) * plan.repeats) as advance:
        run = _Run(plan=plan, place=place, advance=advance)
        for name in plan.servers:
            run.part(name)
    return {
        **found,
        "servers": run.servers,
        "not_run": run.not_run,
        "cells": [each.as_json() for each in run.results],
        **as_json(run.results),
        "wall_s": round(time.perf_counter() - began_s, 1),
    }


@dataclass(slots=True, kw_only=True)
class _Run:
    plan: Plan
    place: Place
    advance: Callable[[], None]
    servers: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    not_run: dict[str, str] = field(default_factory=dict[str, str])
    results: list[Results] = field(default_factory=list[Results])
    start_s: float = 0.0
    """What the last server took to start."""

    def part(self, name: Where) -> None:
        """Play the cells that belong on one server.

        Raises:
            SpectoolError: It cannot be measured. Where it is one that drafts, this is noted
                instead: the others are worth their result.
        """
        try:
            self._part(name)
        except SpectoolError as error:
            if name != "drafts":
                raise
            self.not_run[name] = str(error)

    def _part(self, name: Where) -> None:
        began_s = time.monotonic()
        if self.start_s and began_s + self.start_s > self.plan.until_s:
            self.not_run[name] = "no time was left for it"
            return
        with self._server(name) as server:
            if server is None:
                self.not_run[name] = _NEEDS[name]
                return
            self.start_s = time.monotonic() - began_s
            until_s = self.plan.until(name, self.start_s)
            results, self.servers[name] = asyncio.run(self._played(name, server, until_s))
        self.results += results

    @contextmanager
    def _server(self, name: Where) -> Generator[Server | None]:
        if self.place.start is None:
            url = {"roomy": self.place.url, "pressure": self.place.pressure_url}.get(name)
            yield Server(url=url) if url else None
            return
        with started(self.place.start, *self._flags(name)) as server:
            yield server

    def _flags(self, name: Where) -> Sequence[str]:
        if name == "drafts":
            return ("--draft-arguments",)
        return self._pressing() if name == "pressure" else ()

    def _pressing(self) -> Sequence[str]:
        """Return the flags for a cache that holds a few of the longest conversations."""
        block = self.servers["roomy"]["block_tokens"] or _USUAL_BLOCK
        longest = max(each.longest for each in self.results) + MORE_TOKENS
        # One block is vLLM's own, and one is to spare.
        blocks = HELD * math.ceil(longest / block) + 2
        # vLLM does not start with a context that the cache could not hold.
        context = min(self.servers["roomy"]["context_tokens"], (blocks - 1) * block)
        return ("--num-gpu-blocks-override", str(blocks), "--max-model-len", str(context))

    async def _played(
        self, name: Where, server: Server, until_s: float
    ) -> tuple[list[Results], dict[str, Any]]:
        cells = [each for each in self.plan.cells if each.server == name]
        async with _client(server.url, self.place.api_key) as client:
            await _check_cache(client, "o2" if name == "drafts" else "o3")
            card = (await client.get("/v1/models")).raise_for_status().json()["data"][0]
            page = await page_of(client)
            adapter = adapter_for(page)
            # Only vLLM writes its iterations into its log, where drafts would count as prefill.
            log = server.log if adapter.engine == "vllm" and name != "drafts" else None
            stage = Stage(
                client=client,
                model=card["id"],
                meter=Meter(client, adapter, log),
                run=secrets.token_hex(4),
                seed=self.plan.seed,
                until_s=until_s,
            )
            results = await stage.play(cells, self.plan.repeats, self.advance)
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
                "counted_by": stage.meter.source,
                "repeats": results[0].repeats,
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


async def _check_cache(client: httpx.AsyncClient, what: str) -> None:
    try:
        response = await client.get("/v1/cache-tool-output")
    except httpx.TransportError as error:
        msg = f"nothing answers at {client.base_url}: {error!r}"
        raise SpectoolError(msg) from error
    if not response.is_success:
        msg = f"{client.base_url} has no tool cache ({response.status_code}): see docs/engine.md"
        raise SpectoolError(msg)
    status: Mapping[str, Any] = response.json()
    if what not in status["on"]:
        reason = status["reason"] or f"it was started without {what}"
        msg = f"the tool cache of {client.base_url} is off: {reason}"
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
        "drafting_arms": [asdict(arm) for arm in DRAFTING] if plan.drafts else [],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
        "streaming": False,
        "pressure_conversations_held": HELD,
        "prefix_cache": "shared by no two conversations (cache_salt)",
    }
