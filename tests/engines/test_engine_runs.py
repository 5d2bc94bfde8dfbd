"""Real graphs on the reference engine: with it on they show what they show with it off."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
)
from langchain_core.messages import SystemMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from vllm_spectool.reference import Call, Turn, call, scripted

from langchain_spectool.engines import ToolCacheClient
from langchain_spectool.testing import ScriptedModel, text
from tests.engines.agents import Bench, bench, inputs, said, thread

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

ROME: Mapping[str, Any] = {"city": "Rome"}
OSLO: Mapping[str, Any] = {"city": "Oslo"}
RIGHT = {0: [("weather", ROME)]}
TWO = (call("weather", city="Rome"), "It is fine.")
MODES = pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])


async def _ran(b: Bench, engine: Any, **options: Any) -> tuple[Any, Any]:
    """Run a two-turn agent; return its state and its Speculation."""
    agent_options = {k: options.pop(k) for k in ("middleware",) if k in options}
    model = options.pop("model", None)
    speculation = b.speculation(options.pop("guesses", RIGHT), engine=engine, **options)
    agent = b.agent(speculation, [b.read(), b.write()], model=model, **agent_options)
    state = await agent.ainvoke(inputs(), thread())
    await asyncio.sleep(0.02)
    b.assert_nothing_left(speculation)
    return state, speculation


@MODES
async def test_a_hit_is_one_request(streaming: bool) -> None:
    """Both turns come from one response; the messages, usage included, are those of two."""
    with bench(scripted(*TWO)) as off, bench(scripted(*TWO)) as on:
        plain, _ = await _ran(off, engine=False, model=off.model(streaming=streaming))
        state, _ = await _ran(on, engine=True, model=on.model(streaming=streaming))
        assert said(state["messages"]) == said(plain["messages"])
        assert (off.service.requests, on.service.requests) == (2, 1)
        assert on.ran == off.ran == [("weather", "Rome")]
        assert on.claims == ["hit"]
        assert on.engine_verdicts == ["posted", "continued"]


@MODES
def test_a_hit_is_one_request_in_threads(streaming: bool) -> None:
    """The same, by blocking."""
    with bench(scripted(*TWO)) as on:
        speculation = on.speculation(RIGHT)
        agent = on.agent(speculation, [on.read()], model=on.model(streaming=streaming))
        state = agent.invoke(inputs(), thread())
        on.assert_nothing_left(speculation)
        assert state["messages"][-1].content == "It is fine."
        assert on.service.requests == 1, on.engine_verdicts
        assert on.ran == [("weather", "Rome")]


def _legacy(b: Bench) -> Any:
    return b.model(
        http_client=httpx.Client(headers={"X-Team": "a"}),
        http_async_client=httpx.AsyncClient(headers={"X-Team": "a"}),
    )


async def test_clients_of_httpx_serve_too() -> None:
    """A client that the user gave is kept, whichever library it is of."""
    with bench(scripted(*TWO)) as on:
        model = _legacy(on)
        state, _ = await _ran(on, engine=True, model=model)
        assert state["messages"][-1].content == "It is fine."
        assert on.service.requests == 1, on.engine_verdicts
        await model.http_async_client.aclose()
        model.http_client.close()


async def test_parallel_calls_and_three_turns() -> None:
    """All calls of a turn are resolved, then one of the next: one response holds three turns."""
    both = Turn(content="Two.", calls=[Call(name="weather", params=p) for p in (ROME, OSLO)])
    script = scripted(both, call("weather", city="Bern"), "Done.")
    guesses = {0: [("weather", ROME), ("weather", OSLO), ("weather", {"city": "Bern"})]}
    with bench(script) as off, bench(script) as on:
        plain, _ = await _ran(off, engine=False, guesses=guesses)
        state, _ = await _ran(on, engine=True, guesses=guesses)
        assert said(state["messages"]) == said(plain["messages"])
        assert on.service.requests == 1, on.engine_verdicts
        # The last was guessed a turn too early: its run was let go, and the call ran for real.
        assert Counter(on.ran) == Counter(off.ran)


async def test_a_miss_is_two_requests() -> None:
    """A wrong guess is posted, answers nothing, and is forgotten with the request."""
    with bench(scripted(*TWO)) as on:
        _, _ = await _ran(on, engine=True, guesses={0: [("weather", OSLO)]})
        assert on.service.requests == 2
        assert on.ran == [("weather", "Oslo"), ("weather", "Rome")]
        assert on.engine_verdicts == ["posted"]


async def test_a_result_that_lands_after_the_answer_is_not_posted() -> None:
    """The response is over, so nobody could use it; the call joins its early run as ever."""
    with bench(scripted(*TWO)) as on:
        on.delay_s = 1.0
        state, _ = await _ran(on, engine=True)
        assert state["messages"][-1].content == "It is fine."
        assert on.ran == [("weather", "Rome")]
        assert on.claims == ["joined"]
        assert on.service.requests == 2
        assert "posted" not in on.engine_verdicts


class _Editing(AgentMiddleware[Any, Any]):
    """Rewrites what the tools said."""

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        message = await handler(request)
        assert isinstance(message, ToolMessage)
        return message.model_copy(update={"content": f"({message.content})"})


async def test_an_edited_tool_message_gets_a_real_answer() -> None:
    """What the engine went on with is not what the agent says: its answer is given up."""
    with bench(scripted(*TWO)) as off, bench(scripted(*TWO)) as on:
        plain, _ = await _ran(off, engine=False, middleware=[_Editing()])
        state, _ = await _ran(on, engine=True, middleware=[_Editing()])
        assert said(state["messages"]) == said(plain["messages"])
        assert state["messages"][2].content == "(18 degrees in Rome)"
        assert on.service.requests == 2
        assert on.engine_verdicts == ["posted", "dropped"]
        assert on.ran == [("weather", "Rome")]


class _FailsOnce(AgentMiddleware[Any, Any]):
    """Loses the second answer of the model once."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    async def awrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        response = await handler(request)
        if len(request.messages) > 1 and not self.lost:
            self.lost += 1
            msg = "lost"
            raise ConnectionError(msg)
        return response


async def test_a_retry_of_the_model_gets_a_real_answer() -> None:
    """What was parked answers once; who asks again is answered by the network."""
    with bench(scripted(*TWO)) as on:
        retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
        state, _ = await _ran(on, engine=True, middleware=[retry, _FailsOnce()])
        assert state["messages"][-1].content == "It is fine."
        assert on.service.requests == 2
        assert on.ran == [("weather", "Rome")]


async def test_an_interrupt_gives_up_what_is_parked() -> None:
    """The run is over when it waits for a human; whoever resumes it asks anew."""
    with bench(scripted(*TWO)) as on:
        speculation = on.speculation(RIGHT)
        approval = HumanInTheLoopMiddleware(interrupt_on={"send": True})
        agent = on.agent(
            speculation, [on.read(), on.write()], middleware=[approval], interrupt_before=["tools"]
        )
        await agent.ainvoke(inputs(), thread())
        await asyncio.sleep(0.02)
        on.assert_nothing_left(speculation)
        state = await agent.ainvoke(None, thread())
        assert state["messages"][-1].content == "It is fine."
        await asyncio.sleep(0.02)
        on.assert_nothing_left(speculation)
        assert on.service.requests == 2


async def test_a_cancelled_run_leaves_nothing() -> None:
    """In the middle of an answer, or while a tool runs: both connections end."""
    for wait_s, token_s in ((0.05, 0.01), (0.5, 0.001)):
        with bench(scripted(*TWO), token_s=token_s) as on:
            on.delay_s = 0.1 if token_s > 0.001 else 0.0
            speculation = on.speculation(RIGHT)
            slow = _Slow(0.0 if token_s > 0.001 else 5.0)
            agent = on.agent(speculation, [on.read()], middleware=[slow])
            task = asyncio.create_task(agent.ainvoke(inputs(), thread()))
            await asyncio.sleep(wait_s)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.02)
            on.assert_nothing_left(speculation)


class _Slow(AgentMiddleware[Any, Any]):
    """Takes its time around each tool."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        await asyncio.sleep(self.seconds)
        return await handler(request)


async def test_a_caller_that_leaves_the_stream_leaves_nothing() -> None:
    """Breaking off `astream` ends the run, and all that it had with the engine."""
    with bench(scripted(*TWO)) as on:
        speculation = on.speculation(RIGHT)
        agent = on.agent(speculation, [on.read()])
        stream = agent.astream(inputs(), thread(), stream_mode="updates")
        async for _ in stream:
            break
        await stream.aclose()
        await asyncio.sleep(0.02)
        on.assert_nothing_left(speculation)


async def test_a_write_makes_the_engine_forget() -> None:
    """What was read before it is not used after it; the executions are those of the model."""
    script = scripted(
        Turn(content="", calls=[Call(name="send", params=ROME), Call(name="weather", params=ROME)]),
        "Done.",
    )
    with bench(script) as off, bench(script) as on:
        plain, _ = await _ran(off, engine=False)
        state, _ = await _ran(on, engine=True)
        assert said(state["messages"]) == said(plain["messages"])
        assert on.service.requests == 2
        assert Counter(on.ran) == Counter(off.ran)


async def test_updates_and_checkpoints_are_those_without_the_engine() -> None:
    """Step by step, in `updates` and in the saved states, nothing tells the two apart."""
    seen = []
    for engine in (False, True):
        with bench(scripted(*TWO)) as b:
            speculation = b.speculation(RIGHT, engine=engine)
            agent = b.agent(speculation, [b.read()])
            updates = [
                {node: said(update["messages"]) for node, update in step.items()}
                async for step in agent.astream(inputs(), thread(), stream_mode="updates")
            ]
            states = [
                (state.next, state.metadata["step"], said(state.values.get("messages", ())))
                async for state in agent.aget_state_history(thread())
            ]
            chunks = [
                (type(part).__name__, part.content, meta["langgraph_node"], meta["langgraph_step"])
                async for part, meta in agent.astream(
                    inputs(), thread("other"), stream_mode="messages"
                )
            ]
            seen.append((updates, states, chunks))
            await asyncio.sleep(0.02)
            b.assert_nothing_left(speculation)
    assert seen[0] == seen[1]


def _graph(agent: Any, tools: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile()


async def test_a_model_used_in_any_node_is_served() -> None:
    """`speculation.model` installs the transport, too."""
    with bench(scripted(*TWO)) as on:
        tools = [on.read()]
        speculation = on.speculation(RIGHT, tools=tools)
        bound = speculation.model(on.model()).bind_tools(tools)

        async def agent(state: MessagesState) -> dict[str, Any]:
            answer = await bound.ainvoke([SystemMessage("Be brief."), *state["messages"]])
            return {"messages": [answer]}

        state = await _graph(agent, speculation.tool_node()).ainvoke(inputs())
        await asyncio.sleep(0.02)
        on.assert_nothing_left(speculation)
        assert state["messages"][-1].content == "It is fine."
        assert on.service.requests == 1, on.engine_verdicts


@pytest.mark.parametrize("awaited", [True, False], ids=["ainvoke", "invoke"])
async def test_a_model_as_a_node_is_served(awaited: bool) -> None:
    """So does `speculation.model_node` with a model."""
    with bench(scripted(*TWO)) as on:
        speculation = on.speculation(RIGHT, tools=[on.read()])
        graph = _graph(speculation.model_node(on.model()), speculation.tool_node())
        if awaited:
            state = await graph.ainvoke(inputs())
            await asyncio.sleep(0.02)
        else:
            state = await asyncio.to_thread(graph.invoke, inputs())
        on.assert_nothing_left(speculation)
        assert state["messages"][-1].content == "It is fine."
        assert on.service.requests == 1, on.engine_verdicts


async def test_subgraphs_and_agents_side_by_side() -> None:
    """Each graph of a run has its own: two agents of one run go on each from its own answer."""
    with bench(scripted(*TWO)) as on:
        speculation = on.speculation(RIGHT)
        agents = [on.agent(speculation, [on.read()], name=None) for _ in range(2)]
        builder = StateGraph(MessagesState)
        for name, agent in zip("ab", agents, strict=True):
            builder.add_node(name, _asks(agent, name))
            builder.add_edge(START, name)
        await builder.compile().ainvoke(inputs())
        await asyncio.sleep(0.02)
        on.assert_nothing_left(speculation)
        assert on.service.requests == 2
        assert on.engine_verdicts.count("continued") == 2


def _asks(agent: Any, name: str) -> Any:
    async def node(state: MessagesState) -> dict[str, Any]:
        answer = await agent.ainvoke(inputs(), thread(name))
        return {"messages": answer["messages"][-1:]}

    return node


# --- engines and models that do not fit


async def test_an_engine_that_is_off_costs_nothing_but_the_gain() -> None:
    """It says so once; then neither posts nor requests are any different from before."""
    with bench(scripted(*TWO), unable="no") as on:
        state, _ = await _ran(on, engine=True)
        assert state["messages"][-1].content == "It is fine."
        assert on.service.requests == 2
        assert on.engine_verdicts == ["refused"]


async def test_a_wrong_key_is_a_refusal() -> None:
    """The engine's key is the model's own, unless the client has another."""
    with bench(scripted(*TWO), api_keys=("right",)) as on:
        state, _ = await _ran(on, engine=True, model=on.model(api_key="right"))
        assert on.service.requests == 1, on.engine_verdicts
        client = ToolCacheClient(f"{on.url}/v1", api_key="wrong")
        state, _ = await _ran(on, engine=client, model=on.model(api_key="right"))
        assert state["messages"][-1].content == "It is fine."
        assert on.service.requests == 3
        assert on.engine_verdicts[2:] == ["refused"]


async def test_a_model_elsewhere_is_left_alone() -> None:
    """The engine serves another model: one event says so, however many turns there are."""
    with bench(scripted(*TWO)) as on:
        client = ToolCacheClient("http://127.0.0.1:9/v1")
        await _ran(on, engine=client)
        assert on.service.requests == 2
        assert on.engine_verdicts == ["elsewhere"]


async def test_other_models_are_left_alone() -> None:
    """A model that is no ChatOpenAI has no transport of ours."""
    with bench(scripted(*TWO)) as on:
        speculation = on.speculation({0: ()})
        agent = on.agent(speculation, [on.read()], model=ScriptedModel(turns=[text("hello")]))
        state = await agent.ainvoke(inputs(), thread())
        assert state["messages"][-1].content == "hello"
        assert on.engine_verdicts == ["not_openai"]


async def test_arguments_of_a_narrow_audience_are_not_told() -> None:
    """A guess that stays in this process is no news to the engine."""
    with bench(scripted(*TWO)) as on:
        speculation = on.speculation(RIGHT)
        agent = on.agent(speculation, [on.read(audience="local")])
        await agent.ainvoke(inputs(), thread())
        await asyncio.sleep(0.02)
        on.assert_nothing_left(speculation)
        assert on.engine_verdicts == ["private"]
        assert on.claims == ["hit"]
        assert on.service.requests == 2


# --- chance


_RUNS = 12 * max(1, int(os.environ.get("SPECTOOL_EXAMPLES", "1")))
ENDS = ("plain", "threads", "edit", "retry", "cancel", "leave")


async def _one(b: Bench, dice: random.Random, number: int) -> str:
    """Run one agent with a drawn fate, and count what its calls did."""
    fate = dice.choice(ENDS) if dice.random() < 0.6 else "plain"
    middleware: list[Any] = [_Editing()] if fate == "edit" else []
    if fate == "retry":
        retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
        middleware = [retry, _FailsOnce()]
    guess = dice.choice([ROME, OSLO, ROME])
    speculation = b.speculation({0: [("weather", guess)]}, delay_s=dice.choice([0.0, 0.0, 0.03]))
    model = b.model(streaming=dice.random() < 0.7)
    agent = b.agent(speculation, [b.read()], model=model, middleware=middleware)
    b.committed.clear()
    b.observer.events.clear()
    messages = await _lived(agent, fate, dice, thread(str(number)))
    assert speculation.engine is not None
    assert speculation.engine.in_progress == 0
    served = sum(verdict in ("hit", "joined", "shared") for verdict in b.claims)
    answered = sum(isinstance(message, ToolMessage) for message in messages)
    if fate in ("plain", "threads", "edit", "retry"):
        assert answered == 1
        assert len(b.committed) + served == answered
    else:
        assert len(b.committed) + served <= 1
    assert b.errors == []
    continued = b.engine_verdicts.count("continued")
    return f"{fate}, continued" if continued else fate


async def _lived(agent: Any, fate: str, dice: random.Random, config: Any) -> list[Any]:
    if fate == "cancel":
        task = asyncio.create_task(agent.ainvoke(inputs(), config))
        await asyncio.sleep(dice.uniform(0.0, 0.15))
        task.cancel()
        await asyncio.wait({task})
    elif fate == "leave":
        stream = agent.astream(inputs(), config, stream_mode="updates")
        async for _ in stream:
            break
        await stream.aclose()
    elif fate == "threads":
        return (await asyncio.to_thread(agent.invoke, inputs(), config))["messages"]
    else:
        return (await agent.ainvoke(inputs(), config))["messages"]
    return []


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_each_call_runs_once(seed: int) -> None:
    """Hits, misses, late posts, edits, retries, aborts and disconnects: nothing twice or left."""
    dice = random.Random(seed)  # noqa: S311 - dice, not secrets
    with bench(scripted(*TWO), token_s=0.0005) as b:
        fates = Counter([await _one(b, dice, number) for number in range(_RUNS)])
        await asyncio.sleep(0.05)
        b.assert_engine_empty()
    assert fates["plain, continued"], fates
