"""How much a server has computed so far, read from what it shows."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import httpx

from langchain_spectool.errors import SpectoolError

_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ITERATION: Final = re.compile(
    r"Iteration\(\d+\): \d+ context requests, (\d+) context tokens, "
    r"(\d+) generation requests, (\d+) generation tokens"
)
_NONE: Final[dict[str, str]] = {}
_QUIET_S: Final = 0.1
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What was computed; the difference of two is what was computed in between."""

    prefill_tokens: float
    """Computed otherwise than one at a time: prompts, what was injected, what was preempted."""
    steps: float
    decoded_tokens: float
    preemptions: float
    outcomes: Mapping[str, float] = field(default_factory=dict[str, float])
    """How turns of opted-in requests ended."""

    def since(self, earlier: "Work") -> "Work":
        """Return what was computed after `earlier`."""
        outcomes = {
            name: count - earlier.outcomes.get(name, 0.0) for name, count in self.outcomes.items()
        }
        return Work(
            prefill_tokens=self.prefill_tokens - earlier.prefill_tokens,
            steps=self.steps - earlier.steps,
            decoded_tokens=self.decoded_tokens - earlier.decoded_tokens,
            preemptions=self.preemptions - earlier.preemptions,
            outcomes={name: count for name, count in outcomes.items() if count},
        )


class Page:
    """A page of metrics in Prometheus' text form."""

    def __init__(self, text: str) -> None:
        """Read it."""
        self._samples = [
            (name, dict(_LABEL.findall(labels)), float(value))
            for name, labels, value in _SAMPLE.findall(text)
        ]

    def has(self, name: str) -> bool:
        """Say whether there is a sample of this name."""
        return any(name == each for each, _, _ in self._samples)

    def total(self, name: str, **labels: str) -> float:
        """Sum the samples of a name that carry all of `labels`."""
        return sum(
            value
            for each, carried, value in self._samples
            if each == name and labels.items() <= carried.items()
        )

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the samples of a name by one of their labels."""
        return {
            carried[label]: value
            for each, carried, value in self._samples
            if each == name and label in carried
        }

    def labels(self, name: str) -> dict[str, str]:
        """Return the labels of the first sample of a name; empty where there is none."""
        return next((carried for each, carried, _ in self._samples if each == name), _NONE)


class Adapter(Protocol):
    """Knows the names of one engine's metrics."""

    engine: str

    def work(self, page: Page) -> Work:
        """Return what was computed so far."""
        ...

    def busy(self, page: Page) -> float:
        """Return how many requests there are."""
        ...


class VllmAdapter:
    """vLLM 0.32.

    `prompt_tokens_by_source` counts a request's first prefill, so what goes on in place has to be
    added: the injected tokens, and the stop token before them, which is computed with them. What
    is computed again after a preemption is in none of its counters.
    """

    engine = "vllm"

    def work(self, page: Page) -> Work:
        """Return what was computed so far."""
        outcomes = _outcomes(page)
        computed = page.total("vllm:prompt_tokens_by_source_total", source="local_compute")
        injected = page.total("vllm:spectool_injected_tokens_total")
        return Work(
            prefill_tokens=computed + injected + outcomes.get("continued", 0.0),
            steps=page.total("vllm:iteration_tokens_total_count"),
            decoded_tokens=page.total("vllm:generation_tokens_total"),
            preemptions=page.total("vllm:num_preemptions_total"),
            outcomes=outcomes,
        )

    def busy(self, page: Page) -> float:
        """Return how many requests there are."""
        return page.total("vllm:num_requests_running") + page.total("vllm:num_requests_waiting")


class ReferenceAdapter:
    """The reference engine, which has no prefix cache."""

    engine = "reference"

    def work(self, page: Page) -> Work:
        """Return what was computed so far."""
        return Work(
            prefill_tokens=page.total("vllm:spectool_prefill_tokens"),
            steps=page.total("vllm:spectool_steps"),
            decoded_tokens=page.total("vllm:spectool_decoded_tokens"),
            preemptions=page.total("vllm:spectool_preemptions"),
            outcomes=_outcomes(page),
        )

    def busy(self, page: Page) -> float:
        """Return how many requests there are."""
        return sum(page.total(f"vllm:spectool_requests_{kind}") for kind in ("running", "waiting"))


def adapter_for(page: Page) -> Adapter:
    """Return the adapter that can read `page`.

    Raises:
        SpectoolError: There is none.
    """
    if page.has("vllm:spectool_steps"):
        return ReferenceAdapter()
    if page.has("vllm:prompt_tokens_by_source_total"):
        return VllmAdapter()
    msg = "the server's /metrics are neither those of vLLM 0.32 nor of the reference engine"
    raise SpectoolError(msg)


class Meter:
    """Reads a server once it is idle."""

    def __init__(
        self, client: httpx.AsyncClient, adapter: Adapter, log: Path | None = None
    ) -> None:
        """Take the log of a server that writes every iteration into it, where there is one."""
        self._client = client
        self._adapter = adapter
        self._log = log

    @property
    def source(self) -> str:
        """Where prefill tokens and steps come from."""
        return "iteration log" if self._log else "/metrics"

    async def read(self) -> tuple[Work, Work]:
        """Return what was computed so far, by the best source and by /metrics.

        Raises:
            SpectoolError: The server does not come to rest.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + _PATIENCE_S
        before: tuple[Work, Work] | None = None
        while True:
            page = await page_of(self._client)
            busy = self._adapter.busy(page)
            shown = self._adapter.work(page)
            seen = (_logged(self._log, shown) if self._log else shown), shown
            if seen == before and not busy:
                return seen
            if clock() > until_s:
                msg = f"no rest {_PATIENCE_S:g} s after the last answer: {busy:g} requests run"
                raise SpectoolError(msg)
            before = seen
            await asyncio.sleep(_QUIET_S)


def block_size(page: Page) -> tuple[int | None, int | None]:
    """Return the tokens of a block and the number of blocks, where the server says them."""
    info = page.labels("vllm:cache_config_info")
    return _whole(info.get("block_size")), _whole(info.get("num_gpu_blocks"))


async def page_of(client: httpx.AsyncClient) -> Page:
    """Read a server's metrics."""
    response = await client.get("/metrics", follow_redirects=True)
    response.raise_for_status()
    return Page(response.text)


def _logged(log: Path, shown: Work) -> Work:
    """Count prefill tokens and steps from the iterations themselves.

    A preempted request computes its tokens again as one that generates: what it computes beyond
    one token is prefill too.
    """
    iterations = [
        tuple(map(int, numbers)) for numbers in _ITERATION.findall(log.read_text(errors="replace"))
    ]
    return Work(
        prefill_tokens=sum(
            context + generated - requests for context, requests, generated in iterations
        ),
        steps=len(iterations),
        decoded_tokens=shown.decoded_tokens,
        preemptions=shown.preemptions,
        outcomes=shown.outcomes,
    )


def _outcomes(page: Page) -> dict[str, float]:
    return page.by("vllm:spectool_turns_total", "outcome")


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
