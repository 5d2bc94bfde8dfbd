"""`DraftModel` in agents: what it asks, what becomes of its guesses, and how it fails."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool, tool
from pydantic import Field

from langchain_spectool import DraftModel, Speculation, TurnRequest, speculatable
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text

ASK: Any = {"messages": [("user", "hi")]}
MAIN_S = 1.0
USAGE: UsageMetadata = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}


class Draft(ScriptedModel):
    """A draft that keeps what was bound to it, and with which settings."""

    bound: list[tuple[list[str], dict[str, Any]]] = Field(default_factory=list)
    rejects: str | None = None
    """A setting that the provider does not take."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        self.bound.append(([each.name for each in tools], kwargs))
        if self.rejects in kwargs:

            def reject(_: Any) -> AIMessage:
                raise ValueError(f"Unsupported value: '{self.rejects}' does not work here")

            return RunnableLambda(reject)
        return super().bind_tools(tools)


class Bench:
    """Tools that note when they start, and an agent whose model commits `committed`."""

    def __init__(self, *committed: tuple[str, dict[str, Any]]) -> None:
        self.started: list[tuple[str, float]] = []
        self.observed = RecordingObserver()
        self.committed = committed

        @tool
        async def look(q: str, n: int = 0) -> str:
            """Look something up."""
            self.started.append((q, asyncio.get_running_loop().time()))
            await asyncio.sleep(0.5)
            return f"found {q}"

        @tool
        async def put(q: str) -> str:
            """Write something down."""
            return f"put {q}"

        self.look, self.put = speculatable(look), put

    def spec(self, draft: DraftModel) -> Speculation:
        return Speculation([self.put, self.look], speculators=[draft], observers=[self.observed])

    async def run(self, draft: DraftModel, *outer: AgentMiddleware, **main: Any) -> float:
        """Return how long the agent took."""
        main = {"turns": [calls(*self.committed), text("done")], "generation_s": MAIN_S, **main}
        spec = self.spec(draft)
        tools = [self.put, self.look]
        agent = create_agent(ScriptedModel(**main), tools, middleware=[*outer, spec.middleware()])
        began_s = asyncio.get_running_loop().time()
        self.state = await agent.ainvoke(ASK)
        self.report = spec.report()
        return asyncio.get_running_loop().time() - began_s

    def verdicts(self) -> list[tuple[str, str]]:
        return [(e.tool, e.verdict) for e in self.observed.events if e.kind == "guess"]


def _look(q: str) -> tuple[str, dict[str, Any]]:
    return ("look", {"q": q})


def _samples(*turns: Turn | AIMessage) -> Callable[[list[BaseMessage]], Any]:
    """Return a script that answers the first question's samples by `turns`, then nothing."""
    answers = iter(turns)

    def script(messages: list[BaseMessage]) -> Any:
        return next(answers) if messages[-1].type == "human" else text("done")

    return script


def _answering(answer: Any) -> Draft:
    """Return a draft that hands over `answer` as it is."""

    class Odd(Draft):
        def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
            return RunnableLambda(lambda _: answer)

    return Odd(script=_samples())


def _request() -> TurnRequest:
    return TurnRequest(messages=[HumanMessage("hi")], tools=[], declared=[])


# --- samples


async def test_each_call_starts_as_soon_as_its_sample_returns() -> None:
    """Samples run in parallel; a slow one holds back no guess of a fast one."""
    bench = Bench(_look("ants"), _look("bees"), _look("cats"))
    draft = ScriptedModel(
        script=_samples(
            Turn(message=calls(_look("cats")), generation_s=0.6),
            Turn(message=calls(_look("ants"), _look("bees")), generation_s=0.2),
        )
    )
    took_s = await bench.run(DraftModel(draft, samples=2))
    assert bench.started == [("ants", 0.2), ("bees", 0.2), ("cats", 0.6)]
    assert bench.report.hits == 3
    # The last one lands at 1.1 s; stock would take 1.0 + 0.5 s, and 1 s for the last word.
    assert took_s == pytest.approx(1.1 + MAIN_S)


async def test_equal_calls_of_several_samples_merge() -> None:
    """What two samples agree on runs once, however each of them writes it."""
    bench = Bench(_look("ants"))
    spelled = ("look", {"n": "0", "q": "ants"})
    draft = ScriptedModel(script=_samples(calls(_look("ants")), calls(spelled), calls(spelled)))
    await bench.run(DraftModel(draft, samples=3))
    assert [q for q, _ in bench.started] == ["ants"]
    assert bench.verdicts() == [("look", "run"), ("look", "duplicate"), ("look", "duplicate")]
    assert (bench.report.hits, bench.report.wasted) == (1, 0)


async def test_two_equal_calls_of_one_sample_are_two() -> None:
    """A sample that expects a call twice expects two calls, and each gets a run of its own."""
    bench = Bench(_look("ants"), _look("ants"))
    twice = calls(_look("ants"), _look("ants"))
    draft = ScriptedModel(script=_samples(twice, twice))
    await bench.run(DraftModel(draft, samples=2))
    assert [q for q, _ in bench.started] == ["ants", "ants"]
    assert bench.report.hits == 2
    assert bench.report.verdicts == {"run": 2, "duplicate": 2}


async def test_slow_draft_costs_nothing() -> None:
    """A main model that answers first waits for no draft, and the draft's request is given up."""
    bench = Bench(_look("ants"))
    draft = ScriptedModel(turns=[calls(_look("ants")), text("done")], generation_s=MAIN_S + 0.001)
    took_s = await bench.run(DraftModel(draft, samples=3))
    assert took_s == MAIN_S + 0.5 + MAIN_S
    assert (bench.report.guesses, bench.report.errors) == (0, 0)
    assert [q for q, _ in bench.started] == ["ants"]


async def test_sample_deadline() -> None:
    """A sample past its deadline is given up without a word; the others count."""
    bench = Bench(_look("ants"), _look("bees"))
    draft = ScriptedModel(
        script=_samples(
            Turn(message=calls(_look("ants")), generation_s=0.2),
            Turn(message=calls(_look("bees")), generation_s=0.3),
        )
    )
    await bench.run(DraftModel(draft, samples=2, timeout_s=0.25))
    assert bench.verdicts() == [("look", "run")]
    assert (bench.report.hits, bench.report.misses, bench.report.errors) == (1, 1, 0)


def _blocking_look(ran: list[str]) -> BaseTool:
    @speculatable
    @tool
    def look(q: str) -> str:
        """Look something up."""
        ran.append(q)
        return f"found {q}"

    return look


class Told(DraftModel):
    """Says when a blocking sample has ended, whichever way."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ended = threading.Event()

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Any]:
        try:
            yield from super().guess(request, sample)
        finally:
            self.ended.set()


@pytest.mark.parametrize("late", [False, True])
def test_deadline_of_a_blocking_sample(late: bool) -> None:
    """A thread cannot be stopped: what it says after its deadline is not listened to."""
    ran: list[str] = []
    answer = Turn(message=calls(_look("ants")), generation_s=0.002 if late else 0.0)
    draft = Told(ScriptedModel(script=_samples(answer)), timeout_s=0.001 if late else 5.0)

    def main(messages: list[BaseMessage]) -> Any:
        if messages[-1].type == "tool":
            return text("done")
        draft.ended.wait(5)
        return calls(_look("ants"))

    spec = Speculation(speculators=[draft])
    agent = create_agent(
        ScriptedModel(script=main), [_blocking_look(ran)], middleware=[spec.middleware()]
    )
    agent.invoke(ASK)
    assert ran == ["ants"]
    assert spec.report().hits == (not late)
    assert spec.report().errors == 0


# --- temperatures


async def test_temperatures_are_one_per_sample_and_cycled() -> None:
    """Each sample has its own temperature; there may be fewer of them than samples."""
    bench = Bench(_look("ants"))
    draft = Draft(script=lambda _: calls(_look("ants")))
    await bench.run(DraftModel(draft, samples=5, temperatures=(0.0, 0.7)))
    first_turn = [settings for _, settings in draft.bound[:5]]
    assert first_turn == [{"temperature": t} for t in (0.0, 0.7, 0.0, 0.7, 0.0)]


async def test_model_keeps_its_own_settings() -> None:
    """Without temperatures nothing is set."""
    bench = Bench(_look("ants"))
    draft = Draft(script=lambda _: calls(_look("ants")))
    await bench.run(DraftModel(draft, samples=2))
    assert [settings for _, settings in draft.bound[:2]] == [{}, {}]


async def test_rejected_temperature_is_left_out() -> None:
    """A provider without the setting is one warning, and a call without it."""
    bench = Bench(_look("ants"))
    draft = Draft(script=lambda _: calls(_look("ants")), rejects="temperature")
    with pytest.warns(RuntimeWarning, match="rejects `temperature`.*goes on without") as said:
        await bench.run(DraftModel(draft, samples=2, temperatures=(0.1, 0.9)))
    assert len(said) == 1
    assert bench.report.hits == 1
    first_turn, later = draft.bound[:4], draft.bound[4:]
    assert [s for _, s in first_turn] == [{"temperature": 0.1}, {"temperature": 0.9}, {}, {}]
    assert later
    assert all(settings == {} for _, settings in later)  # it has learned


def test_rejected_temperature_of_a_blocking_run() -> None:
    """The same in threads."""
    draft = DraftModel(
        Draft(script=lambda _: calls(_look("ants")), rejects="temperature"), temperatures=(0.1,)
    )
    with pytest.warns(RuntimeWarning, match="rejects `temperature`") as said:
        guesses = [*draft.guess(_request(), 0), *draft.guess(_request(), 0)]
    assert len(said) == 1
    assert [guess.args for guess in guesses] == [{"q": "ants"}] * 2


# --- what is bound


class DynamicTool(AgentMiddleware):
    """Adds a tool to every request that the agent was not made with."""

    def __init__(self, added: BaseTool) -> None:
        super().__init__()
        self.added = added

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(tools=[*request.tools, self.added]))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        tool = self.added if request.tool is None else request.tool
        return await handler(request.override(tool=tool))


@pytest.mark.parametrize("scope", ["declared", "all"])
async def test_bound_tools_are_those_of_the_request(scope: Any) -> None:
    """Only what may run early is bound, or the whole list in order; both with dynamic tools."""
    bench = Bench(("extra", {"q": "ants"}))

    @speculatable
    @tool
    async def extra(q: str) -> str:
        """Look elsewhere."""
        await asyncio.sleep(0.5)
        return f"extra {q}"

    draft = Draft(script=lambda _: calls(("extra", {"q": "ants"})))
    await bench.run(DraftModel(draft, tools=scope), DynamicTool(extra))
    names = {"declared": ["look", "extra"], "all": ["put", "look", "extra"]}[scope]
    assert draft.bound[0] == (names, {})
    assert bench.report.hits == 1
    assert [m.content for m in bench.state["messages"] if m.type == "tool"] == ["extra ants"]


async def test_draft_is_not_asked_without_declared_tools() -> None:
    """A request with no tool that may run early costs no draft."""
    bench = Bench(("put", {"q": "ants"}))
    bench.look = bench.put
    draft = Draft(script=lambda _: calls(_look("ants")))
    await bench.run(DraftModel(draft))
    assert draft.bound == []
    assert bench.report.idle == {"no_contracts": 2}


async def test_draft_is_asked_what_the_main_model_is() -> None:
    """The draft sees the request's messages, the system prompt included."""
    bench = Bench(_look("ants"))
    draft = ScriptedModel(script=lambda _: calls(_look("ants")))
    main = ScriptedModel(turns=[calls(_look("ants")), text("done")], generation_s=MAIN_S)
    spec = bench.spec(DraftModel(draft))
    agent = create_agent(
        main, [bench.look], system_prompt="Be brief.", middleware=[spec.middleware()]
    )
    await agent.ainvoke(ASK)
    assert draft.seen == main.seen
    assert [m.type for m in draft.seen[0]] == ["system", "human"]


# --- what becomes of guesses


async def test_calls_that_cannot_run_get_verdicts() -> None:
    """Malformed, unknown, undeclared and invalid calls are dropped, each with its reason."""
    bench = Bench(_look("ants"))
    answer = calls(
        ("nothing", {}),
        ("put", {"q": "x"}),
        ("look", {}),
        ("look", {"q": ["no", "text"]}),
        _look("ants"),
    )
    answer.invalid_tool_calls = [invalid_tool_call(name="look", args='{"q": ', id="i", error="")]
    await bench.run(DraftModel(_answering(answer), tools="all"))
    assert bench.verdicts()[:5] == [
        ("other", "unknown_tool"),
        ("put", "undeclared"),
        ("look", "invalid"),
        ("look", "invalid"),
        ("look", "run"),
    ]
    assert (bench.report.hits, bench.report.errors) == (1, 0)


async def test_confidence_is_the_operators_to_weigh() -> None:
    """Guesses carry the draft's confidence."""
    bench = Bench(_look("ants"))
    draft = ScriptedModel(script=_samples(calls(_look("ants"))))
    await bench.run(DraftModel(draft, confidence=0.25))
    assert [e.confidence for e in bench.observed.events if e.kind == "guess"] == [0.25]


@pytest.mark.parametrize("usage", [USAGE, None])
async def test_usage_is_told_once_a_call(usage: UsageMetadata | None) -> None:
    """Every call of the draft is one event with its tokens; None when the provider is silent."""
    bench = Bench(_look("ants"))
    draft = ScriptedModel(script=lambda _: calls(_look("ants")), usage_metadata=usage)
    await bench.run(DraftModel(draft, samples=2))
    told = [(e.source, e.usage) for e in bench.observed.events if e.kind == "usage"]
    tokens = None if usage is None else (7, 2)
    assert told == [("draft_model", tokens)] * 4  # two samples, two turns
    assert bench.report.usage == ({} if usage is None else {"draft_model": (28, 8)})


@pytest.mark.parametrize("answer", [HumanMessage("no"), "no", None, {"role": "assistant"}])
async def test_answer_of_another_kind_is_no_guess(answer: Any) -> None:
    """A wrapped draft may answer anything."""
    bench = Bench(_look("ants"))
    await bench.run(DraftModel(_answering(answer)))
    assert bench.report.guesses == bench.report.errors == 0
    assert [q for q, _ in bench.started] == ["ants"]


# --- drafts that cannot work


def _failing(messages: list[BaseMessage]) -> Any:
    return Turn(error=ConnectionError("refused"), generation_s=0.1)


class Counting(Draft):
    """Counts its requests, all of which fail."""

    def __init__(self, **data: Any) -> None:
        super().__init__(script=_failing, **data)


DRAFTS: dict[str, tuple[Callable[[], Any], str]] = {
    "no tool binding": (lambda: FakeListChatModel(responses=["hi"]), "cannot guess"),
    "no provider": (lambda: "nope:x", "cannot guess.*nope"),
    "no provider named": (lambda: "nothing-known", "cannot guess"),
    "no key": (lambda: "openai:gpt-5-nano", "cannot guess|failed"),
    "failing call": (Counting, "failed.*refused"),
    "no model at all": (object, "cannot guess"),
}


@pytest.mark.parametrize("kind", DRAFTS)
async def test_draft_that_cannot_work(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent works without guesses, and one warning says why."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    make, why = DRAFTS[kind]
    bench = Bench(_look("ants"))
    with pytest.warns(RuntimeWarning, match=why) as said:
        await bench.run(DraftModel(make(), samples=3))
    assert len(said) == 1
    assert str(said[0].message).endswith("the agent goes on without")
    assert [m.content for m in bench.state["messages"]][2:] == ["found ants", "done"]
    assert bench.report.guesses == bench.report.errors == 0


@pytest.mark.parametrize("kind", DRAFTS)
def test_draft_that_cannot_work_in_a_thread(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in the blocking form."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    make, why = DRAFTS[kind]
    draft = DraftModel(make())
    with pytest.warns(RuntimeWarning, match=why) as said:
        guesses = [*draft.guess(_request(), 0), *draft.guess(_request(), 1)]
    assert guesses == []
    assert len(said) == 1


async def test_failed_call_is_not_repeated() -> None:
    """A sample is one request; the next turn asks again."""
    bench = Bench(_look("ants"))
    draft = Counting()
    with pytest.warns(RuntimeWarning, match="refused"):
        await bench.run(DraftModel(draft, samples=2))
    assert len(draft.seen) == 4


def test_named_draft_is_made_once_without_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """`provider:name` is looked up at the first use, with the client's retries off."""
    made: list[tuple[str, dict[str, Any]]] = []
    model = Draft(script=lambda _: calls(_look("ants")))

    def init(name: str, **options: Any) -> Any:
        made.append((name, options))
        return model

    monkeypatch.setattr("langchain.chat_models.init_chat_model", init)
    draft = DraftModel("some:model")
    assert made == []
    assert len([*draft.guess(_request(), 0), *draft.guess(_request(), 0)]) == 2
    assert made == [("some:model", {"max_retries": 0})]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"samples": 0}, "samples.*1 or more, got 0"),
        ({"tools": "some"}, "'declared' or 'all', got 'some'"),
        ({"timeout_s": 0}, "timeout_s.*more than 0 seconds, got 0"),
        ({"timeout_s": float("nan")}, "timeout_s.*got nan"),
        ({"confidence": 1.5}, "confidence.*from 0 to 1, got 1.5"),
    ],
)
def test_bad_settings(settings: dict[str, Any], named: str) -> None:
    """A value outside its range is refused, by name."""
    with pytest.raises(ValueError, match=named):
        DraftModel("some:model", **settings)
