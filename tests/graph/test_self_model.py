"""`SelfModel`: what the main model is asked beside its turn, and what becomes of its answer."""

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatResult
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import MessagesState, StateGraph
from pydantic import Field

from langchain_spectool import (
    Guess,
    Speculation,
    SpeculationMiddleware,
    Speculator,
    TurnRequest,
    speculatable,
)
from langchain_spectool._core.ports import Forker
from langchain_spectool.speculators import self_model
from langchain_spectool.speculators.self_model import INSTRUCTION, SelfModel
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text

MESSAGES = [SystemMessage("Be brief."), HumanMessage("ants?")]
ANTS = calls(("look", {"q": "ants"}))
TOLD = [Guess(tool="look", args={"q": "ants"}, confidence=0.5)]


@speculatable
@tool
def look(q: str, n: int = 0) -> str:
    """Look something up."""
    return f"found {q}"


@tool
def put(q: str) -> str:
    """Write something down."""
    return f"put {q}"


SERVER_TOOL = {"type": "web_search"}


class Main(ScriptedModel):
    """A main model that keeps what was bound to it, and rejects some of it."""

    bound: list[tuple[list[Any], dict[str, Any]]] = Field(default_factory=list)
    rejects: str = ""
    """What its provider complains of: `temperature`, `role` or `stream`."""
    closed: list[float] = Field(default_factory=list)
    """When its streams ended, on the loop's clock."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        self.bound.append(([*tools], kwargs))
        return self.bind(tools=[getattr(each, "name", each) for each in tools], **kwargs)

    def _check(self, messages: list[BaseMessage], kwargs: dict[str, Any], *, stream: bool) -> None:
        last = messages[-1].text == INSTRUCTION
        if {"temperature": "temperature" in kwargs, "role": last, "stream": stream}.get(
            self.rejects
        ):
            raise ValueError(f"400: unsupported {self.rejects.upper()}")

    def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self._check(messages, kwargs, stream=True)
        yield from super()._stream(messages, *args, **kwargs)

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        try:
            self._check(messages, kwargs, stream=True)
            async for chunk in super()._astream(messages, *args, **kwargs):
                yield chunk
        finally:
            self.closed.append(asyncio.get_running_loop().time())

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        self._check(messages, kwargs, stream=False)
        return super()._generate(messages, *args, **kwargs)

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        self._check(messages, kwargs, stream=False)
        return await super()._agenerate(messages, *args, **kwargs)


def main(*turns: Turn | AIMessage, **options: Any) -> Main:
    """Return a main model whose next answers are `turns`, over and over."""
    answers = iter(turns * 20)
    return Main(script=lambda _: next(answers), **options)


def request(model: object, **more: Any) -> TurnRequest:
    """Return what the agent of `model` was asked."""
    more = {"messages": [*MESSAGES], "tools": [put, SERVER_TOOL, look], **more}
    return TurnRequest(declared=[look], model=model, **more)


async def awaited(source: SelfModel, asked: TurnRequest, sample: int = 0) -> list[Guess]:
    """Return a sample's guesses, awaited."""
    return [guess async for guess in source.aguess(asked, sample)]


async def blocking(source: SelfModel, asked: TurnRequest, sample: int = 0) -> list[Guess]:
    """Return a sample's guesses, as a thread would get them."""
    return [*source.guess(asked, sample)]


BOTH_FORMS = pytest.mark.parametrize("ask", [awaited, blocking])


# --- what is asked


@BOTH_FORMS
async def test_asked_is_what_the_main_model_was_asked(ask: Any) -> None:
    """The very same messages, tools and settings, so that a server's prompt cache is shared."""
    model = main(ANTS)
    asked = request(model, settings={"temperature": 0.2, "seed": 3})
    assert await ask(SelfModel(), asked) == TOLD
    (seen,) = model.seen
    assert seen[:-1] == MESSAGES
    assert [a is b for a, b in zip(seen, asked.messages, strict=False)] == [True, True]
    assert seen[-1] == HumanMessage(INSTRUCTION)
    ((tools, settings),) = model.bound
    assert [a is b for a, b in zip(tools, asked.tools, strict=True)] == [True] * 3
    assert settings == {"temperature": 0.2, "seed": 3}


def _served(bodies: list[bytes]) -> httpx.MockTransport:
    """Return a server of OpenAI's protocol that keeps the bodies it gets."""
    call = {"index": 0, "id": "c0", "type": "function"}
    call["function"] = {"name": "look", "arguments": '{"q": "ants"}'}
    head = {"id": "x", "created": 0, "model": "m"}

    def answer(asked: httpx.Request) -> httpx.Response:
        bodies.append(asked.content)
        kind = "delta" if b'"stream":true' in asked.content else "message"
        choice = {"index": 0, kind: {"role": "assistant", "tool_calls": [call]}}
        body = {**head, "object": "chat.completion", "choices": [choice]}
        if kind == "message":
            return httpx.Response(200, json=body)
        body["object"] += ".chunk"
        events = f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n"
        return httpx.Response(200, text=events, headers={"content-type": "text/event-stream"})

    return httpx.MockTransport(answer)


def test_prefix_is_the_same_to_the_byte() -> None:
    """On the wire, what comes before the instruction is what the main model's request says."""
    bodies: list[bytes] = []
    client = httpx.Client(transport=_served(bodies))
    model = ChatOpenAI(
        model="m", api_key="k", base_url="http://127.0.0.1/v1", http_client=client, max_retries=0
    )
    messages = [*MESSAGES, ANTS, ToolMessage("six legs", tool_call_id="c0")]
    function = {"name": "other", "description": "", "parameters": {"type": "object"}}
    tools = [put, {"type": "function", "function": function}, look]
    settings = {"temperature": 0.2, "tool_choice": "auto"}
    asked = request(model, messages=messages, tools=tools, settings=settings)
    model.bind_tools(tools, **settings).invoke(messages)
    assert [*SelfModel().guess(asked, 0)] == TOLD
    theirs, own = (json.loads(body) for body in bodies)
    assert own["messages"].pop() == {"role": "user", "content": INSTRUCTION}
    assert (theirs.pop("stream"), own.pop("stream")) == (False, True)
    assert json.dumps(own) == json.dumps(theirs)  # the order of all fields included


@BOTH_FORMS
@pytest.mark.parametrize(
    ("instruction", "last"),
    [
        (None, MESSAGES[-1]),
        ("Only the call.", HumanMessage("Only the call.")),
        (SystemMessage("Only the call."), SystemMessage("Only the call.")),
    ],
)
async def test_instruction_comes_last_or_not_at_all(ask: Any, instruction: Any, last: Any) -> None:
    """Its role is the caller's choice; without one the request is the main model's own."""
    model = main(ANTS)
    assert await ask(SelfModel(instruction=instruction), request(model)) == TOLD
    assert model.seen[0][-1] == last
    assert len(model.seen[0]) == len(MESSAGES) + (instruction is not None)


async def test_samples_have_temperatures() -> None:
    """One each, cycled, in the place of the request's own."""
    model = main(ANTS)
    source = SelfModel(samples=3, temperatures=(0.0, 0.9))
    assert isinstance(source, Speculator)
    for sample in range(source.samples):
        await awaited(source, request(model, settings={"temperature": 0.5, "seed": 1}), sample)
    assert [settings for _, settings in model.bound] == [
        {"temperature": each, "seed": 1} for each in (0.0, 0.9, 0.0)
    ]


class Ears(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard = 0

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self.heard += 1


@BOTH_FORMS
@pytest.mark.parametrize("ready", [False, True])
async def test_nobody_hears_it(ask: Any, ready: bool) -> None:
    """Callbacks of the model itself hear the agent's calls of it, not ours."""
    ears = Ears()
    model: Any = main(ANTS, callbacks=[ears])
    if ready:
        model = model.bind_tools([look]).with_config(callbacks=[ears])
    assert await ask(SelfModel(model=model), request(None)) == TOLD
    assert ears.heard == 0
    model.invoke("ants?")
    assert ears.heard


async def test_model_with_its_tools_bound_is_asked_as_it_is() -> None:
    """A node function's model may have tools, in an order, that we cannot know."""
    model = main(ANTS)
    ready = model.bind_tools([look, SERVER_TOOL])
    assert await awaited(SelfModel(model=ready, temperatures=[0.7]), request(None)) == TOLD
    assert len(model.bound) == 1


class Gate(BaseRateLimiter):
    def __init__(self, room: int) -> None:
        self.room = room

    def acquire(self, *, blocking: bool = True) -> bool:
        assert not blocking
        self.room -= 1
        return self.room >= 0

    async def aacquire(self, *, blocking: bool = True) -> bool:
        return self.acquire(blocking=blocking)


@BOTH_FORMS
async def test_rate_limit_is_left_to_the_main_model(ask: Any) -> None:
    """A sample takes a place that is free, and never waits for one."""
    model = main(ANTS, rate_limiter=Gate(1))
    assert await ask(SelfModel(), request(model)) == TOLD
    assert await ask(SelfModel(), request(model)) == []
    assert len(model.seen) == 1


# --- what is read of the answer


def piece(args: str, *, name: str | None = None, index: Any = 0, **more: Any) -> AIMessageChunk:
    """Return a chunk with a fragment of a call."""
    call_id = f"c{index}" if name else None
    part = tool_call_chunk(name=name, args=args, id=call_id, index=index)
    return AIMessageChunk(**{"content": "", "tool_call_chunks": [part], **more})


def said(content: str) -> AIMessageChunk:
    """Return a chunk of text."""
    return AIMessageChunk(content=content)


STREAMS: dict[str, tuple[list[tuple[float, AIMessageChunk]], list[tuple[float, Any]], float]] = {
    "complete before the end": (
        [(1, piece('{"q": ', name="look")), (2, piece('"a"}')), (9, said(""))],
        [(2, {"q": "a"})],
        9,
    ),
    "several calls": (
        [
            (1, piece('{"q": "a"}', name="look")),
            (2, piece('{"q":{"x":1}', name="look", index=1)),
            (3, piece(',"n": 1} ', index=1)),
            (9, said("")),
        ],
        [(1, {"q": "a"}), (3, {"q": {"x": 1}, "n": 1})],
        9,
    ),
    "prose after the calls": (
        [(1, piece('{"q": "a"}', name="look")), (2, said("So")), (9, said(" I go on."))],
        [(1, {"q": "a"})],
        2,
    ),
    "thoughts before the calls": (
        [(1, said("Let me see.")), (2, piece('{"q": "a"}', name="look")), (3, said(""))],
        [(2, {"q": "a"})],
        3,
    ),
    "no arguments": (
        [
            (1, piece("", name="look")),
            (2, piece('{"q": "b"}', name="look", index=1)),
            (3, said("")),
        ],
        [(2, {}), (2, {"q": "b"})],
        3,
    ),
    "a call that begins as if it were over": (
        [(1, piece("{}", name="look")), (2, said("")), (3, said(""))],
        [(3, {})],
        3,
    ),
    "calls that come whole": (
        [
            (
                1,
                AIMessageChunk(
                    content="",
                    tool_call_chunks=[
                        tool_call_chunk(name="look", args='{"q": "a"}', id="x", index=None),
                        tool_call_chunk(name="look", args='{"q": "b"}', id="y", index=None),
                    ],
                ),
            ),
            (2, piece('{"q": "c"}', name="look", index=None)),
            (3, said("")),
        ],
        [(1, {"q": "a"}), (1, {"q": "b"}), (2, {"q": "c"})],
        3,
    ),
    "no call": ([(1, said("none"))], [], 1),
    "half a call": ([(1, piece('{"q": "a', name="look")), (2, said(""))], [], 2),
    "arguments that are no object": ([(1, piece("[{}", name="look")), (2, piece(", {}"))], [], 2),
}


@pytest.mark.parametrize("kind", STREAMS)
async def test_call_is_guessed_when_its_arguments_are_complete(kind: str) -> None:
    """Not at the end of the answer, which is not waited for once text follows the calls."""
    chunks, expected, ended_s = STREAMS[kind]
    model, loop = main(Turn(chunks=chunks)), asyncio.get_running_loop()
    source = SelfModel().aguess(request(model), 0)
    assert [(loop.time(), guess.args) async for guess in source] == expected
    await asyncio.sleep(0.5)
    assert model.closed == [ended_s]


@pytest.mark.parametrize("kind", STREAMS)
def test_call_is_guessed_in_a_thread(kind: str) -> None:
    """The blocking form reads the same of the same answer."""
    chunks, expected, _ = STREAMS[kind]
    model = main(Turn(chunks=[(0, chunk) for _, chunk in chunks]))
    guesses = [guess.args for guess in SelfModel().guess(request(model), 0)]
    assert guesses == [args for _, args in expected]


async def test_cancelled_sample_closes_its_request() -> None:
    """Nothing is generated for a sample whose turn is over."""
    model = main(Turn(message=ANTS, generation_s=9))
    sample = asyncio.create_task(awaited(SelfModel(), request(model)))
    await asyncio.sleep(4)
    sample.cancel()
    await asyncio.wait([sample])
    assert sample.cancelled()
    await asyncio.sleep(0.5)
    assert model.closed == [4]


async def test_main_model_goes_first() -> None:
    """One that has answered by the time it would be asked again is not asked."""
    model = main(ANTS)
    sample = asyncio.create_task(awaited(SelfModel(), request(model)))
    await asyncio.sleep(0)
    sample.cancel()
    await asyncio.wait([sample])
    assert model.seen == []


@BOTH_FORMS
@pytest.mark.parametrize("off", [True, "tool_calling"])
async def test_model_that_does_not_stream(ask: Any, off: Any) -> None:
    """It is asked for its whole answer."""
    tokens = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    used: list[Any] = []
    model = main(ANTS, disable_streaming=off, usage_metadata=tokens)
    asked = request(model, on_usage=lambda *usage: used.append(usage))
    assert await ask(SelfModel(), asked) == TOLD
    assert used == [("self_model", (7, 2))]


@BOTH_FORMS
async def test_answer_of_another_kind_is_no_guess(ask: Any) -> None:
    """What stands for a model may answer anything."""

    class Odd:
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return RunnableLambda(lambda _: "no message")

    assert await ask(SelfModel(), request(Odd())) == []


# --- what it costs


TOKENS: UsageMetadata = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
FIRST: UsageMetadata = {"input_tokens": 7, "output_tokens": 0, "total_tokens": 7}
LATER: UsageMetadata = {"input_tokens": 0, "output_tokens": 2, "total_tokens": 2}
START, CALL = AIMessageChunk(content="", usage_metadata=FIRST), piece('{"q": "a"}', name="look")


@BOTH_FORMS
@pytest.mark.parametrize(
    ("chunks", "usage"),
    [
        ([CALL, AIMessageChunk(content="", usage_metadata=TOKENS)], (7, 2)),
        ([START, CALL, AIMessageChunk(content="", usage_metadata=LATER)], (7, 2)),
        ([START, CALL, said("so"), AIMessageChunk(content="", usage_metadata=LATER)], (7, 0)),
        ([CALL, said("so"), AIMessageChunk(content="", usage_metadata=TOKENS)], None),
    ],
)
async def test_usage_is_told_once(ask: Any, chunks: list[Any], usage: Any) -> None:
    """As far as it is known when the answer is no longer listened to."""
    used: list[Any] = []
    model = main(Turn(chunks=[(0, chunk) for chunk in chunks]))
    await ask(SelfModel(), request(model, on_usage=lambda *each: used.append(each)))
    assert used == [("self_model", usage)]


async def test_cancelled_request_has_its_price() -> None:
    """What was generated until then is charged, as far as it is known."""
    used: list[Any] = []
    chunks = [(1.0, START), (9.0, CALL)]
    model = main(Turn(chunks=chunks))
    asked = request(model, on_usage=lambda *each: used.append(each))
    sample = asyncio.create_task(awaited(SelfModel(), asked))
    await asyncio.sleep(4)
    sample.cancel()
    await asyncio.wait([sample])
    assert used == [("self_model", (7, 0))]


# --- what may go wrong


@BOTH_FORMS
@pytest.mark.parametrize(
    ("rejects", "named"), [("temperature", "temperature"), ("role", "instruction"), ("stream",) * 2]
)
async def test_what_the_provider_rejects_is_left_out(ask: Any, rejects: str, named: str) -> None:
    """One warning names it; from then on it is not tried again."""
    used: list[Any] = []
    model, source = main(ANTS, rejects=rejects), SelfModel(temperatures=[0.7])
    asked = request(model, on_usage=lambda *each: used.append(each))
    with pytest.warns(RuntimeWarning, match=f"rejects `{named}`.*goes on without") as warned:
        assert [await ask(source, asked) for _ in range(2)] == [TOLD, TOLD]
    assert len(warned) == 1
    assert len(model.bound) == 3
    assert len(used) == 2


@BOTH_FORMS
async def test_failed_request_is_not_repeated(ask: Any) -> None:
    """Its guesses are missed, with one warning; the next turn asks again."""
    model = main(Turn(error=ConnectionError("refused")))
    source = SelfModel()
    with pytest.warns(RuntimeWarning, match="SelfModel failed.*refused") as warned:
        assert [await ask(source, request(model)) for _ in range(2)] == [[], []]
    assert len(warned) == 1
    assert len(model.seen) == 2


@BOTH_FORMS
async def test_stream_that_breaks_off_keeps_its_guesses(ask: Any) -> None:
    """It is not asked again either, whatever the error speaks of, and what it used is told."""
    used: list[Any] = []
    model = main(
        Turn(chunks=[(0, START), (0, CALL)], error=ConnectionError("stream of role reset"))
    )
    asked = request(model, on_usage=lambda *each: used.append(each))
    with pytest.warns(RuntimeWarning, match="failed.*reset"):
        assert [guess.args for guess in await ask(SelfModel(), asked)] == [{"q": "a"}]
    assert len(model.seen) == 1
    assert used == [("self_model", (7, 0))]


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "nobody said": (lambda: None, "which model is the main one.*`model=`"),
    "no tool binding": (lambda: FakeListChatModel(responses=["hi"]), "cannot ask"),
    "no model at all": (object, "cannot ask"),
}


@BOTH_FORMS
@pytest.mark.parametrize("kind", MODELS)
async def test_model_that_cannot_be_asked(ask: Any, kind: str) -> None:
    """It stays silent, with one warning."""
    make, why = MODELS[kind]
    source = SelfModel()
    with pytest.warns(RuntimeWarning, match=why) as warned:
        assert [await ask(source, request(make())) for _ in range(2)] == [[], []]
    assert len(warned) == 1


def test_named_model_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`provider:name` is looked up at the first use."""
    made: list[str] = []
    model = main(ANTS)

    def named(name: str) -> Any:
        made.append(name)
        return model

    monkeypatch.setattr(self_model, "named_model", named)
    source = SelfModel(model="some:model")
    assert [*source.guess(request(None), 0), *source.guess(request(None), 0)] == TOLD * 2
    assert made == ["some:model"]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"samples": 0}, "samples.*1 or more, got 0"),
        ({"timeout_s": 0}, "timeout_s.*more than 0 seconds, got 0"),
        ({"confidence": 1.5}, "confidence.*from 0 to 1, got 1.5"),
    ],
)
def test_bad_settings(settings: dict[str, Any], named: str) -> None:
    """A value outside its range is refused, by name."""
    with pytest.raises(ValueError, match=named):
        SelfModel(**settings)


# --- forks


@pytest.mark.parametrize("instruction", [None, INSTRUCTION])
async def test_fork_goes_on_from_what_was_written(instruction: str | None) -> None:
    """The prefix is the request and the answer so far; white space may not end it."""
    model = main(ANTS)
    source = SelfModel(from_partial=True, instruction=instruction)
    assert isinstance(source, Forker)
    assert source.fork_after > 0
    told = [guess async for guess in source.afork(request(model), "I look \n", 0)]
    assert told == [*source.fork(request(model), "I look \n", 0)] == TOLD
    asked = [*MESSAGES, AIMessage("I look"), *([HumanMessage(INSTRUCTION)] if instruction else [])]
    assert model.seen == [asked, asked]


async def test_nothing_written_is_no_fork() -> None:
    """White space says no more than the request itself."""
    model, source = main(ANTS), SelfModel(from_partial=True)
    assert [guess async for guess in source.afork(request(model), " \n", 0)] == []
    assert [*source.fork(request(model), "", 0)] == []
    assert model.seen == []


def test_fork_is_opt_in() -> None:
    """It costs a second request a turn."""
    assert SelfModel().fork_after == 0


# --- in an agent


async def test_hit_in_a_graph() -> None:
    """A main model that takes its time is overtaken by itself, in a node of the user's own."""
    started: list[tuple[str, float]] = []

    @speculatable
    @tool
    async def search(q: str) -> str:
        """Search."""
        started.append((q, asyncio.get_running_loop().time()))
        await asyncio.sleep(0.5)
        return f"found {q}"

    def script(messages: list[BaseMessage]) -> Any:
        if messages[-1].text == INSTRUCTION:
            spoken = messages[-2].type == "human"
            return Turn(message=calls(("search", {"q": "ants"})) if spoken else text("none"))
        if messages[-1].type == "human":
            return Turn(message=calls(("search", {"q": "ants"})), generation_s=1.0)
        return text("done")

    model, observed = ScriptedModel(script=script), RecordingObserver()
    bound = model.bind_tools([search])
    spec = Speculation([search], speculators=[SelfModel(model=bound)], observers=[observed])

    async def agent(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", spec.model_node(agent))
    graph.add_node("tools", spec.tool_node())
    graph.set_entry_point("agent")
    graph.add_conditional_edges(
        "agent", lambda s: "tools" if s["messages"][-1].tool_calls else "__end__"
    )
    graph.add_edge("tools", "agent")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = await graph.compile().ainvoke({"messages": [("user", "ants?")]})
    assert started == [("ants", 0.0)]
    assert [m.content for m in state["messages"]][-2:] == ["found ants", "done"]
    assert (spec.report().hits, spec.report().errors) == (1, 0)
    assert asyncio.get_running_loop().time() == 1.0
    usage = [event.source for event in observed.events if event.kind == "usage"]
    assert usage == ["self_model"]  # the last turn was over before it was asked


@pytest.mark.parametrize("streams", [True, False])
async def test_fork_needs_no_other_listener(streams: bool) -> None:
    """In middleware it hears the model if the caller streams, without `EarlyDispatch`."""
    partials: list[str] = []

    class Noting(SelfModel):
        async def afork(
            self, request: TurnRequest, partial: str, sample: int
        ) -> AsyncIterator[Guess]:
            partials.append(partial)
            async for guess in super().afork(request, partial, sample):
                yield guess

    written = "Let me think about ants. " * 20
    source = Noting(from_partial=True)
    model = ScriptedModel(script=lambda _: Turn(message=text(written), generation_s=1.0))
    middleware = SpeculationMiddleware(speculators=[source])
    agent = create_agent(model, [look], middleware=[middleware])
    asked: Any = {"messages": [("user", "ants?")]}
    if streams:
        async for _ in agent.astream(asked, stream_mode="messages"):
            pass
        (partial,) = partials
        assert written.startswith(partial)
        assert len(partial) >= source.fork_after
    else:
        await agent.ainvoke(asked)
        assert partials == []
    assert middleware.speculation.report().errors == 0
