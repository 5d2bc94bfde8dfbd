"""Puts a reference engine under the agents that `tests/graph/differential` draws.

Their main model becomes a ChatOpenAI that the engine serves; the tools, the middleware, the graphs
and all that is compared stay. Asynchronous agents have the engine in their own loop, in virtual
time; synchronous ones have it in a thread, over HTTP on loopback.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from zlib import crc32

import httpx
import httpx2
import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_openai import ChatOpenAI
from vllm_spectool.errors import RejectedError
from vllm_spectool.reference import (
    CHATML,
    Call,
    ModelError,
    Prompt,
    Reference,
    ReferenceSettings,
    Turn,
    serving,
)
from vllm_spectool.reference.app import build_app
from vllm_spectool.reference.response import Response

from langchain_spectool import Speculation
from langchain_spectool.engines import ToolCacheClient
from tests.graph.differential import build as building
from tests.graph.differential import observe as observing
from tests.graph.differential import plain
from tests.graph.differential.observe import COMPARED, Seen
from tests.graph.differential.specs import AgentSpec, World

_TOKEN_S = {"async": 0.01, "sync": 0.006}
"""Seconds of the agent's clock for a token: an answer of 60 gives guesses time to land."""
_SETTLE_S = 1.0
_RESPONSE = re.compile(r"(chatcmpl-\S*?[0-9a-f]{32})\.\d+\b")
_CALL = re.compile(r"chatcmpl-tool-[0-9a-f]{16}")


_scripted_model = building._main_model
_plain_task_of = plain._task_of


class Names(plain.Names):
    """Names the engine's ids, too: a turn's number within its response is no difference."""

    def __init__(self, history: Any, finals: Any) -> None:
        history = [*history]
        super().__init__(history, finals)
        self._calls: dict[str, str] = {}
        for values in [*(each.values for each in reversed(history)), *finals]:
            for message in plain._messages(values):
                for made in getattr(message, "tool_calls", ()):
                    self._calls.setdefault(made["id"], f"<call {len(self._calls)}>")

    def _text(self, text: str) -> str:
        named = _CALL.sub(lambda found: self._calls.get(found[0], "<call>"), text)
        return super()._text(_RESPONSE.sub(r"\1", named))


class _ServedModel(ChatOpenAI):
    """Fails before it asks as often as is drawn; says which turn it asks for."""

    _spec: AgentSpec
    _engine: "Engine"
    _world: World

    def _asks(self, messages: list[BaseMessage]) -> None:
        turn = self._world.turn_of(messages)
        self._engine.ahead = turn - sum(isinstance(message, AIMessage) for message in messages)
        made = self._spec.turns[turn] if turn < len(self._spec.turns) else None
        self._world.attempts[turn] += 1
        if made is not None and self._world.attempts[turn] <= made.failures:
            msg = "overloaded"
            raise RuntimeError(msg)

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Any:
        self._asks(messages)
        return super()._generate(messages, *args, **options)

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Any:
        self._asks(messages)
        return await super()._agenerate(messages, *args, **options)

    def _stream(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Iterator[Any]:
        self._asks(messages)
        yield from super()._stream(messages, *args, **options)

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[Any]:
        self._asks(messages)
        async for part in super()._astream(messages, *args, **options):
            yield part


class Engine:
    """One reference engine that says what a drawn agent's model says."""

    def __init__(self, spec: AgentSpec, *, streaming: bool) -> None:
        self.spec = spec
        self.streaming = streaming
        self.ahead = 0
        """How many turns of the agent are not in its messages any more."""
        self.service = Reference(
            self._say,
            style=CHATML,
            settings=ReferenceSettings(token_s=_TOKEN_S[spec.clock]),
            clock=time.monotonic if spec.clock == "sync" else _loop_s,
        )
        self.url = "http://engine"
        self.verdicts: list[str] = []
        self._closing = contextlib.ExitStack()

    def _say(self, prompt: Prompt) -> Turn | str:
        turn = self.ahead + sum(each.role == "assistant" for each in prompt.said)
        outputs = [each.text for each in prompt.said if each.role == "tool"]
        # Whoever is told something else says something else.
        told = crc32(repr(plain.Names([], []).plain(outputs)).encode())
        answer = building._answer(self.spec, turn)
        calls = [Call(name=each["name"], params=each["args"]) for each in answer.tool_calls]
        text = str(answer.content)
        return Turn(content=text, calls=calls) if calls else f"{text}, told {told:08x}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve, to an agent in threads over HTTP, until nothing is left, a second at most."""
        with self._closing as closing:
            if self.spec.clock == "sync":
                self.url = closing.enter_context(serving(self.service))
            yield
            deadline = time.monotonic() + _SETTLE_S
            while any(self.service.left().values()) and time.monotonic() < deadline:
                time.sleep(0.005)
            assert not any(self.service.left().values()), self.service.left()

    def model(self, spec: AgentSpec, world: World, *, fails: bool) -> Any:
        """Stand for the main model of an agent; what it falls back to is not served."""
        if not fails:
            return _scripted_model(spec, world, fails=False)
        blocking = self._closing.enter_context(httpx2.Client(trust_env=False, verify=False))
        model = _ServedModel(
            model="reference",
            api_key="none",
            base_url=f"{self.url}/v1",
            max_retries=0,
            stream_usage=True,
            streaming=self.streaming,
            disable_streaming=not self.streaming,
            http_client=blocking,
            http_async_client=httpx2.AsyncClient(transport=_InProcess(self.service)),
        )
        model._spec, model._world, model._engine = spec, world, self
        return model

    def speculation(self, *args: Any, observers: Any, **options: Any) -> Speculation:
        """Stand for the Speculation of an agent: the same, with an engine to tell."""
        client = ToolCacheClient(
            f"{self.url}/v1",
            async_transport=httpx.ASGITransport(build_app(self.service)),
        )
        return Speculation(
            *args, observers=[*observers, _Verdicts(self.verdicts)], engine=client, **options
        )


class _Verdicts:
    """Notes what became of what the engine was told."""

    def __init__(self, verdicts: list[str]) -> None:
        self.verdicts = verdicts

    def on_event(self, event: Any) -> None:
        if event.kind == "engine":
            self.verdicts.append(event.verdict)


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


class _InProcess(httpx2.AsyncBaseTransport):
    """Asks a service in this very loop; answers arrive as they are written."""

    def __init__(self, service: Reference) -> None:
        self._service = service

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            answer = self._service.chat(request.content, dict(request.headers))
        except RejectedError as error:
            return httpx2.Response(error.status, json=error.body)
        if answer.request.stream:
            headers = {"content-type": "text/event-stream"}
            return httpx2.Response(200, headers=headers, stream=_Events(answer))
        try:
            return httpx2.Response(200, json=await answer.whole())
        except ModelError as error:
            return httpx2.Response(500, json={"error": {"message": str(error)}})
        finally:
            answer.close()


class _Events(httpx2.AsyncByteStream):
    def __init__(self, answer: Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for each in self._answer.events():
            yield each.encode()

    async def aclose(self) -> None:
        self._answer.close()


def _task_of(mode: str, payload: Any, shown: Any) -> tuple[Any, Any]:
    if mode == "tools":
        return payload["tool_call_id"], shown["tool_call_id"]
    return _plain_task_of(mode, payload, shown)


def observe(spec: AgentSpec, *, streaming: bool, tell: bool) -> tuple[Seen, Engine]:
    """Run `spec` stock on an engine, or with speculation and the engine told of it."""
    engine = Engine(spec, streaming=streaming)
    with pytest.MonkeyPatch.context() as patch, engine.running():
        patch.setattr(building, "_main_model", engine.model)
        patch.setattr(building, "Speculation", engine.speculation)
        patch.setattr(observing, "Names", Names)
        patch.setattr(plain, "_task_of", _task_of)
        return observing.observe(spec, "on" if tell else "stock"), engine


def assert_same(spec: AgentSpec, *, streaming: bool) -> tuple[Seen, Engine]:
    """Run `spec` on an engine without us, and with us and the engine told; return the latter.

    Raises:
        AssertionError: They differ, something of ours failed, or something is left behind.
    """
    spec = replace(spec, turns=tuple(replace(turn, truncated=False) for turn in spec.turns))
    stock, off = observe(spec, streaming=streaming, tell=False)
    here, on = observe(spec, streaming=streaming, tell=True)
    assert not here.errors, "; ".join(here.errors)
    for name in COMPARED:
        found = plain.difference(getattr(stock, name), getattr(here, name), name)
        assert found is None, f"on differs from stock at {found}\nin {spec}, {streaming=}"
    assert on.service.requests <= off.service.requests
    return here, on
