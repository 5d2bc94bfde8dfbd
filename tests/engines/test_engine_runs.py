"""Real graphs on the reference engine: with it on they show what they show with it off."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelRetryMiddleware
from langchain_core.messages import SystemMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from vllm_spectool.reference import Call, Turn, call, scripted

from langchain_spectool.engines import ToolCacheClient
from langchain_spectool.testing import ScriptedModel, text
from tests.engines.agents import Bench, bench, inputs, said, thread
from tests.engines.stacks import Editing, FailsOnce, Slow

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
        on.begins = lambda: on.service.requests > 0 and not on.service.left()["running"]
        on.delay_s = 0.5
        state, _ = await _ran(on, engine=True)
        assert state["messages"][-1].content == "It is fine."
        assert on.ran == [("weather", "Rome")]
        assert on.claims in (["joined"], ["hit"])  # a busy machine may reach the claim later
        assert on.service.requests == 2
        assert "posted" not in on.engine_verdicts


async def test_an_edited_tool_message_gets_a_real_answer() -> None:
    """What the engine went on with is not what the agent says: its answer is given up."""
    with bench(scripted(*TWO)) as off, bench(scripted(*TWO)) as on:
        plain, _ = await _ran(off, engine=False, middleware=[Editing()])
        state, _ = await _ran(on, engine=True, middleware=[Editing()])
        assert said(state["messages"]) == said(plain["messages"])
        assert state["messages"][2].content == "(18 degrees in Rome)"
        assert on.service.requests == 2
        assert on.engine_verdicts == ["posted", "dropped"]
        assert on.ran == [("weather", "Rome")]


async def test_a_retry_of_the_model_gets_a_real_answer() -> None:
    """What was parked answers once; who asks again is answered by the network."""
    with bench(scripted(*TWO)) as on:
        retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
        state, _ = await _ran(on, engine=True, middleware=[retry, FailsOnce()])
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
            slow = Slow(0.0 if token_s > 0.001 else 5.0)
            agent = on.agent(speculation, [on.read()], middleware=[slow])
            task = asyncio.create_task(agent.ainvoke(inputs(), thread()))
            await asyncio.sleep(wait_s)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.02)
            on.assert_nothing_left(speculation)


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
    with bench(scripted(*TWO), token_s=0.02) as on:
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


@pytest.mark.parametrize("place", ["model_node", "model"])
async def test_a_model_with_tools_bound_is_served(place: str) -> None:
    """As a node and inside of one, with all that is bound to it."""
    with bench(scripted(*TWO), token_s=0.02) as on:
        tools = [on.read()]
        speculation = on.speculation(RIGHT, tools=tools)
        bound = on.model().bind_tools(tools).bind(temperature=0.5).with_config(tags=["mine"])
        inner: Any = speculation.model(bound)

        async def agent(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await inner.ainvoke(state["messages"])]}

        node = agent if place == "model" else speculation.model_node(bound)
        state = await _graph(node, speculation.tool_node()).ainvoke(inputs())
        await asyncio.sleep(0.02)
        on.assert_nothing_left(speculation)
        assert state["messages"][-1].content == "It is fine."
        assert on.service.requests == 1, on.engine_verdicts
        assert inner.kwargs == bound.kwargs
        assert inner.config == bound.config
        report = speculation.report()
        assert report.engine == {"posted": 1, "continued": 1}
        assert "\nengine: 1 turns continued, posted 1\n" in str(report)


@pytest.mark.parametrize("shown", [False, True])
async def test_a_model_that_a_function_calls_is_not_seen(shown: bool) -> None:
    """One event says how to have it served, unless it is."""
    with bench(scripted(*TWO)) as on:
        tools = [on.read()]
        speculation = on.speculation(RIGHT, tools=tools)
        chat = speculation.model(on.model()) if shown else on.model()
        bound = chat.bind_tools(tools)

        async def agent(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await bound.ainvoke(state["messages"])]}

        graph = _graph(speculation.model_node(agent), speculation.tool_node())
        for _ in range(2):
            await graph.ainvoke(inputs())
        events = [each for each in on.observer.events if each.kind == "engine"]
        if shown:
            assert "no_model" not in on.engine_verdicts
        else:
            [event] = events
            assert event.verdict == "no_model"
            assert "`speculation.model(...)`" in event.detail


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
        [event] = [each for each in on.observer.events if each.kind == "engine"]
        assert (event.verdict, event.detail) == ("refused", "the engine answered 501")


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
        [event] = [each for each in on.observer.events if each.kind == "engine"]
        assert event.verdict == "elsewhere"
        assert "http://127.0.0.1:9/v1: it is served at " + on.url in event.detail


async def test_other_models_are_left_alone() -> None:
    """A model that is no ChatOpenAI has no transport of ours."""
    with bench(scripted(*TWO)) as on:
        speculation = on.speculation({0: ()})
        agent = on.agent(speculation, [on.read()], model=ScriptedModel(turns=[text("hello")]))
        state = await agent.ainvoke(inputs(), thread())
        assert state["messages"][-1].content == "hello"
        [event] = [each for each in on.observer.events if each.kind == "engine"]
        assert event.verdict == "not_openai"
        assert "bind tools after `speculation.model(...)`" in event.detail


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
