"""Tools of a real MCP server, over stdio, run early for the servers the operator trusts."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

from langchain_spectool import Guess, Rules, Speculation
from langchain_spectool.graph.mcp_trust import from_mcp
from langchain_spectool.testing import RecordingObserver, ScriptedModel, calls, text

pytestmark = pytest.mark.real_loop

SERVER = Path(__file__).with_name("mcp_server.py")
GENERATION_S = 0.2
HELLO: dict[str, Any] = {"messages": [("user", "hi")]}


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    return tmp_path / "calls.log"


@pytest.fixture(name="client")
def _client(log: Path) -> MultiServerMCPClient:
    server: Any = {"transport": "stdio", "command": sys.executable, "args": [str(SERVER), str(log)]}
    return MultiServerMCPClient({"notes": server})


class PatientModel(ScriptedModel):
    """Answers as soon as the server's log holds a line."""

    log: Path
    line: str = ""

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        for _ in range(1000):
            if not self.line or self.line in _lines(self.log):
                break
            await asyncio.sleep(0.01)
        return await super()._agenerate(*args, **kwargs)


def _agent(
    form: str, tools: list[BaseTool], spec: Speculation, *asked: Any, model: Any = None
) -> Any:
    script = [calls(*asked), text("done")]
    model = model or ScriptedModel(turns=script, generation_s=GENERATION_S)
    if form == "create_agent":
        return create_agent(model, tools, middleware=[spec.middleware()])
    bound = model.bind_tools(tools)

    async def call(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", spec.model_node(call))
    builder.add_node("tools", spec.tool_node())
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile()


def _guessing(*guesses: tuple[str, dict[str, Any]]) -> Rules:
    def guess(messages: Any) -> Iterator[Guess]:
        if len(messages) == 1:
            yield from (Guess(tool=name, args=args) for name, args in guesses)

    return Rules(guess)


def _contents(state: Any) -> list[Any]:
    return [m.content for m in state["messages"] if m.type == "tool"]


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


SEARCH = ("search_notes", {"query": "ants"})
ADD = ("add_note", {"content": "buy milk"})


@pytest.mark.parametrize("form", ["create_agent", "graph"])
async def test_trusted_server_runs_early(
    form: str, client: MultiServerMCPClient, log: Path
) -> None:
    """A guess of a trusted server's read-only tool answers the call; the server sees it once."""
    tools = await client.get_tools()
    seen = RecordingObserver()
    spec = Speculation(
        tools, speculators=[_guessing(SEARCH, ADD)], trust_mcp=["notes"], observers=[seen]
    )
    state = await _agent(form, tools, spec, SEARCH, ADD).ainvoke(HELLO)
    [found], [added] = _contents(state)
    assert (found["text"], added["text"]) == ("notes about ants", "added")
    assert sorted(_lines(log)) == ["add buy milk", "found ants", "search ants"]
    verdicts = [(it.tool, it.verdict) for it in seen.events if it.kind == "guess"]
    assert verdicts == [("search_notes", "run"), ("add_note", "undeclared")]
    assert (spec.report().hits, spec.report().errors) == (1, 0)


async def test_untrusted_server_runs_nothing_early(client: MultiServerMCPClient, log: Path) -> None:
    """Without the operator's word its hints count for nothing."""
    tools = await client.get_tools()
    spec = Speculation(tools, speculators=[_guessing(SEARCH, ADD)])
    state = await _agent("create_agent", tools, spec, SEARCH).ainvoke(HELLO)
    assert _contents(state)[0][0]["text"] == "notes about ants"
    assert _lines(log) == ["search ants", "found ants"]
    assert spec.report().guesses == 0


# Cancelled while it starts the server, the client of `mcp` forgets to close its in-memory streams.
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")
@pytest.mark.parametrize("line", ["", "search bees"], ids=["opening", "calling"])
async def test_unclaimed_run_closes_its_session(
    line: str, client: MultiServerMCPClient, log: Path
) -> None:
    """A wrong guess is cancelled, and the session it opened is closed by the task that did."""
    tools = await client.get_tools()
    slow = ("search_notes", {"query": "bees", "takes_s": 60})
    spec = Speculation(tools, speculators=[_guessing(slow)], trust_mcp=["notes"])
    model = PatientModel(turns=[calls(SEARCH), text("done")], log=log, line=line)
    state = await _agent("create_agent", tools, spec, model=model).ainvoke(HELLO)
    assert _contents(state)[0][0]["text"] == "notes about ants"
    ours = [task for task in asyncio.all_tasks() if task.get_name().startswith("spectool")]
    if ours:
        await asyncio.wait(ours, timeout=10)
    assert [task.get_name() for task in ours if not task.done()] == []
    assert "found bees" not in _lines(log)
    assert (spec.report().wasted, spec.report().errors) == (1, 0)
    gc.collect()


async def test_session_of_the_request(client: MultiServerMCPClient, log: Path) -> None:
    """Early runs over a session that the caller opened end before the caller closes it."""
    slow = ("search_notes", {"query": "bees", "takes_s": 60})
    async with client.session("notes") as session:
        tools = from_mcp(await load_mcp_tools(session), server="notes")
        spec = Speculation(tools, speculators=[_guessing(SEARCH, slow)], trust_mcp=["notes"])
        state = await _agent("create_agent", tools, spec, SEARCH).ainvoke(HELLO)
    assert _contents(state)[0][0]["text"] == "notes about ants"
    assert (spec.report().hits, spec.report().wasted) == (1, 1)
    assert _lines(log).count("search ants") == 1
    assert "found bees" not in _lines(log)


async def test_result_and_artifact_are_those_of_a_plain_run(client: MultiServerMCPClient) -> None:
    """What the adapter makes of a result, structured content included, is the same on a hit."""
    tools = await client.get_tools()
    spec = Speculation(tools, speculators=[_guessing(SEARCH)], trust_mcp=["notes"])
    served = await _agent("create_agent", tools, spec, SEARCH).ainvoke(HELLO)
    plain = await _agent("create_agent", tools, Speculation(tools), SEARCH).ainvoke(HELLO)
    made = [next(m for m in it["messages"] if m.type == "tool") for it in (served, plain)]
    assert spec.report().hits == 1
    assert made[0].artifact == made[1].artifact
    assert [{**block, "id": None} for block in made[0].content] == [
        {**block, "id": None} for block in made[1].content
    ]
