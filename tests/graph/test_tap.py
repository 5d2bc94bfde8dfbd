"""What is heard of a model: its own calls and chunks, once, and no other model's."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCallChunk,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.tools import StructuredTool
from langgraph.graph import MessagesState

from langchain_spectool import (
    EarlyDispatch,
    Policy,
)
from langchain_spectool.graph.deltas import StreamStep
from langchain_spectool.graph.tap import ForcingTap, Tap, bound_names
from langchain_spectool.testing import ScriptedModel, Turn, calls, text
from tests.graph.node_scene import LAST, MAIN_S, Scene, ask, awaiting

# --- models watched wherever they are called


async def test_watched_model_that_fails_is_tried_again() -> None:
    """Each call of a watched model is a turn; a failed one leaves nothing."""
    scene = Scene()
    attempts = iter([ConnectionError("lost"), None])

    def script(messages: list[BaseMessage]) -> Any:
        if messages[-1].type == "tool":
            return text("done")
        if (error := next(attempts)) is not None:
            return Turn(error=error)
        return calls(("look", {"q": "ants"}), content="Let me see.")

    model = scene.spec.model(ScriptedModel(script=script, generation_s=MAIN_S))
    bound = model.bind_tools([scene.look]).with_retry(
        stop_after_attempt=2, wait_exponential_jitter=False
    )
    state = await scene.graph(awaiting(bound)).ainvoke(ask())
    assert [m.content for m in state["messages"]][1:] == ["Let me see.", "found ants", "done"]
    assert scene.spec.report().hits == 1
    ends = [e.verdict for e in scene.observed.events if e.kind == "turn_ended"]
    assert ends == ["failed", "done"]


@pytest.mark.parametrize("fails", [False, True])
async def test_watched_model_that_is_switched_off(fails: bool) -> None:
    """Off is off: chunks, answers and errors go by unheard."""
    scene = Scene(policy=Policy(mode="off"))
    answer = Turn(chunks=[(0.1, AIMessageChunk("do")), (0.2, AIMessageChunk("ne"))])
    failing = Turn(error=ConnectionError("lost"))
    model = scene.spec.model(ScriptedModel(script=lambda _: failing if fails else answer))
    graph = scene.graph(awaiting(model.bind_tools([scene.look])))
    if fails:
        with pytest.raises(ConnectionError):
            await graph.ainvoke(ask())
    else:
        assert [part async for part in graph.astream(ask(), stream_mode="messages")]
    assert scene.observed.events == []


# --- what the tap hears


def _two(q: str) -> ScriptedModel:
    """Return a model whose first call is closed by its second."""
    both = calls(("look", {"q": q}), ("look", {"q": f"{q} too"}))
    script = {"tool": text("done"), "human": both}
    return ScriptedModel(script=lambda messages: script[messages[-1].type], generation_s=MAIN_S)


async def test_streams_of_other_models_are_not_listened_to() -> None:
    """A node may stream from a model without our tools, and from one that is a helper's."""
    scene = Scene(EarlyDispatch(force=True))
    bound = _two("ants").bind_tools([scene.look])
    other, helper = _two("bees"), _two("cats")

    async def call(state: MessagesState) -> Any:
        await other.ainvoke("Name this conversation.")
        marked: Any = {"metadata": {"lc_source": "summarization"}}
        await helper.bind_tools([scene.look]).ainvoke("Sum up.", marked)
        return {"messages": [await bound.ainvoke(state["messages"])]}

    await scene.graph(scene.spec.model_node(call)).ainvoke(ask())
    assert scene.ran == ["ants", "ants too"]
    report = scene.spec.report()
    assert (report.guesses, report.hits, report.errors) == (1, 1, 0)


def _part(args: str | None, index: int = 0, **more: Any) -> ToolCallChunk:
    return tool_call_chunk(args=args, index=index, **more)


async def test_cut_that_is_heard_with_the_end_of_a_call() -> None:
    """A chunk that closes a call and says that the answer was cut off starts nothing."""
    scene = Scene(EarlyDispatch(force=True))
    head = _part('{"q": "ants"}', name="look", id="c0")
    cut = {"finish_reason": "length"}
    answer = Turn(
        chunks=[
            (0.1, AIMessageChunk("", tool_call_chunks=[head])),
            (0.2, AIMessageChunk("and so", response_metadata=cut)),
        ]
    )
    model = ScriptedModel(script=lambda m: answer if m[-1].type == "human" else text("done"))
    await scene.graph(scene.spec.model_node(model)).ainvoke(ask())
    assert scene.spec.report().guesses == 0


async def test_late_delta_of_a_call_that_did_not_start() -> None:
    """What goes on being written after it was closed, and was never started, is no matter."""
    scene = Scene(EarlyDispatch(force=True))
    chunks = [
        (0.1, AIMessageChunk("", tool_call_chunks=[_part('{"q": 1}', name="else", id="c0")])),
        (0.2, AIMessageChunk("", tool_call_chunks=[_part("{", 1, name="look", id="c1")])),
        (0.3, AIMessageChunk("", tool_call_chunks=[_part(" ", 0)])),
        (0.4, AIMessageChunk("", tool_call_chunks=[_part("}", 1)])),
    ]
    answer = Turn(chunks=chunks)
    model = ScriptedModel(script=lambda m: answer if m[-1].type == "human" else text("done"))
    await scene.graph(scene.spec.model_node(model)).ainvoke(ask())
    report = scene.spec.report()
    assert report.verdicts == {"unknown_tool": 1}
    assert (report.errors, report.wasted) == (0, 0)


class Heard:
    """Keeps what a tap reports."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def model_started(self, run_id: UUID, messages: Any, parameters: Any) -> None:
        self.said.append(("started", list(messages)))

    def streamed(self, run_id: UUID, step: StreamStep) -> None:
        self.said.append(step)

    def model_ended(self, run_id: UUID, message: Any) -> None:
        self.said.append(("ended", message))

    def model_failed(self, run_id: UUID) -> None:
        self.said.append("failed")


def test_what_is_streamed_both_ways_is_heard_once() -> None:
    """A model that streams events and chunks says everything twice: the first way counts."""
    heard, run_id = Heard(), uuid4()
    tap = Tap(heard)
    tap.on_chat_model_start({}, [], run_id=run_id)
    delta = {"type": "tool_call_chunk", "name": "look", "args": "{}"}
    tap.on_stream_event(
        {"event": "content-block-start", "index": 0, "content": delta}, run_id=run_id
    )
    tap.on_llm_new_token("", chunk=AIMessageChunk("x"), run_id=run_id)
    tap.on_llm_end(LLMResult(generations=[]), run_id=run_id)
    tap.on_llm_new_token("", chunk=AIMessageChunk("x"), run_id=run_id)  # after its end
    tap.on_llm_error(ValueError(), run_id=run_id)
    first, step, last = heard.said
    assert (first, last) == (("started", []), ("ended", None))
    assert step.deltas


def test_answer_of_a_result() -> None:
    """A result holds a chat message, or none that we can read."""
    heard = Heard()
    results = [
        [[Generation(text="plain")]],
        [[ChatGeneration(message=HumanMessage("hi")), ChatGeneration(message=LAST)]],
    ]
    for generations in results:
        run_id, tap = uuid4(), Tap(heard)
        tap.on_chat_model_start({}, [[]], run_id=run_id)
        tap.on_llm_end(LLMResult(generations=generations), run_id=run_id)
    assert [what for what in heard.said if what[0] == "ended"] == [("ended", None), ("ended", LAST)]


def test_forcing_tap_passes_streams_on() -> None:
    """Its presence asks for streaming; the stream itself is none of its business."""
    tap, stream = ForcingTap(Heard()), iter("x")
    assert tap.tap_output_iter(uuid4(), stream) is stream
    assert tap.tap_output_aiter(uuid4(), stream) is stream


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({}, set()),
        ({"tools": None, "functions": "x"}, set()),
        ({"tools": [{"type": "function", "function": {"name": "a"}}]}, {"a"}),
        ({"tools": [{"name": "a", "input_schema": {}}, {"type": "web_search"}]}, {"a"}),
        ({"functions": [{"name": "a"}, {"name": "b"}]}, {"a", "b"}),
        ({"tools": [{"function_declarations": [{"name": "a"}, {"name": "b"}]}]}, {"a", "b"}),
        ({"tools": ({"functionDeclarations": [{"name": "a"}]},)}, {"a"}),
        ({"tools": [{"toolSpec": {"name": "a"}}]}, {"a"}),
        ({"tools": [StructuredTool.from_function(print, name="a", description="")]}, {"a"}),
        ({"tools": [{"name": 7}, object(), 7]}, set()),
    ],
)
def test_bound_names(parameters: Any, names: set[str]) -> None:
    """The tools of a model's call are read in any provider's format."""
    assert bound_names(parameters) == names


class Streaming(ScriptedModel):
    """A model with the switch that providers have."""

    streaming: bool = True


@pytest.mark.parametrize("streaming", [False, True])
async def test_model_that_streams_of_itself_is_heard(streaming: bool) -> None:
    """A passive listener hears a model that is set to stream; else the report says why not."""
    scene = Scene(EarlyDispatch())
    model = Streaming(script=_two("ants").script, generation_s=MAIN_S, streaming=streaming)
    agent = create_agent(model, [scene.look], middleware=[scene.spec.middleware()])
    await agent.ainvoke(ask())
    report = scene.spec.report()
    assert report.guesses == streaming
    assert report.idle == ({"no_guesses": 1} if streaming else {"not_streaming": 2})
