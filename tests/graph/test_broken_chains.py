"""Chains that break: a link that is not called, refused, edited, kept or over a limit."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_spectool import Guess, Policy, Rules
from langchain_spectool.speculators.chain import Chain
from langchain_spectool.testing import calls
from tests.graph.chain_scene import DONE, FIND, GENERATION_S, ORDER, Scene, ahead, expected, forms

pytestmark = pytest.mark.usefixtures("nothing_left")

# --- broken chains


@forms
async def test_child_that_is_not_called(form: str) -> None:
    """The link came true, the guess did not: it is cancelled when the next answer commits."""
    scene = Scene(form, (calls(FIND), DONE), seconds={"find": 0.5, "order": 9.0})
    assert await scene.lasts_s() == pytest.approx(2 * GENERATION_S)
    assert scene.told("discarded") == [("unclaimed", "order", "chain")]
    await asyncio.sleep(0)
    assert scene.ends == ["find", "order cancelled"]
    assert scene.balanced()


@forms
async def test_link_that_is_not_called(form: str) -> None:
    """The tail goes at once, its bodies with it."""
    seconds = {"find": 0.5, "order": 0.5, "track": 9.0}
    scene = Scene(form, (calls(("write", {"q": "x"})), DONE), depth=3, seconds=seconds)
    began_s = asyncio.get_running_loop().time()
    await scene.lasts_s()
    gone = [e for e in scene.log.events if e.kind == "discarded"]
    assert [(e.verdict, e.tool) for e in gone[:3]] == [
        ("unclaimed", "find"),
        ("broken_link", "order"),
        ("broken_link", "track"),
    ]
    assert {e.at_s for e in gone[:3]} == {began_s + GENERATION_S}
    assert scene.ends[:3] == ["find", "order", "track cancelled"]
    assert scene.balanced()


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "stale": ({"fresh_for_s": 1.0}, "unclaimed"),  # too old already when the answer commits
    "changed": ({"freshness": lambda _: object()}, "changed"),
}


@forms
@pytest.mark.parametrize("why", REFUSALS)
async def test_refused_link(form: str, why: str) -> None:
    """What was guessed on a value that no call will have is stopped with it."""
    contract, reason = REFUSALS[why]
    seconds, contracts = {"find": 0.5, "order": 30.0}, {"find": contract}
    scene = Scene(form, (calls(FIND), DONE), rule=ahead, seconds=seconds, contracts=contracts)
    assert await scene.lasts_s() == pytest.approx(2 * GENERATION_S + 0.5)
    tail = ("broken_link", "order", "chain")
    assert scene.told("discarded") == [(reason, "find", "rules"), tail]
    assert scene.ends.count("order cancelled") == 1
    assert scene.ends.count("find") == 2
    assert scene.balanced()


async def test_edited_link() -> None:
    """The call was made, but a middleware changed its arguments."""

    @wrap_tool_call  # type: ignore[arg-type]
    async def edit(request: Any, handler: Any) -> Any:
        call = {**request.tool_call, "args": {"q": "Bob"}}
        return await handler(request.override(tool_call=call))

    scene = Scene(seconds={"find": 0.5, "order": 30.0}, turns=(calls(FIND), DONE))
    agent: Any = create_agent(
        scene.model, scene.spec.tools, middleware=[edit, scene.spec.middleware()]
    )
    assert await scene.lasts_s(agent) == pytest.approx(2 * GENERATION_S + 0.5)
    assert scene.told("discarded")[:2] == [
        ("mismatch", "find", "rules"),
        ("broken_link", "order", "chain"),
    ]
    assert "order cancelled" in scene.ends
    assert scene.answer["messages"][2].content == "find Bob"


@forms
async def test_write_in_between(form: str) -> None:
    """What a chain read before a write is never served after it."""
    written = calls(FIND, ("write", {"q": "x"}))
    scene = Scene(form, (written, calls(ORDER), DONE), rule=ahead)
    await scene.lasts_s()
    assert scene.told("discarded") == [("other_epoch", "order", "chain")]
    assert scene.ends == ["find", "order", "order"]  # read again, after the write
    assert ("hit", "order", "chain") not in scene.told("claim")


@forms
async def test_call_beside_its_link(form: str) -> None:
    """Calls of one answer: the child is found there, a turn earlier than expected."""
    scene = Scene(form, (calls(FIND, ORDER), DONE), seconds={"find": 0.5, "order": 1.0})
    assert await scene.lasts_s() == pytest.approx(2 * GENERATION_S)
    assert scene.told("claim") == [("hit", "find", "rules"), ("hit", "order", "chain")]


@forms
async def test_child_called_without_its_link(form: str) -> None:
    """The guess was right after all."""
    scene = Scene(form, (calls(ORDER), DONE), seconds={"find": 0.5, "order": 1.0})
    assert await scene.lasts_s() == pytest.approx(2 * GENERATION_S)
    assert scene.told("claim") == [("hit", "order", "chain")]
    assert scene.told("discarded")[0] == ("unclaimed", "find", "rules")


async def test_rival_guesses_with_one_sequel_run_it_once() -> None:
    """Whichever of them comes true, the call after it is there."""

    def rule(messages: Sequence[BaseMessage]) -> list[Guess]:
        if isinstance(messages[-1], HumanMessage):
            return [Guess(tool="find", args={"q": name}) for name in ("Ann", "Bob")]
        return [Guess(tool="order", args={"q": "7"})] if messages[-1].name == "find" else []

    turns = (calls(("find", {"q": "Bob"})), calls(("order", {"q": "7"})), DONE)
    scene = Scene(turns=turns, rule=rule, seconds={"find": 0.5, "order": 3.0})
    assert await scene.lasts_s() == pytest.approx(3 * GENERATION_S)
    assert scene.ends.count("order") == 1
    assert ("duplicate", "order", "chain") in scene.told("guess")
    assert scene.told("claim") == [("hit", "find", "rules"), ("hit", "order", "chain")]
    assert scene.balanced()


# --- contracts and limits


@forms
async def test_reuse_keeps_a_child_for_a_later_turn(form: str) -> None:
    """Like any flight of its tool that was not claimed."""
    middle = calls(("find", {"q": "Bob"}))
    contracts = {"order": {"reuse": "run"}}
    turns = (calls(FIND), middle, calls(ORDER), DONE)
    scene = Scene(form, turns, rule=ahead, contracts=contracts)
    await scene.lasts_s()
    assert scene.told("claim")[-1] == ("hit", "order", "chain")
    assert scene.ends.count("order") == 1


@forms
async def test_deterministic_child_answers_twice(form: str) -> None:
    """In its own turn and in a later one."""
    contracts = {"order": {"deterministic": True}}
    scene = Scene(form, (calls(FIND), calls(ORDER), calls(ORDER), DONE), contracts=contracts)
    assert await scene.lasts_s() == pytest.approx(4 * GENERATION_S)
    orders = [verdict for verdict, name, _ in scene.told("claim") if name == "order"]
    assert orders == ["hit", "shared"]
    assert scene.ends.count("order") == 1


@forms
async def test_limits_count_chained_runs(form: str) -> None:
    """Per turn, and in the air."""
    scene = Scene(form, policy=Policy(guesses_per_turn=1))
    await scene.lasts_s()
    assert ("turn_limit", "order", "chain") in scene.told("guess")
    scene = Scene(form, (calls(FIND), calls(FIND), DONE), policy=Policy(in_flight_per_run=1))
    scene.seconds = {"find": 0.5, "order": 30.0}
    await scene.lasts_s()
    assert ("run", "order", "chain") in scene.told("guess")


async def test_outputs_of_others_are_not_sent_abroad() -> None:
    """What a chain takes from an early result is untrusted as it would be a turn later."""
    scene = Scene(contracts={"order": {"audience": "external"}}, policy=Policy(allow_external=True))
    await scene.lasts_s()
    orders = [told for told in scene.told("guess") if told[1] == "order"]
    assert orders == [("untrusted", "order", "chain"), ("untrusted", "order", "rules")]


async def test_warm_up_is_the_inner_sources_own() -> None:
    """A chain's guesses can only be scored once they have run."""
    scene = Scene()
    inner = Rules(expected)
    inner.warm_up = 1  # type: ignore[attr-defined]
    scene = Scene(sources=[Chain(inner)])
    for _ in range(2):
        await scene.lasts_s()
    verdicts = [
        (verdict, name) for verdict, name, source in scene.told("guess") if source == "chain"
    ]
    assert verdicts[0][0] == "run"
