"""Chains of guesses in whole agents: what they save, what nobody notices, and what is asked."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from langchain_spectool import EarlyDispatch, Guess, Policy, Rules, Speculation, speculatable
from langchain_spectool.speculators.chain import Chain
from langchain_spectool.testing import ScriptedModel, calls
from tests.graph.chain_scene import (
    DONE,
    FIND,
    GENERATION_S,
    HELLO,
    ORDER,
    THREE,
    TWO,
    Scene,
    ahead,
    expected,
    forms,
    seen,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

# --- what it saves


@forms
@pytest.mark.parametrize(
    ("find_s", "order_s", "depth", "lasts_s"),
    [
        (0.5, 1.0, 2, 6.0),  # three answers; both tools are done before they are called
        (0.5, 3.0, 1, 7.0),  # begun with its own turn, the second is a second late
        (0.5, 3.0, 2, 6.0),  # begun a turn ahead, it is in time
        (0.5, 5.0, 2, 7.5),  # from 0.5 to 5.5 s, called at 4 s
        (1.5, 3.0, 2, 6.5),  # from 1.5 to 4.5 s, called at 4 s
        (2.5, 3.0, 2, 7.5),  # found at 2.5 s, after the answer: guessed in the next turn, as ever
    ],
)
async def test_time_is_saved_to_the_second(
    form: str, find_s: float, order_s: float, depth: int, lasts_s: float
) -> None:
    """As computed by hand, and the stock agent takes the sum of it all."""
    scene = Scene(form, depth=depth, seconds={"find": find_s, "order": order_s})
    assert await scene.lasts_s() == pytest.approx(lasts_s)
    assert await scene.stock_lasts_s() == pytest.approx(3 * GENERATION_S + find_s + order_s)


@forms
@pytest.mark.parametrize(("depth", "lasts_s"), [(2, 11.5), (3, 10.5)])
async def test_three_links(form: str, depth: int, lasts_s: float) -> None:
    """The last call, made at 6 s, began at 1 s with 3 links, with 2 as the second turn did."""
    seconds = {"find": 0.5, "order": 0.5, "track": 7.5}
    scene = Scene(form, THREE, depth=depth, seconds=seconds)
    assert await scene.lasts_s() == pytest.approx(lasts_s)
    assert scene.told("claim") == [
        ("hit", "find", "rules"),
        ("hit", "order", "chain"),
        ("joined", "track", "chain"),
    ]
    assert await scene.stock_lasts_s() == pytest.approx(4 * GENERATION_S + 8.5)
    assert scene.balanced()


async def test_chain_goes_on_from_what_lands_a_turn_later() -> None:
    """The second call lands at 3 s, in the second turn; the third begins then: 3 + 7.5 + 2."""
    seconds = {"find": 0.5, "order": 2.5, "track": 7.5}
    scene = Scene(turns=THREE, rule=ahead, seconds=seconds)
    assert await scene.lasts_s() == pytest.approx(12.5)
    assert scene.told("claim")[-1] == ("joined", "track", "chain")
    assert scene.balanced()


@forms
async def test_confidences_multiply(form: str) -> None:
    """Along the chain, and the gate for confidence sees the product."""
    scene = Scene(form, THREE, depth=3, seconds={"find": 0.1, "order": 0.1})
    await scene.lasts_s()
    heard = {(e.tool, e.source): e.confidence for e in scene.log.events if e.kind == "landed"}
    assert heard["find", "rules"] == pytest.approx(0.8)
    assert heard["order", "chain"] == pytest.approx(0.64)
    assert heard["track", "chain"] == pytest.approx(0.512)
    gated = Scene(form, THREE, depth=3, policy=Policy(min_confidence=0.6))
    await gated.lasts_s()
    verdicts = [
        (verdict, tool) for verdict, tool, source in gated.told("guess") if source == "chain"
    ]
    assert verdicts[:2] == [("run", "order"), ("unsure", "track")]


@forms
async def test_report_counts_it_like_any_other(form: str) -> None:
    """Hits, hidden seconds and what was scored, per source too."""
    scene = Scene(form, seconds={"find": 0.5, "order": 3.0})
    await scene.lasts_s()
    report = scene.spec.report()
    assert (report.hits, report.misses, report.errors) == (2, 0, 0)
    assert report.hidden_s == pytest.approx(3.5)
    assert report.saved_s == pytest.approx(3.5)
    assert scene.told("landed")[:2] == [("landed", "find", "rules"), ("landed", "order", "chain")]
    assert scene.told("claim") == [("hit", "find", "rules"), ("hit", "order", "chain")]


async def test_early_runs_of_other_sources_are_gone_on_from() -> None:
    """The main model's own stream closes a call; what comes after it is guessed at once."""
    chain = Chain(Rules(lambda messages: expected(messages) if len(messages) > 1 else []))
    scene = Scene(seconds={"find": 0.1, "order": 3.0}, sources=[EarlyDispatch(force=True), chain])
    scene.turns = [calls(FIND, ("write", {"q": "x" * 9})), *TWO[1:]]
    await scene.lasts_s()
    assert ("landed", "find", "early_dispatch") in scene.told("landed")
    assert ("run", "order", "chain") in scene.told("guess")
    # The write of the same turn came after what was read ahead.
    assert ("other_epoch", "order", "chain") in scene.told("discarded")
    assert scene.balanced()


# --- what nobody notices


@forms
async def test_messages_are_stocks(form: str) -> None:
    """What the model is shown and what the graph holds: nothing of a chain is in them."""
    scene = Scene(form, THREE, depth=3, seconds={"find": 0.1, "order": 0.1})
    await scene.lasts_s()
    ours, shown = scene.answer["messages"], [seen(asked) for asked in scene.model.seen]
    scene.model.seen.clear()
    await scene.stock_lasts_s()
    assert seen(ours) == seen(scene.answer["messages"])
    assert shown == [seen(asked) for asked in scene.model.seen]


@forms
async def test_shadow_never_chains(form: str) -> None:
    """Nothing runs, so there is no result to go on from."""
    scene = Scene(form, policy=Policy(mode="shadow"))
    await scene.lasts_s()
    assert all(source == "rules" for _, _, source in scene.told("guess"))
    assert scene.ends == ["find", "order"]
    assert scene.told("landed") == []


# --- what the inner source is asked


async def test_asked_is_the_conversation_as_it_would_go_on() -> None:
    """Each call of the chain with its result, the oldest first; the agent's own list stays."""
    scene = Scene(turns=THREE, depth=3, seconds={"find": 0.1, "order": 0.1})
    await scene.lasts_s()
    first, second, third = scene.asked[:3]
    assert first == HELLO["messages"]
    assert [message.type for message in third] == ["human", "ai", "tool", "ai", "tool"]
    assert second[:1] == third[:1] == first
    for asked, places in ((second, (1,)), (third, (1, 3))):
        for place, (name, args) in zip(places, (FIND, ORDER), strict=False):
            call, result = asked[place], asked[place + 1]
            assert isinstance(call, AIMessage)
            assert isinstance(result, ToolMessage)
            assert [(each["name"], each["args"]) for each in call.tool_calls] == [(name, args)]
            assert result.tool_call_id == call.tool_calls[0]["id"]
            assert (result.name, result.content) == (name, f"{name} {args['q']}")


class Odd:
    """Something that is no JSON."""

    def __str__(self) -> str:
        return "odd"


def _labelled(value: object) -> str:
    """Return a label without addresses, which differ between workers."""
    return re.sub(r"<.+? object at .+?>", "odd", repr(value))


VALUES: list[Any] = [
    "text",
    "",
    7,
    None,
    1.5,
    True,
    {"number": 5, "name": "Änn"},
    {"odd": Odd()},
    [1, "two", {"three": 3}],
    ["one", "two"],
    [],
    [{"type": "text", "text": "a block"}],
    [{"type": "unheard-of"}],
    (1, 2),
    (),
    ("a", "b"),
    ({"type": "text", "text": "a block"},),
    (Odd(),),
    {1},
    b"bytes",
    Odd(),
    float("nan"),
    "\ud800",
]


@pytest.mark.parametrize("artifact", [False, True])
@pytest.mark.parametrize("value", VALUES, ids=_labelled)
async def test_result_is_shown_as_stock_shows_it(value: Any, artifact: bool) -> None:
    """Whatever a tool returns: text as it is, blocks as they are, else JSON, else `str`."""
    kind: Any = "content_and_artifact" if artifact else "content"

    @speculatable
    @tool(response_format=kind)
    async def fetch(q: str) -> Any:
        """Fetch."""
        return (value, Odd()) if artifact else value

    shown: list[BaseMessage] = []

    def rule(messages: Sequence[BaseMessage]) -> list[Guess]:
        shown.append(messages[-1])
        fresh = isinstance(messages[-1], HumanMessage)
        return [Guess(tool="fetch", args={"q": "a"})] if fresh else []

    scene = Scene(rule=rule)
    script = [calls(("fetch", {"q": "a"})), DONE]
    model = ScriptedModel(turns=script, generation_s=1)
    spec = Speculation([fetch], speculators=[Chain(Rules(rule))], observers=[scene.log])
    agent: Any = create_agent(model, [fetch], middleware=[spec.middleware()])
    answer = await agent.ainvoke(HELLO)
    _, early, *_ = shown
    _, _, late, _ = answer["messages"]
    assert isinstance(early, ToolMessage)
    assert (early.content, early.name) == (late.content, "fetch")
    assert scene.told("claim") == [("hit", "fetch", "rules")]


@forms
async def test_failing_source_is_a_miss_and_an_event(form: str) -> None:
    """What it raises on a result that surprises it reaches nobody."""

    def rule(messages: Sequence[BaseMessage]) -> list[Guess]:
        if messages[-1].type != "tool":
            return expected(messages)
        raise LookupError("no such order")

    scene = Scene(form, rule=rule)
    assert await scene.lasts_s() == pytest.approx(3 * GENERATION_S + 1.0)
    errors = [(e.verdict, e.detail) for e in scene.log.events if e.kind == "error"]
    assert errors[0] == ("LookupError", "no such order")
    assert scene.spec.report().errors == len(errors) == 3  # the chain's, and two turns' own
    assert scene.told("claim")[0] == ("hit", "find", "rules")
