"""A run that is held out is stock, in whatever form speculation was plugged in."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal, get_args

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import Field

from langchain_spectool import EarlyDispatch, Guess, Policy, Rules, Speculation, speculatable
from langchain_spectool.testing import RecordingObserver, ScriptedModel, Turn, calls, text
from tests.cases.harness import HELLO, Outcome, Way, outcome

Form = Literal["create_agent", "function", "runnable", "sequence", "model", "spec.model"]
FORMS: tuple[Form, ...] = get_args(Form)
TURNS = (calls(("look", {"q": "a"})), text("done"))


class Watched(ScriptedModel):
    """A model that notes in which way it was asked each time."""

    ways: list[str] = Field(default_factory=list)

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        self.ways.append("whole")
        return super()._generate(*args, **kwargs)

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        self.ways.append("whole")
        return await super()._agenerate(*args, **kwargs)

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self.ways.append("streamed")
        yield from super()._stream(*args, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.ways.append("streamed")
        async for chunk in super()._astream(*args, **kwargs):
            yield chunk


class Show:
    """An agent of one form, what its model and its tool did, and whom it asked for guesses."""

    def __init__(
        self, form: Form, holdout: float, *, plain: bool = False, turns: Sequence[Any] = TURNS
    ) -> None:
        self.model = Watched(turns=turns)
        self.ran: list[str] = []
        self.asked = 0
        self.log = RecordingObserver()
        tools = [self._tool()]
        self.spec = Speculation(
            tools,
            speculators=[Rules(self._guess), EarlyDispatch(force=True)],
            policy=Policy(holdout=holdout, benefit=None),
            observers=[self.log],
        )
        self.agent = self._agent(form, tools, None if plain else self.spec)

    def _guess(self, _: Any) -> list[Guess]:
        self.asked += 1
        return [Guess(tool="look", args={"q": "never called"})]

    def _tool(self) -> BaseTool:
        @speculatable
        @tool
        def look(q: str) -> str:
            """Look something up."""
            self.ran.append(q)
            return q

        return look

    def _agent(self, form: Form, tools: list[BaseTool], spec: Speculation | None) -> Any:
        if form == "create_agent":
            ours = [] if spec is None else [spec.middleware()]
            return create_agent(self.model, tools, middleware=ours)
        model = spec.model(self.model) if spec and form == "spec.model" else self.model
        whole = spec is not None and form == "model"
        node = self.model if whole else _node(form, model.bind_tools(tools))
        wraps = spec is not None and form != "spec.model"
        builder = StateGraph(MessagesState)
        builder.add_node("agent", spec.model_node(node) if spec and wraps else node)
        builder.add_node("tools", ToolNode(tools) if spec is None else spec.tool_node())
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", tools_condition)
        builder.add_edge("tools", "agent")
        return builder.compile()

    async def run(self, way: Way) -> Outcome:
        """Run once."""
        return await outcome(self.agent, HELLO, way=way)


def _node(form: Form, bound: Any) -> Any:
    def call(state: MessagesState) -> Any:
        return {"messages": [bound.invoke(state["messages"])]}

    async def acall(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def messages(state: MessagesState) -> list[BaseMessage]:
        return state["messages"]

    def update(answer: BaseMessage) -> Any:
        return {"messages": [answer]}

    if form == "sequence":
        return RunnableLambda(messages) | bound | RunnableLambda(update)
    return RunnableLambda(call, acall) if form != "function" else call


every_form = pytest.mark.parametrize("form", FORMS)
ways = pytest.mark.parametrize("way", ["ainvoke", "invoke"])


@ways
@every_form
async def test_a_run_held_out_is_stock(form: Form, way: Way) -> None:
    """Nobody is asked, nothing runs early, and the model is not made to stream."""
    ours, stock = Show(form, 1.0), Show(form, 1.0, plain=True)
    assert (await ours.run(way)).said == (await stock.run(way)).said
    assert ours.asked == 0
    assert ours.ran == stock.ran == ["a"]
    assert ours.model.ways == stock.model.ways == ["whole"] * 2
    assert [event.verdict for event in ours.log.events if event.kind == "error"] == []
    report = ours.spec.report()
    assert (report.guesses, report.hits, report.errors) == (0, 0, 0)
    assert report.idle["held_out"] >= 2
    assert report.comparison is not None
    assert (report.comparison.holdout.n, report.comparison.treated.n) == (1, 0)


@ways
@every_form
async def test_a_treated_run_is_not_stock(form: Form, way: Way) -> None:
    """In the other arm the same model is made to stream: what is missing above is there."""
    show = Show(form, 1e-9)
    await show.run(way)
    # A model that is watched where it is called hears of its own pace only, and is not made to.
    assert show.model.ways == ["whole" if form == "spec.model" else "streamed"] * 2
    report = show.spec.report()
    assert report.errors == 0
    assert report.comparison is not None
    assert (report.comparison.holdout.n, report.comparison.treated.n) == (0, 1)


@ways
@every_form
async def test_each_turn_of_a_held_out_run_is_counted_once(form: Form, way: Way) -> None:
    """Two answers of the model are two turns, whatever steps there are around the model."""
    show = Show(form, 1.0)
    await show.run(way)
    assert show.spec.report().idle == {"held_out": 2}
    assert show.spec.report().turns == 2


@pytest.mark.parametrize("holdout", [1.0, 1e-9])
@pytest.mark.parametrize("form", [form for form in FORMS if form != "function"])  # it sleeps
async def test_both_arms_count_the_same_turns(form: Form, holdout: float) -> None:
    """A turn's seconds are those between two calls of the model: a step around it is none."""
    turns = [Turn(message=message, generation_s=1.0) for message in TURNS]
    show = Show(form, holdout, turns=turns)
    await show.run("ainvoke")
    comparison = show.spec.report().comparison
    assert comparison is not None
    arm = comparison.holdout if holdout == 1 else comparison.treated
    assert arm.turn_s == pytest.approx(1.0)


@pytest.mark.parametrize("holdout", [1.0, 1e-9])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_node_that_calls_no_model_is_no_turn(holdout: float, *, fails: bool) -> None:
    """Whatever comes of it, nothing is counted, in either arm."""
    show = Show("function", holdout)

    async def node(_: MessagesState) -> Any:
        if fails:
            raise ConnectionError("gone")
        return {"messages": [text("done")]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", show.spec.model_node(node))
    builder.add_edge(START, "agent")
    show.agent = builder.compile()
    await show.run("ainvoke")
    assert show.spec.report().turns == 0
    assert show.spec.report().idle == {}
    assert [event.kind for event in show.log.events if event.turn] == []


@every_form
async def test_a_held_out_run_that_fails_fails_as_stock(form: Form) -> None:
    """An error of the model is the agent's, and the run is counted."""
    turns = [Turn(error=ConnectionError("gone"))]
    shows = [Show(form, 1.0, plain=plain, turns=turns) for plain in (False, True)]
    ours, stock = [await show.run("ainvoke") for show in shows]
    assert ours.error == stock.error == (ConnectionError, "gone")
    comparison = shows[0].spec.report().comparison
    assert comparison is not None
    assert comparison.holdout.n == 1
