"""Agents on the reference engine: ChatOpenAI over HTTP on loopback, and tools that count."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from vllm_spectool.reference import CHATML, Reference, ReferenceSettings, serving

from langchain_spectool import Guess, Policy, Speculation, speculatable
from langchain_spectool.engines import ToolCacheClient
from langchain_spectool.testing import RecordingObserver

SETTLE_S = 1.0
"""Real seconds that an engine has to let go of what ended."""

TOKEN_S = 0.008
"""Real seconds for a token: an answer takes longer than a post, on a busy machine, too."""

Calls = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass
class Oracle:
    """Guesses what a test says, by how many tool messages there are."""

    guesses: Mapping[int, Calls]
    delay_s: float = 0.0
    name: str = "oracle"
    samples: int = 1
    timeout_s: float = 5.0
    free: bool = True

    def _next(self, request: Any) -> Calls:
        turn = sum(message.type == "ai" for message in request.messages)
        return self.guesses.get(turn, ())

    def guess(self, request: Any, sample: int) -> Iterator[Guess]:
        time.sleep(self.delay_s)
        for tool, args in self._next(request):
            yield Guess(tool=tool, args=args)

    async def aguess(self, request: Any, sample: int) -> AsyncIterator[Guess]:
        await asyncio.sleep(self.delay_s)
        for tool, args in self._next(request):
            yield Guess(tool=tool, args=args)


@dataclass
class Bench:
    """Tools, what they did, and an engine with a script."""

    service: Reference
    url: str
    ran: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    committed: list[str] = field(default_factory=list[str])
    """Of those, the tools that ran because the model had called them."""
    delay_s: float = 0.0
    begins: Callable[[], bool] = lambda: True
    """Whether the tool may go on: it waits for that first."""
    observer: RecordingObserver = field(default_factory=RecordingObserver)

    def _runs(self, tool: str, city: str) -> None:
        self.ran.append((tool, city))
        config = var_child_runnable_config.get() or {}
        if "lc_source" not in (config.get("metadata") or {}):
            self.committed.append(tool)

    def read(self, **contract: Any) -> BaseTool:
        """Return a tool that looks something up."""

        def weather(city: str) -> str:
            self._runs("weather", city)
            time.sleep(self.delay_s)
            return f"18 degrees in {city}"

        async def aweather(city: str) -> str:
            self._runs("weather", city)
            while not self.begins():  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.005)
            await asyncio.sleep(self.delay_s)
            return f"18 degrees in {city}"

        made = StructuredTool.from_function(
            weather, coroutine=aweather, name="weather", description="Tell the weather."
        )
        return speculatable(made, **contract)

    def write(self) -> BaseTool:
        """Return a tool that changes the world."""

        def send(city: str) -> str:
            self._runs("send", city)
            return "sent"

        async def asend(city: str) -> str:
            return send(city)

        return StructuredTool.from_function(
            send, coroutine=asend, name="send", description="Send the weather."
        )

    def model(self, *, streaming: bool = True, **options: Any) -> ChatOpenAI:
        return ChatOpenAI(
            model="reference",
            api_key=options.pop("api_key", "none"),
            base_url=f"{self.url}/v1",
            streaming=streaming,
            max_retries=options.pop("max_retries", 0),
            **options,
        )

    def speculation(
        self, guesses: Mapping[int, Calls], *, engine: Any = True, delay_s: float = 0.0, **more: Any
    ) -> Speculation:
        client = ToolCacheClient(f"{self.url}/v1") if engine is True else engine or None
        return Speculation(
            more.pop("tools", ()),
            speculators=[Oracle(guesses, delay_s)],
            policy=Policy(benefit=None),
            engine=client,
            observers=[self.observer],
            **more,
        )

    def agent(
        self,
        speculation: Speculation | None,
        tools: Sequence[BaseTool],
        *,
        model: Any = None,
        middleware: Sequence[AgentMiddleware] = (),
        **options: Any,
    ) -> Any:
        ours = [speculation.middleware()] if speculation else []
        return create_agent(
            model or self.model(),
            tools,
            middleware=[*middleware, *ours],
            checkpointer=InMemorySaver(),
            **options,
        )

    @property
    def engine_verdicts(self) -> list[str]:
        return [e.verdict for e in self.observer.events if e.kind == "engine"]

    @property
    def claims(self) -> list[str]:
        return [e.verdict for e in self.observer.events if e.kind == "claim"]

    @property
    def errors(self) -> list[str]:
        return [f"{e.source}: {e.detail}" for e in self.observer.events if e.kind == "error"]

    def assert_nothing_left(self, speculation: Speculation) -> None:
        """Wait, at most a second, until the engine holds nothing; the run holds nothing now."""
        assert speculation.engine is None or speculation.engine.in_progress == 0
        assert self.errors == []
        self.assert_engine_empty()

    def assert_engine_empty(self) -> None:
        """Wait, at most a second, until the engine holds nothing: it runs in a thread."""
        deadline = time.monotonic() + SETTLE_S
        while any(self.service.left().values()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(self.service.left().values()), self.service.left()


@contextlib.contextmanager
def bench(
    script: Callable[..., Any], *, token_s: float = TOKEN_S, style: Any = CHATML, **more: Any
) -> Iterator[Bench]:
    """Serve an engine that says `script`."""
    service = Reference(script, style=style, settings=ReferenceSettings(token_s=token_s, **more))
    with serving(service) as url:
        yield Bench(service, url)


def said(messages: Sequence[Any]) -> list[Any]:
    """Return what two runs of a conversation have in common: ids are random, order is not."""
    names: dict[str, str] = {}

    def named(call_id: str) -> str:
        return names.setdefault(call_id, f"call {len(names)}")

    return [
        (
            message.type,
            message.content,
            [(c["name"], c["args"], named(c["id"])) for c in getattr(message, "tool_calls", ())],
            getattr(message, "tool_call_id", None) and named(message.tool_call_id),
            _usage(message),
            {k: v for k, v in message.response_metadata.items() if k not in ("id", "token_usage")},
        )
        for message in messages
    ]


def _usage(message: Any) -> Any:
    used = getattr(message, "usage_metadata", None)
    return used and {k: used[k] for k in ("input_tokens", "output_tokens", "total_tokens")}


def inputs(text: str = "How is the weather in Rome?") -> dict[str, Any]:
    """Ask something."""
    return {"messages": [("user", text)]}


def thread(name: str = "t") -> dict[str, Any]:
    """Name a conversation."""
    return {"configurable": {"thread_id": name}}
