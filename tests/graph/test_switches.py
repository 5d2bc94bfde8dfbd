"""Kill switches in whole agents: at once, for a tool or a tenant, and for nobody else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.tools import tool

from langchain_spectool import (
    EarlyDispatch,
    Guess,
    Policy,
    SelfModel,
    speculatable,
)
from langchain_spectool._core.budget import Budget, Budgets
from langchain_spectool.testing import calls, text
from tests.cases.harness import HELLO, THINKS_S, settle
from tests.graph.paying import TAKES_S, USAGE, A, Bodies, drafted, rehearsal, tenant

# --- switches


@pytest.mark.parametrize("switched", [{"tool": "look"}, {"tenant": "a"}], ids=str)
@pytest.mark.parametrize("at_s", [0.25, 0.75, 1.1])
async def test_a_switch_acts_within_a_turn(switched: dict[str, str], at_s: float) -> None:
    """While it flies, when it has landed, while its call waits: it is dropped, the call runs."""
    bodies = Bodies()

    @speculatable
    @tool
    async def look(q: str) -> str:
        """Look, for as long as the model writes and a little more."""
        bodies.ran.append(q)
        await asyncio.sleep(TAKES_S if at_s < THINKS_S else THINKS_S + TAKES_S)
        return q

    show = rehearsal(bodies, [A], tools=[look])
    loop = asyncio.get_running_loop()
    loop.call_later(at_s, lambda: show.spec.switch_off(**switched))
    ours = await show.agent.ainvoke(HELLO, tenant("a"))
    assert [message.content for message in ours["messages"]][-2:] == ["a", "done"]
    assert bodies.ran == ["a", "a"]
    assert show.report.discards == {"switched_off": 1}
    assert show.report.hits == 0
    await show.run(tenant("a"))
    assert show.verdicts("guess") == ["run", *(["switched_off"] if "tool" in switched else [])]
    assert ("switched_off" in show.report.idle) == ("tenant" in switched)
    show.spec.switch_on(**switched)
    await show.run(tenant("a"))
    assert show.verdicts("guess")[-1] == "run"
    assert show.report.hits == 1


async def test_a_switch_acts_between_threads() -> None:
    """Under `invoke` it acts at once, too: before the answer, the result is gone."""
    bodies = Bodies("invoke")
    show = rehearsal(bodies, [A])
    cue = show.oracle.wait

    def switch(messages: Any) -> None:
        cue(messages)
        settle()
        show.spec.switch_off(tool="look")

    show.agent = show.scene.agent(show.spec, show.scene.model(switch))
    ours = await show.run()
    assert ours.said == (await show.scene.stock()).said
    assert show.report.discards == {"switched_off": 1}
    assert show.report.hits == 0


async def test_a_switch_leaves_others_alone() -> None:
    """Another tool, another tenant, and calls that are already answered."""
    bodies = Bodies()
    find = ("find", {"q": "a"})
    show = rehearsal(
        bodies,
        [A, find],
        turns=[calls(A, find), text("done")],
        tools=[bodies.read("look"), bodies.read("find")],
    )
    show.spec.switch_off(tool="look")
    show.spec.switch_off(tenant="b")
    await show.run(tenant("a"))
    assert show.verdicts("guess") == ["switched_off", "run"]
    assert show.report.hits == 1


def test_a_switch_wants_a_name() -> None:
    """For everything there is the mode."""
    show = rehearsal(Bodies(), [A])
    for switch in (show.spec.switch_off, show.spec.switch_on):
        with pytest.raises(ValueError, match="name a `tool` or a `tenant`"):
            switch()


# --- what else must not be forgotten


async def test_nobody_is_asked_for_a_tenant_that_is_switched_off() -> None:
    """No draft model sees its messages any more."""
    show, draft = drafted(USAGE)
    show.spec.switch_off(tenant="a")
    await show.run(tenant("a"))
    assert draft.seen == []
    assert show.report.idle == {"switched_off": 2}
    await show.run(tenant("b"))
    assert len(draft.seen) == 2
    assert show.report.idle["switched_off"] == 2


@pytest.mark.parametrize("listens", [True, False])
async def test_no_fork_for_a_tenant_that_is_switched_off(listens: bool) -> None:
    """The model is asked again from what it wrote for one tenant, and not for the other."""

    class Noting(SelfModel):
        forked = 0

        async def afork(self, *args: Any) -> AsyncIterator[Guess]:
            self.forked += 1
            async for guess in super().afork(*args):
                yield guess

    source = Noting(from_partial=True)
    sources = [source, *([EarlyDispatch()] if listens else [])]
    show = rehearsal(Bodies(), turns=[text("word " * 100)], speculators=sources)
    show.spec.switch_off(tenant="a")
    for name, forks in (("a", 0), ("b", 1), ("a", 1)):
        async for _ in show.agent.astream(HELLO, tenant(name), stream_mode="messages"):
            pass
        assert source.forked == forks


@pytest.mark.parametrize("named", [7, True, 1.5, ("a", 1), ["a"]], ids=repr)
async def test_a_tenant_that_is_no_text_is_its_text(named: Any) -> None:
    """A switch and a budget find it; nothing fails."""
    budgets = Budgets(tenant=Budget(calls=1))
    policy = Policy(budgets=budgets, benefit=None)
    show = rehearsal(Bodies(), [A], tenant=lambda _: named, policy=policy)
    await show.run()
    await show.run()
    show.spec.switch_off(tenant=str(named))
    await show.run()
    assert show.verdicts("guess")[:2] == ["run", "over_budget"]
    assert "run" not in show.verdicts("guess")[2:]
    assert show.report.hits == 1
    assert show.report.errors == 0


# --- events


async def test_a_switch_for_an_unknown_tool_warns() -> None:
    """A misspelt name is told with the names there are, and the switch holds all the same."""
    show = rehearsal(Bodies(), [A])
    await show.run()
    with pytest.warns(RuntimeWarning, match="no tool 'lok' was seen so far; known are look"):
        show.spec.switch_off(tool="lok")
    show.spec.switch_off(tool="look")
    show.spec.switch_on(tool="look")
