"""Cases of kinds 1 and 3: calls put together from a stream (B13, B14, B33), and retries (B74)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from harness import HELLO, Form, Rehearsal, Scene, Shape, comparable, outcome, streamed
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.tools import BaseTool, tool

from langchain_spectool import EarlyDispatch, speculatable
from langchain_spectool._core.assembly import CallAssembler, CallDelta, ClosedCall, VoidedCall
from langchain_spectool.testing import ScriptedModel, Turn, calls, text

Delta = Sequence[tuple[Any, str | None, str | None, str | None]]
LAST = 99
"""Later than any delta: such a call may be complete only when its message is."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What a provider sends, and what it means."""

    deltas: Sequence[Delta]
    finish: str = "tool_calls"
    means: Sequence[tuple[str, dict[str, Any]]] = ()
    """The right calls."""
    earliest: Sequence[int] = ()
    """For each of them the number of the first delta after which it may count as complete."""
    starts: int = 0
    """How many of them can be told to be complete when text follows them."""
    merged: int = 0
    """How many more can be told once LangChain has repaired the stream."""


OSLO, SEVEN = ("get_weather", {"city": "Oslo"}), ("get_order", {"order_id": 7})

STREAMS = {
    "S02-continued-without-index": Stream(
        deltas=[
            [(None, "call-A", "get_weather", "")],
            [(None, "", None, '{"city":')],
            [(None, "", None, '"Oslo"}')],
        ],
        means=[OSLO],
        earliest=[LAST],
    ),
    "S03-number-prefix": Stream(
        deltas=[
            [(0, "call-A", "get_order", '{"order_id": 1')],
            [(0, None, None, "0")],
            [(0, None, None, "00")],
            [(0, None, None, "}")],
        ],
        means=[("get_order", {"order_id": 1000})],
        earliest=[3],
        starts=1,
    ),
    "S04-string-prefix": Stream(
        deltas=[
            [(0, "call-A", "read_file", '{"path": "/srv')],
            [(0, None, None, "/a")],
            [(0, None, None, 'bc.txt"')],
            [(0, None, None, ', "tail": true}')],
        ],
        means=[("read_file", {"path": "/srv/abc.txt", "tail": True})],
        earliest=[3],
        starts=1,
    ),
    "S05-cut-off": Stream(
        deltas=[[(0, "call-A", "read_file", '{"path": "/srv/rep')]], finish="length"
    ),
    "S06-name-in-every-chunk": Stream(
        deltas=[
            [(0, "call-A", "get_weather", '{"city":')],
            [(0, "call-A", "get_weather", '"Oslo"}')],
        ],
        means=[OSLO],
        earliest=[1],
    ),
    "S08-interleaved": Stream(
        deltas=[
            [(0, "call-A", "get_weather", '{"city":')],
            [(1, "call-B", "get_order", '{"order_id":')],
            [(0, None, None, '"Oslo"}')],
            [(1, None, None, "7}")],
        ],
        means=[OSLO, SEVEN],
        earliest=[2, 3],
        starts=1,
    ),
    "S09-two-calls-in-one-delta": Stream(
        deltas=[
            [(0, "call-A", "get_weather", '{"city":"Os')],
            [(0, None, None, 'lo"}'), (1, "call-B", "get_order", '{"order_id":7}')],
        ],
        means=[OSLO, SEVEN],
        earliest=[1, 1],
        starts=2,
    ),
    "S11-extra-brace": Stream(
        deltas=[[(0, "call-A", "get_weather", '{"city":"Oslo"}')], [(0, None, None, "}")]]
    ),
    "S12-no-arguments": Stream(
        deltas=[[(0, "call-A", "list_tables", "")]],
        means=[("list_tables", {})],
        earliest=[LAST],
        starts=1,
    ),
    "S15-index-changes-type": Stream(
        deltas=[[(0, "call-A", "get_weather", '{"city":')], [("0", None, None, '"Oslo"}')]],
        means=[OSLO],
        earliest=[LAST],
        merged=1,
    ),
    "B14-two-ids-under-one-index": Stream(
        deltas=[
            [(0, "call-A", "get_weather", '{"city":"Oslo"}')],
            [(0, "call-B", "get_order", '{"order_id":7}')],
        ],
        means=[OSLO, SEVEN],
        earliest=[1, 1],
    ),
    "B14-no-name": Stream(deltas=[[(0, "call-A", None, '{"city":"Oslo"}')]]),
}


@pytest.fixture(name="stream", params=STREAMS)
def _stream(request: pytest.FixtureRequest) -> Stream:
    return STREAMS[request.param]


def _fed(stream: Stream, *, text_follows: bool) -> list[tuple[int, ClosedCall | VoidedCall]]:
    """Return what an assembler reports, each with the number of the delta it came after."""
    assembler = CallAssembler()
    news = [
        (number, report)
        for number, delta in enumerate(stream.deltas)
        for report in assembler.feed([CallDelta(*part) for part in delta])
    ]
    if text_follows:
        news += [(LAST, report) for report in assembler.feed([], later_content=True)]
    return news


@pytest.mark.parametrize("text_follows", [True, False])
def test_no_call_counts_as_complete_too_soon(stream: Stream, text_follows: bool) -> None:
    """B13 B14 B33: a reported call is one that was meant, and no earlier than it can be known."""
    for number, call in _fed(stream, text_follows=text_follows):
        assert isinstance(call, ClosedCall)
        place = list(stream.means).index((call.name, call.args))
        assert number >= stream.earliest[place]


def test_calls_followed_by_text_are_recognised(stream: Stream) -> None:
    """B13 B14 B33: what can be known to be complete is reported, once text follows."""
    assert len(_fed(stream, text_follows=True)) == stream.starts


@pytest.fixture(name="tools")
def _tools(ran: list[Any]) -> list[BaseTool]:
    @tool
    def get_weather(city: str) -> str:
        """Weather."""
        ran.append(("get_weather", {"city": city}))
        return f"fine in {city}"

    @tool
    def get_order(order_id: int) -> str:
        """Order."""
        ran.append(("get_order", {"order_id": order_id}))
        return f"order {order_id}"

    @tool
    def read_file(path: str, tail: bool = False) -> str:
        """File."""
        ran.append(("read_file", {"path": path, "tail": tail}))
        return path

    @tool
    def list_tables() -> str:
        """Tables."""
        ran.append(("list_tables", {}))
        return "orders"

    return [speculatable(each) for each in (get_weather, get_order, read_file, list_tables)]


async def _consumed(agent: Any, way: str, inputs: Any) -> tuple[Any, Any]:
    """Stream `agent` and return its last state and its error."""
    last: Any = None
    modes = ["messages", "values"]
    try:
        if way == "invoke":
            for mode, part in agent.stream(inputs, stream_mode=modes):
                last = part if mode == "values" else last
        else:
            async for mode, part in agent.astream(inputs, stream_mode=modes):
                last = part if mode == "values" else last
    except Exception as error:  # noqa: BLE001 - compared with stock's
        return last, repr(error)
    return last, None


@pytest.mark.parametrize("after", ["", "and now"])
async def test_streams_through_an_agent(
    stream: Stream, after: str, shape: Shape, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B13 B14 B33: streamed by the caller, all is as in stock, and nothing else ran early."""
    every_s = 0.1 if shape["way"] == "ainvoke" else 0.0
    turn = streamed(*stream.deltas, finish=stream.finish, after=after, every_s=every_s)
    scene = Scene(turns=[turn, text("done")], tools=tools, **shape)
    stock, stock_error = await _consumed(scene.agent(), shape["way"], HELLO)
    committed = sorted(map(repr, ran))
    ran.clear()
    played = Rehearsal(scene, speculators=[EarlyDispatch()])
    ours, error = await _consumed(played.agent, shape["way"], HELLO)
    assert comparable(ours["messages"]) == comparable(stock["messages"])
    assert error == stock_error
    assert sorted(map(repr, ran)) == committed
    assert played.report.guesses == played.report.hits
    assert played.report.errors == 0
    if after:
        assert played.report.hits == stream.starts + stream.merged


async def test_b13_truncated_answer_starts_nothing(
    shape: Shape, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B13: a call cut off by the length limit is not run early; at the commit, as in stock."""
    cut = streamed([(0, "a", "get_weather", '{"city": "Os')], finish="length", every_s=0.0)
    scene = Scene(turns=[cut, text("done")], tools=tools, **shape)
    stock = await scene.stock()
    ran.clear()
    played = Rehearsal(scene, speculators=[EarlyDispatch(force=True)])
    ours = await played.run()
    assert (played.report.guesses, played.report.hits) == (0, 0)
    assert ours.said == stock.said


async def test_b13_what_ran_before_the_cut_is_dropped(
    form: Form, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B13: nothing of a truncated turn is served, not even a call that was complete."""
    cut = streamed(
        [(0, "a", "get_weather", '{"city": "Oslo"}')],
        [(1, "b", "get_order", '{"order_id": 7')],
        finish="length",
    )
    scene = Scene(turns=[cut, text("done")], tools=tools, form=form)
    played = Rehearsal(scene, speculators=[EarlyDispatch(force=True)])
    ours = await played.run()
    assert ran.count(("get_weather", {"city": "Oslo"})) == 2
    assert played.verdicts("discarded") == ["truncated"]
    assert played.report.hits == 0
    assert ours.tools[0][2] == "fine in Oslo"


@pytest.mark.parametrize("finish", ["length", "max_tokens", "content_filter"])
async def test_b13_guesses_of_a_truncated_turn_are_dropped(
    finish: str, form: Form, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B13: a guess that equals a truncated call does not answer it either."""
    cut = streamed([(0, "a", "get_weather", '{"city": "Oslo"}')], finish=finish)
    scene = Scene(turns=[cut, text("done")], tools=tools, form=form)
    played = Rehearsal(scene, [OSLO])
    ours = await played.run()
    assert ours.said == (await scene.stock()).said
    assert played.verdicts("discarded") == ["truncated"]
    assert played.report.hits == 0


async def test_b33_late_delta_voids_what_it_belongs_to(
    form: Form, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B33 S11: a started run is thrown away when its call goes on after all."""
    turn = streamed(
        [(0, "a", "get_weather", '{"city":"Oslo"}')],
        [(1, "b", "get_order", '{"order_id":7}')],
        [(0, None, None, "}")],
    )
    scene = Scene(turns=[turn, text("done")], tools=tools, form=form)
    stock = await scene.stock()
    ran.clear()
    played = Rehearsal(scene, speculators=[EarlyDispatch(force=True)])
    ours = await played.run()
    assert ours.tools == stock.tools
    assert played.verdicts("discarded") == ["voided"]
    assert ran.count(OSLO) == 1


def _announcing(*, error: Exception | None) -> Turn:
    """Return an attempt that calls for the weather, and fails or not."""
    turn = streamed([(0, "a", "get_weather", '{"city":"Oslo"}')], after="so")
    return replace(turn, generation_s=0.5, error=error)


@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_b74_fallback_announces_another_call(
    where: str, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B74 S9: the call of a failed attempt is invisible, and wasted once."""
    failing = _announcing(error=ConnectionError("gone"))
    spare = ScriptedModel(turns=[calls(SEVEN), text("done")], generation_s=1.0)
    scene = Scene(turns=[failing, text("done")], tools=tools)
    fallback = ModelFallbackMiddleware(spare)
    scene.middleware, scene.inner = ([fallback], []) if where == "outside" else ([], [fallback])
    played = Rehearsal(scene, speculators=[EarlyDispatch(force=True)])
    ours = await played.run()
    assert ours.tools == [("c0", "success", "order 7")]
    assert ran == [OSLO, SEVEN]
    assert played.report.wasted == 1
    assert played.report.hits == 0


@pytest.mark.parametrize("where", ["outside", "inside"])
async def test_b74_retry_announces_the_call_again(
    where: str, tools: list[BaseTool], ran: list[Any]
) -> None:
    """B74: a run that a failed attempt started answers the call of the retry once, or is wasted."""
    attempts = 0

    def script(messages: Any) -> Any:
        nonlocal attempts
        if len(messages) > 1:
            return text("done")
        attempts += 1
        return _announcing(error=ConnectionError("gone") if attempts == 1 else None)

    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    scene = Scene(turns=[text("unused")], tools=tools)
    scene.add(retry, where)
    played = Rehearsal(scene, speculators=[EarlyDispatch(force=True)])
    agent = scene.agent(played.spec, ScriptedModel(script=script))
    ours = await outcome(agent, HELLO, way="ainvoke")
    assert attempts == 2
    assert [content for _, _, content in ours.tools] == ["fine in Oslo"]
    assert played.report.hits == 1
    assert len(ran) == 1 + played.report.wasted
    assert played.report.wasted == (1 if where == "outside" else 0)
