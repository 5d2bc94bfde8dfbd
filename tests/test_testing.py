"""The public fakes: virtual time, the scripted model, and the checks of the test setup."""

import asyncio
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.tools import tool

from langchain_spectool import testing
from langchain_spectool._core.events import Event
from langchain_spectool._runtime.pool import POOL
from langchain_spectool.testing import (
    RecordingObserver,
    ScriptedModel,
    Turn,
    VirtualTimeLoop,
    calls,
    text,
)

HOUR_S = 3600.0
USAGE = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}


@tool
def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


def scripted(**options: Any) -> ScriptedModel:
    """Return a model that calls `double` twice, in one turn, and then answers."""
    twice = calls(("double", {"number": 1}), ("double", {"number": 2}), content="Let me see.")
    return ScriptedModel(turns=[twice, text("Two and four.")], **options)


def gist(messages: list[BaseMessage]) -> list[tuple[str, Any]]:
    """Return what a conversation says, without its random ids."""
    return [(m.type, getattr(m, "tool_calls", None) or m.content) for m in messages]


SAID = [
    ("human", "Double 1 and 2."),
    ("ai", scripted().turns[0].tool_calls),  # type: ignore[union-attr]
    ("tool", "2"),
    ("tool", "4"),
    ("ai", "Two and four."),
]
ASKED = {"messages": [HumanMessage("Double 1 and 2.")]}


async def test_an_hour_passes_at_once() -> None:
    """A timer moves the clock to its moment and costs no real time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    await asyncio.sleep(HOUR_S)
    assert loop.time() == HOUR_S


async def test_timers_fire_in_their_order() -> None:
    """Sleepers that overlap wake by their moments, not by when they were started."""
    woken: list[tuple[float, float]] = []

    async def sleeper(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        woken.append((delay_s, asyncio.get_running_loop().time()))

    await asyncio.gather(sleeper(3), sleeper(1), sleeper(2))
    assert woken == [(1, 1), (2, 2), (3, 3)]


async def test_the_clock_stands_while_the_executor_works() -> None:
    """A timer that is set does not overtake work in a thread."""
    loop = asyncio.get_running_loop()
    alarm = asyncio.create_task(asyncio.sleep(HOUR_S))
    assert await asyncio.to_thread(_after_a_moment, 7) == 7
    assert loop.time() == 0
    assert not alarm.done()
    alarm.cancel()


async def test_the_clock_stands_while_an_early_run_works() -> None:
    """A thread of our own pool counts, whether or not it calls the loop when it is done."""
    loop = asyncio.get_running_loop()
    done: list[int] = []
    assert POOL.submit(lambda: done.append(_after_a_moment(7)))
    await asyncio.sleep(HOUR_S)
    assert done == [7]
    assert loop.time() == HOUR_S


async def test_the_clock_stands_for_work_the_loop_cannot_see() -> None:
    """Inside `outside_work` a thread that calls back is not overtaken."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    answer: asyncio.Future[int] = loop.create_future()
    thread = threading.Thread(
        target=lambda: loop.call_soon_threadsafe(answer.set_result, _after_a_moment(7))
    )
    with loop.outside_work():
        thread.start()
        assert await asyncio.wait_for(answer, HOUR_S) == 7
    assert loop.time() == 0
    thread.join()


async def test_a_thread_without_notice_is_no_deadlock() -> None:
    """With no timer set, any thread may still be the one to wake a task."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[int] = loop.create_future()
    thread = threading.Thread(
        target=lambda: loop.call_soon_threadsafe(answer.set_result, _after_a_moment(7))
    )
    thread.start()
    assert await answer == 7
    thread.join()


def test_a_hung_thread_does_not_stop_the_clock_for_ever() -> None:
    """After `patience_s` of silence a deadline passes, and costs the patience only once."""
    hang = threading.Event()

    async def main() -> float:
        work = asyncio.ensure_future(asyncio.to_thread(hang.wait))
        await asyncio.wait({work}, timeout=HOUR_S)
        assert not work.done()
        await asyncio.sleep(HOUR_S)
        hang.set()
        await work
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(patience_s=0.01)) as runner:
        assert runner.run(main()) == 2 * HOUR_S


def test_a_hung_early_run_does_not_stop_the_clock_for_ever() -> None:
    """The same holds for our own pool, and a later run is waited for again."""
    hang, done = threading.Event(), threading.Event()

    async def main() -> float:
        POOL.submit(lambda: hang.wait() and None)
        await asyncio.sleep(HOUR_S)
        POOL.submit(lambda: done.set() if _after_a_moment(7) else None)
        await asyncio.sleep(HOUR_S)
        assert done.is_set()
        hang.set()
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(patience_s=0.3)) as runner:
        assert runner.run(main()) == 2 * HOUR_S


def test_a_deadlock_is_reported() -> None:
    """A task that nothing can wake is an error, where a real loop would hang."""
    loop = VirtualTimeLoop()
    nothing = loop.create_future()
    with pytest.raises(RuntimeError, match="deadlock"):
        loop.run_until_complete(nothing)
    loop.close()


@pytest.mark.real_loop
async def test_a_test_can_ask_for_a_real_loop() -> None:
    """The `real_loop` marker gives a stock event loop."""
    assert not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


async def test_ainvoke_runs_sync_tools_in_virtual_time() -> None:
    """An agent's sync tools run in threads, and only the model's seconds pass."""
    model = scripted(generation_s=1.5)
    result = await create_agent(model, [double]).ainvoke(ASKED)
    assert gist(result["messages"]) == SAID
    assert asyncio.get_running_loop().time() == pytest.approx(3)


async def test_astream_says_what_ainvoke_says() -> None:
    """Streamed turns take as long, and add up to the same messages."""
    agent = create_agent(scripted(generation_s=1.5, usage_metadata=USAGE), [double])
    whole = await agent.ainvoke(ASKED)
    start_s = asyncio.get_running_loop().time()
    parts = [part async for part in agent.astream(ASKED, stream_mode=["messages", "values"])]
    assert asyncio.get_running_loop().time() - start_s == pytest.approx(3)
    streamed = parts[-1][1]["messages"]
    assert gist(streamed) == gist(whole["messages"])
    for one, other in zip(streamed, whole["messages"], strict=True):
        assert one.response_metadata == other.response_metadata
        assert getattr(one, "usage_metadata", 0) == getattr(other, "usage_metadata", 0)
    assert len([part for mode, part in parts if mode == "messages"]) > len(streamed)


def test_invoke_and_stream_say_the_same() -> None:
    """The sync paths play the same script."""
    agent = create_agent(scripted(), [double])
    assert gist(agent.invoke(ASKED)["messages"]) == SAID
    *_, (_, last) = agent.stream(ASKED, stream_mode=["messages", "values"])
    assert gist(last["messages"]) == SAID


def test_sync_calls_take_real_time() -> None:
    """Without an event loop a turn really lasts, streamed or not."""
    model = ScriptedModel(turns=[text("One two.")], generation_s=0.005)
    start_s = time.monotonic()
    model.invoke("Hello.")
    list(model.stream("Hello."))
    assert time.monotonic() - start_s >= 0.01


async def test_chunks_come_at_their_seconds() -> None:
    """A turn of chunks streams each when it says, and ends when it says."""
    chunks = [(0.25, AIMessageChunk("One ")), (2.0, AIMessageChunk("two."))]
    model = ScriptedModel(turns=[Turn(chunks=chunks, generation_s=3)])
    loop = asyncio.get_running_loop()
    came = [(loop.time(), part.text) async for part in model.astream("Count.") if part.text]
    assert came == [(0.25, "One "), (2.0, "two.")]
    assert loop.time() == 3
    assert (await model.ainvoke("Count.")).text == "One two."
    assert loop.time() == 6
    assert chunks[0][1].id is None


async def test_chunks_alone_end_with_the_last() -> None:
    """Without `generation_s` the last chunk ends the turn."""
    model = ScriptedModel(turns=[Turn(chunks=[(2.0, AIMessageChunk("Hi."))])], generation_s=9)
    await model.ainvoke("Hello.")
    assert asyncio.get_running_loop().time() == 2


async def test_an_error_ends_its_turn() -> None:
    """The error comes after the chunks and the seconds, streamed or not."""
    broken = Turn(chunks=[(1.0, AIMessageChunk("Well"))], generation_s=2, error=OSError("cut"))
    model = ScriptedModel(turns=[broken])
    heard: list[str] = []

    async def listen() -> None:
        async for part in model.astream("Hello."):
            heard.append(part.text)  # noqa: PERF401 - kept also when the stream breaks

    with pytest.raises(OSError, match="cut"):
        await model.ainvoke("Hello.")
    with pytest.raises(OSError, match="cut"):
        await listen()
    assert heard == ["Well"]
    assert asyncio.get_running_loop().time() == 4


def test_an_error_needs_no_answer() -> None:
    """A turn of nothing but an error raises it, on the sync paths too."""
    model = ScriptedModel(turns=[Turn(error=OSError("cut"))])
    with pytest.raises(OSError, match="cut"):
        model.invoke("Hello.")
    with pytest.raises(OSError, match="cut"):
        next(model.stream("Hello."))


def test_a_stream_splits_words_and_arguments() -> None:
    """Text comes by word, a call as two pieces of arguments, the reason and usage last."""
    model = ScriptedModel(
        turns=[calls(("double", {"number": 1}), content="I will.")], usage_metadata=USAGE
    )
    *body, last = model.stream("Double 1.")
    assert [part.text for part in body] == ["I ", "will.", "", ""]
    pieces = [piece for part in body for piece in part.tool_call_chunks]
    assert [(p["index"], p["id"], p["name"], p["args"]) for p in pieces] == [
        (0, "c0", "double", '{"numb'),
        (0, None, None, 'er": 1}'),
    ]
    assert last.response_metadata == {"finish_reason": "tool_calls", "model_name": "scripted"}
    assert last.usage_metadata == USAGE


def test_content_blocks_and_invalid_calls_survive_the_stream() -> None:
    """What is no plain text, or no JSON, arrives as it was written."""
    bad = {"name": "double", "args": "number: 1", "id": "c0", "error": None}
    said = AIMessage(
        content=[{"type": "text", "text": "Hm."}],
        invalid_tool_calls=[{"type": "invalid_tool_call", **bad}],
    )
    answer = ScriptedModel(turns=[said]).invoke("Double 1.")
    assert answer.content == said.content
    assert answer.invalid_tool_calls == said.invalid_tool_calls
    assert not answer.tool_calls


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(args=st.dictionaries(st.text(min_size=1), JSON, max_size=3), content=st.text())
def test_a_message_is_the_sum_of_its_pieces(args: dict[str, Any], content: str) -> None:
    """Whatever a message says, its stream adds up to it."""
    said = calls(("double", args), ("double", {}), content=content)
    answer = ScriptedModel(turns=[said]).invoke("Go on.")
    assert answer.content == said.content
    assert answer.tool_calls == said.tool_calls


def test_each_question_starts_the_script_again() -> None:
    """The place in the script is counted from the last human message."""
    model = ScriptedModel(turns=[text("First."), text("Second.")])
    talk: list[BaseMessage] = [HumanMessage("A?"), AIMessage("First."), HumanMessage("B?")]
    assert model.invoke(talk).text == "First."
    assert model.invoke(talk[:2]).text == "Second."


def test_past_the_end_of_the_script_is_an_error() -> None:
    """A turn the script does not have is named."""
    with pytest.raises(IndexError, match="has 1 turns and was asked for turn 2"):
        ScriptedModel(turns=[text("Yes.")]).invoke([HumanMessage("A?"), AIMessage("Yes.")])


def test_a_script_may_answer_what_it_reads() -> None:
    """A function from messages to turns takes the place of a list."""
    model = ScriptedModel(script=lambda messages: text(messages[-1].text.upper()))
    assert model.invoke("echo").text == "ECHO"


def test_the_model_remembers_what_it_saw() -> None:
    """Every call's messages are kept, also of calls through bound tools."""
    model = scripted()
    model.bind_tools([double]).invoke("Double 1.")
    model.invoke("Double 2.")
    assert [[m.text for m in messages] for messages in model.seen] == [["Double 1."], ["Double 2."]]


def test_bound_tools_are_in_the_invocation_parameters() -> None:
    """Callbacks see the tools and the choice of this very request."""
    started: list[dict[str, Any]] = []

    class Watcher(BaseCallbackHandler):
        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            started.append(kwargs["invocation_params"])

    bound = scripted(model_name="toy").bind_tools([double], tool_choice="any")
    bound.invoke("Double 1.", {"callbacks": [Watcher()]})
    assert started[0]["tools"][0]["function"]["name"] == "double"
    assert started[0]["tool_choice"] == "any"
    assert started[0]["model_name"] == "toy"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "one of `message` and `chunks`"),
        ({"message": text("a"), "chunks": [(0, AIMessageChunk("b"))]}, "one of"),
        ({"chunks": [(2, AIMessageChunk("a")), (1, AIMessageChunk("b"))]}, "times must rise"),
        ({"message": text("a"), "generation_s": -1}, "times must rise"),
    ],
)
def test_a_turn_that_makes_no_sense_is_refused(fields: dict[str, Any], complaint: str) -> None:
    """Each mistake is named when the turn is written, not when it is played."""
    with pytest.raises(ValueError, match=complaint):
        Turn(**fields)


@pytest.mark.parametrize("fields", [{}, {"turns": [text("a")], "script": lambda _: text("b")}])
def test_a_model_needs_one_script(fields: dict[str, Any]) -> None:
    """Neither, or both, of `turns` and `script` is refused."""
    with pytest.raises(ValueError, match="give either `turns`"):
        ScriptedModel(**fields)


def test_call_ids_count_up_behind_their_prefix() -> None:
    """Two messages of one conversation can have different ids."""
    ids = [call["id"] for call in calls(("double", {}), ("double", {}), prefix="again").tool_calls]
    assert ids == ["again0", "again1"]


def test_the_observer_keeps_events_in_order() -> None:
    """What was observed first comes first."""
    observer = RecordingObserver()
    events = [Event(kind="turn_committed", at_s=1.0), Event(kind="turn_ended", at_s=2.0)]
    for event in events:
        observer.on_event(event)
    assert observer.events == events


def test_public_names_are_sorted_and_exist() -> None:
    """`__all__` lists what the module offers, in order."""
    assert list(testing.__all__) == sorted(testing.__all__)
    assert all(hasattr(testing, name) for name in testing.__all__)


def test_a_task_left_behind_fails_its_test(tmp_path: Path) -> None:
    """The setup of these tests reports our tasks that outlive a test, and only those."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_leaks.py").write_text(
        "import asyncio\n"
        "KEPT = []\n"
        "async def leave(name, delay_s):\n"
        "    KEPT.append(asyncio.create_task(asyncio.sleep(delay_s), name=name))\n"
        "async def test_leaky(): await leave('spectool-x', 60)\n"
        "async def test_slow(): await leave('spectool-y', 0.5)\n"
        "async def test_other(): await leave('z', 60)\n"
    )
    options = ["asyncio_mode=auto", f"pythonpath={Path(testing.__file__).parents[1]}"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:cov"),
            *(word for option in options for word in ("-o", option)),
            *(f"--rootdir={tmp_path}", str(tmp_path)),
        ],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        text=True,
    )
    assert "1 failed, 2 passed" in done.stdout
    assert "tasks left behind: ['spectool-x']" in done.stdout


def _after_a_moment(value: int) -> int:
    """Return `value` after a little real time, long enough for a hasty clock to jump."""
    time.sleep(0.005)
    return value
