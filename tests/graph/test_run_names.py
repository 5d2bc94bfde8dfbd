"""What is learned of one run counts once, however many turns it has side by side or nested."""

import operator
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send

from langchain_spectool import Guess, Speculation, TurnRequest, speculatable
from langchain_spectool._core.ports import Speculator
from langchain_spectool.testing import RecordingObserver, ScriptedModel, text


@speculatable
@tool
def look(q: str) -> str:
    """Look it up."""
    return q


class Namer:
    """Guesses nothing, and keeps the run that each request names."""

    name = "namer"
    samples = 1
    timeout_s = 1.0

    def __init__(self) -> None:
        self.runs: list[str] = []

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        self.runs.append(request.run)
        return iter(())

    async def aguess(self, request: TurnRequest, sample: int) -> Any:
        for guess in self.guess(request, sample):
            yield guess


class State(TypedDict):
    asked: Annotated[list[str], operator.add]


def _agent(namer: Speculator) -> Any:
    spec = Speculation(speculators=[namer])
    model = ScriptedModel(turns=[text("done")], generation_s=1.0)
    return create_agent(model, [look], middleware=[spec.middleware()])


async def test_parallel_and_nested_turns_are_of_one_run() -> None:
    """Three agents at once and one after them share a name; the next run has its own."""
    namer = Namer()
    agent = _agent(namer)

    async def ask(_: Any) -> State:
        await agent.ainvoke({"messages": "hi"})
        return {"asked": ["hi"]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("again", ask)
    builder.add_conditional_edges(START, lambda _: [Send("ask", {}) for _ in range(3)], ["ask"])
    builder.add_edge("ask", "again")
    graph = builder.compile()
    for _ in range(2):
        await graph.ainvoke({"asked": []})
    first, second = namer.runs[:4], namer.runs[4:]
    assert len(second) == 4
    assert len({*first}) == len({*second}) == 1
    assert {*first} != {*second}


async def test_runs_one_after_another_have_names_of_their_own() -> None:
    """An address that is used again is no other run's name."""
    namer = Namer()
    agent = _agent(namer)
    for _ in range(5):
        await agent.ainvoke({"messages": "hi"})
    assert len({*namer.runs}) == 5


async def test_two_speculations_in_one_graph_name_one_run() -> None:
    """A log that both write to tells of one run with the turns of both; the next has its own."""
    log = RecordingObserver()
    specs = [Speculation(speculators=[Namer()], observers=[log]) for _ in range(2)]
    model = ScriptedModel(turns=[text("done")] * 4, generation_s=1.0)
    agents = [create_agent(model, [look], middleware=[spec.middleware()]) for spec in specs]
    builder = StateGraph(MessagesState)
    for place, agent in enumerate(agents):
        builder.add_node(f"agent {place}", agent)
    builder.add_edge(START, "agent 0")
    builder.add_edge("agent 0", "agent 1")
    graph = builder.compile()
    for _ in range(2):
        await graph.ainvoke({"messages": "hi"})
    turns = [event.run for event in log.events if event.kind == "turn_committed"]
    ends = [event.run for event in log.events if event.kind == "run_ended"]
    assert turns == ends
    assert turns[0] == turns[1] != turns[2] == turns[3]
