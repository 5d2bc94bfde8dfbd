"""Cases of kinds 3 and 8: what is speculated shows up in nobody's stream, trace or bill."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from harness import HELLO, PATIENCE_S, Form, Rehearsal, Scene, Shape
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.tools import BaseTool, tool
from langgraph.config import get_stream_writer

from langchain_spectool import DraftModel, EarlyDispatch, Guess, speculatable
from langchain_spectool.testing import ScriptedModel, calls, text

WHISPER = "WHISPER"


@speculatable
@tool
async def look(q: str) -> str:
    """Look something up."""
    await asyncio.sleep(0.5)
    return f"found {q}"


def _helper(*, streaming: bool = False) -> ScriptedModel:
    """Return a draft model that says something secret and guesses right."""
    guess = calls(("look", {"q": "ants"}), content=f"{WHISPER} words")
    return ScriptedModel(
        turns=[guess, text(f"{WHISPER} end")],
        generation_s=0.2,
        model_name="helper",
        disable_streaming=not streaming,
        usage_metadata=UsageMetadata(input_tokens=5, output_tokens=7, total_tokens=12),
    )


def _scene(form: Form, way: Any = "ainvoke") -> Scene:
    return Scene(
        turns=[calls(("look", {"q": "ants"})), text("hello world")],
        tools=[look],
        form=form,
        way=way,
    )


class HandRolled:
    """A speculator that calls its model in some way of its own, as users' code does."""

    name = "hand_rolled"
    samples = 1
    timeout_s = 30.0

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._model = _helper(streaming=True)

    def guess(self, request: Any, sample: int) -> Any:
        answer = self._model.invoke("predict")
        yield from self._guesses(answer)

    async def aguess(self, request: Any, sample: int) -> AsyncIterator[Guess]:
        for guess in self._guesses(await self._asked()):
            yield guess

    async def _asked(self) -> AIMessage:
        model: Any = self._model
        match self._mode:
            case "plain":
                return await model.ainvoke("predict")
            case "nostream":
                return await model.with_config(tags=["nostream"]).ainvoke("predict")
            case "task":
                return await asyncio.create_task(model.ainvoke("predict"))
            case "task+nostream":
                quiet = model.with_config(tags=["nostream"])
                return await asyncio.create_task(quiet.ainvoke("predict"))
            case "stream":
                parts = [part async for part in model.astream("predict")]
                total = parts[0]
                for part in parts[1:]:
                    total += part
                return total
            case _:
                return await asyncio.to_thread(model.invoke, "predict")

    def _guesses(self, answer: AIMessage) -> list[Guess]:
        return [Guess(tool=call["name"], args=call["args"]) for call in answer.tool_calls]


SOURCES: dict[str, Callable[[], Any]] = {
    "draft": lambda: DraftModel(_helper()),
    "draft-streaming": lambda: DraftModel(_helper(streaming=True)),
    "plain": lambda: HandRolled("plain"),
    "nostream": lambda: HandRolled("nostream"),
    "task": lambda: HandRolled("task"),
    "task+nostream": lambda: HandRolled("task+nostream"),
    "stream": lambda: HandRolled("stream"),
    "thread": lambda: HandRolled("thread"),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("mode", ["messages", "values", "debug"])
async def test_b25_helper_tokens_in_streams(source: str, mode: Any, form: Form) -> None:
    """B25: a predictor's words are in no stream of the caller, however it calls its model."""
    scene = _scene(form)
    played = Rehearsal(scene, speculators=[SOURCES[source]()])
    parts = [part async for part in played.agent.astream(HELLO, stream_mode=mode)]
    assert WHISPER not in repr(parts)
    assert "hello" in repr(parts)
    assert played.report.hits == 1


@pytest.mark.parametrize("source", SOURCES)
async def test_b25_helper_tokens_in_events(source: str, form: Form) -> None:
    """B25: nor in `astream_events`, where a tag would not hide them."""
    played = Rehearsal(_scene(form), speculators=[SOURCES[source]()])
    seen = [event async for event in played.agent.astream_events(HELLO, version="v2")]
    assert WHISPER not in repr(seen)
    assert any(event["event"] == "on_chat_model_stream" for event in seen)
    assert played.report.hits == 1


class Told(DraftModel):
    """A draft model that says when a blocking sample is over."""

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(model)
        self.done = threading.Semaphore(0)

    def guess(self, request: Any, sample: int) -> Any:
        yield from super().guess(request, sample)
        self.done.release()


@pytest.mark.parametrize("streaming", [True, False])
async def test_b25_helper_tokens_in_blocking_streams(streaming: bool, form: Form) -> None:
    """B25: the same with threads, under `stream`."""

    @speculatable
    @tool("look")
    def blocking_look(q: str) -> str:
        """Look something up."""
        return f"found {q}"

    scene = _scene(form, "invoke")
    scene.tools = [blocking_look]
    helper = _helper(streaming=streaming)
    helper.generation_s = 0.0
    draft = Told(helper)
    played = Rehearsal(scene, speculators=[draft])
    played.model.cue = lambda _: draft.done.acquire(timeout=PATIENCE_S)
    modes = ["messages", "values", "debug"]
    parts = await asyncio.to_thread(lambda: [*played.agent.stream(HELLO, stream_mode=modes)])
    assert WHISPER not in repr(parts)
    assert len(helper.seen) == 2
    assert played.report.hits == 1


def _chatty(ran: list[Any]) -> BaseTool:
    @speculatable
    @tool
    async def chatty(x: str) -> str:
        """Write progress."""
        ran.append(x)
        get_stream_writer()({"progress": x})
        return f"w:{x}"

    return chatty


def _silent(ran: list[Any]) -> BaseTool:
    @speculatable
    @tool
    async def silent(x: str) -> str:
        """Write nothing."""
        ran.append(x)
        return f"w:{x}"

    return silent


async def _streams(agent: Any) -> dict[str, list[Any]]:
    """Return what the caller sees, mode by mode, without what LangChain draws at random."""
    seen: dict[str, list[Any]] = {}
    for mode in ("custom", "updates"):
        parts = [part async for part in agent.astream(HELLO, stream_mode=mode)]
        seen[mode] = [[*part] if mode == "updates" else part for part in parts]
    events = [event async for event in agent.astream_events(HELLO, version="v2")]
    seen["events"] = [(e["event"], e["name"]) for e in events if e["event"].startswith("on_tool")]
    return seen


@pytest.mark.parametrize("make", [_chatty, _silent], ids=["chatty", "silent"])
@pytest.mark.parametrize("guessed", ["right", "wrong"])
async def test_b26_early_run_is_invisible(
    make: Callable[[list[Any]], BaseTool], guessed: str, form: Form, ran: list[Any]
) -> None:
    """B26: the caller sees each committed call once, in order, and nothing of any other."""
    subject = make(ran)
    args = {"x": "right"}
    scene = Scene(turns=[calls((subject.name, args)), text("bye")], tools=[subject], form=form)
    stock = await _streams(scene.agent())
    ran.clear()
    played = Rehearsal(scene, [(subject.name, {"x": guessed})])
    assert await _streams(played.agent) == stock
    assert guessed in ran
    tainted = "tainted" in played.verdicts("discarded")
    assert tainted == (subject.name == "chatty")


async def test_b26_call_that_never_commits(form: Form, ran: list[Any]) -> None:
    """B26: of a guess that no call takes, nothing is seen at all."""
    subject = _chatty(ran)
    scene = Scene(turns=[text("bye")], tools=[subject], form=form)
    stock = await _streams(scene.agent())
    played = Rehearsal(scene, [("chatty", {"x": "spec"})])
    assert await _streams(played.agent) == stock
    assert stock["custom"] == stock["events"] == []
    assert ran == ["spec"]


class Counting(BaseCallbackHandler):
    """Counts tool and model runs by name."""

    def __init__(self) -> None:
        self.tools: list[str] = []
        self.models = 0

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
        self.tools.append(str(serialized.get("name")))

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.models += 1


async def test_b26_callbacks_of_the_caller(shape: Shape, ran: list[Any]) -> None:
    """B26: the caller's handlers hear of one tool run per committed call, and of no draft."""

    @speculatable
    @tool
    def silent(x: str) -> str:
        """Write nothing."""
        ran.append(x)
        return x

    asked = [("silent", {"x": "right"})]
    scene = Scene(turns=[calls(*asked), text("bye")], tools=[silent], **shape)
    played = Rehearsal(scene, [*asked, ("silent", {"x": "wrong"})])
    heard = Counting()
    await played.run({"callbacks": [heard]})
    assert heard.tools == ["silent"]
    assert heard.models == 2
    assert sorted(ran) == ["right", "wrong"]


async def test_b27_usage_is_counted_once(form: Form) -> None:
    """B27: a helper's tokens are reported once, under its source, apart from the main model's."""
    scene = _scene(form)
    with get_usage_metadata_callback() as bill:
        played = Rehearsal(scene, speculators=[DraftModel(_helper())])
        await played.run()
    assert played.report.usage == {"draft_model": (10, 14)}
    assert played.verdicts("usage") == ["", ""]
    assert bill.usage_metadata == {
        "helper": {"input_tokens": 10, "output_tokens": 14, "total_tokens": 24}
    }


async def test_b27_missing_usage_is_unknown(form: Form) -> None:
    """B27: a helper that reports no usage is not reported as having used nothing."""
    helper = ScriptedModel(turns=[calls(("look", {"q": "ants"})), text("end")])
    played = Rehearsal(_scene(form), speculators=[DraftModel(helper)])
    await played.run()
    assert played.report.usage == {}
    assert {event.usage for event in played.events("usage")} == {None}


async def test_b27_main_model_is_billed_as_in_stock(form: Form) -> None:
    """B27: forcing the stream or guessing changes nothing in what the main model reports."""
    usage = UsageMetadata(input_tokens=5, output_tokens=7, total_tokens=12)

    async def billed(*, ours: bool) -> Any:
        scene = _scene(form)
        model = scene.model()
        model.usage_metadata, model.model_name = usage, "main"
        played = Rehearsal(scene, speculators=[DraftModel(_helper()), EarlyDispatch()])
        agent = scene.agent(played.spec if ours else None, model)
        with get_usage_metadata_callback() as bill:
            await agent.ainvoke(HELLO)
        return bill.usage_metadata["main"]

    assert await billed(ours=True) == await billed(ours=False)
