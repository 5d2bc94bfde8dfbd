"""Speculation that pays: budgets, rates, warm-up, rests, switches and holdouts, in whole agents."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from langchain_spectool import (
    Chain,
    DraftModel,
    EarlyDispatch,
    Ensemble,
    Guess,
    Policy,
    SelfModel,
    TurnRequest,
    speculatable,
)
from langchain_spectool._core.benefit import BenefitGate
from langchain_spectool._core.budget import Budget, Budgets
from langchain_spectool._core.prices import Price
from langchain_spectool.graph import model_turn
from langchain_spectool.telemetry.arms import held_out
from langchain_spectool.testing import ScriptedModel, Turn, calls, text
from tests.cases.harness import HELLO, THINKS_S, Outcome, Rehearsal, Scene, Way, settle

TAKES_S = 0.5
"""Virtual seconds that `look` and `find` take; in threads they take none."""
USAGE = {"input_tokens": 900, "output_tokens": 100, "total_tokens": 1000}
PRICES = {
    "scripted": Price(input_usd_per_million=1.0, output_usd_per_million=1.0),
    "small": Price(input_usd_per_million=0.5, output_usd_per_million=0.5),
}
A, B = ("look", {"q": "a"}), ("look", {"q": "b"})
ONE_CALL = (calls(A), text("done"))
STOCK_S = 2 * THINKS_S + TAKES_S
"""Two turns of the model and one call of `look`."""
ways = pytest.mark.parametrize("way", ["ainvoke", "invoke"])


class Limited(Exception):  # noqa: N818 - stands for a client's own error
    """What a client raises for a 429 with `Retry-After: 60`."""

    def __init__(self) -> None:
        super().__init__("HTTP 429")
        self.retry_after = 60


class Bodies:
    """Tools that note which of their bodies ran, in the order they began."""

    def __init__(self, way: Way = "ainvoke") -> None:
        self.way = way
        self.ran: list[str] = []
        self.limits: set[str] = set()
        """Arguments for which the service is too busy."""

    def read(self, name: str, **contract: Any) -> BaseTool:
        """Return a declared tool; it takes `TAKES_S`, or no time in a thread."""

        def body(q: str) -> str:
            self.ran.append(f"{name} {q}")
            if q in self.limits:
                raise Limited
            return q

        async def abody(q: str) -> str:
            self.ran.append(f"{name} {q}")
            await asyncio.sleep(TAKES_S)
            if q in self.limits:
                raise Limited
            return q

        body.__name__ = abody.__name__ = name
        made = tool(abody if self.way == "ainvoke" else body, description="Read something.")
        return speculatable(made, **contract)


def rehearsal(
    bodies: Bodies,
    *guesses: Sequence[tuple[str, Mapping[str, Any]]],
    turns: Sequence[Turn | AIMessage] = ONE_CALL,
    tools: Sequence[BaseTool] = (),
    **options: Any,
) -> Rehearsal:
    """Return an agent with `look`, or other tools, whose oracle makes `guesses` turn by turn."""
    scene = Scene(turns=turns, tools=tools or [bodies.read("look")], way=bodies.way)
    return Rehearsal(scene, *guesses, **options)


async def timed(agent: Any, config: Any = None, inputs: Any = HELLO) -> tuple[float, Any]:
    """Run and return the virtual seconds it took, and the state."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    state = await agent.ainvoke(inputs, config)
    return round(loop.time() - began_s, 6), state


def tenant(name: str) -> dict[str, Any]:
    """Return the config of a run for a tenant."""
    return {"configurable": {"tenant": name}}


def watched(show: Rehearsal) -> int:
    """Return how many runs are still followed."""
    watch = show.spec._opener._watch
    assert watch is not None
    return len(watch._runs)


class Fickle:
    """A source that guesses `q` as long as it is told to, and counts how often it was asked."""

    name = "fickle"
    samples = 1
    timeout_s = 30.0

    def __init__(self, q: str, confidence: float = 1.0, **fields: Any) -> None:
        self.q = q
        self.confidence = confidence
        self.asked = 0
        self.__dict__.update(fields)

    def guess(self, request: TurnRequest, sample: int) -> Sequence[Guess]:
        # Only of the first turn, which is the one with a call.
        if any(isinstance(message, AIMessage) for message in request.messages):
            return ()
        self.asked += 1
        return [Guess(tool="look", args={"q": self.q}, confidence=self.confidence)]

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        for guess in self.guess(request, sample):
            yield guess


# --- budgets


@ways
async def test_a_turn_has_its_budget(way: Way) -> None:
    """One early run a turn: the second guess of each is refused, the calls are answered alike."""
    bodies = Bodies(way)
    twice = calls(A, B)
    show = rehearsal(
        bodies,
        [A, B],
        [A, B],
        turns=[twice, twice, text("done")],
        policy=Policy(budgets=Budgets(turn=Budget(calls=1))),
    )
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert show.verdicts("guess") == ["run", "over_budget"] * 2
    assert show.report.hits == 2


@ways
async def test_a_run_has_its_budget(way: Way) -> None:
    """It lasts for all turns of a run and starts anew with the next one."""
    bodies = Bodies(way)
    show = rehearsal(
        bodies,
        [A],
        [A],
        turns=[calls(A), calls(A), text("done")],
        policy=Policy(budgets=Budgets(run=Budget(calls=1))),
    )
    for _ in range(3):
        await show.run()
        assert watched(show) == 0
    assert show.verdicts("guess") == ["run", "over_budget"] * 3


@ways
async def test_a_tenant_has_its_budget_over_all_runs(way: Way) -> None:
    """Another tenant has its own, and those of whom nobody spoke share one."""
    show = rehearsal(Bodies(way), [A], policy=Policy(budgets=Budgets(tenant=Budget(calls=1))))
    for config in (tenant("a"), tenant("a"), tenant("b"), None, None):
        await show.run(config)
    assert show.verdicts("guess") == ["run", "over_budget", "run", "run", "over_budget"]


async def test_a_process_has_its_budget_and_gets_it_again() -> None:
    """For all tenants together; after `every_s` it is full again."""
    policy = Policy(budgets=Budgets(process=Budget(calls=2, every_s=60)))
    show = rehearsal(Bodies(), [A], policy=policy)
    for wait_s in (0, 0, 0, 60, 0, 0):
        await asyncio.sleep(wait_s)
        await show.run(tenant(f"at {wait_s}"))
    assert show.verdicts("guess") == ["run", "run", "over_budget"] * 2


async def test_dollars_are_counted_whether_a_guess_was_right_or_not() -> None:
    """Three wrong guesses at a cent each, and there is nothing left for a right one."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        [("look", {"q": str(number)}) for number in range(4)],
        tools=[bodies.read("look", cost_usd=0.01)],
        policy=Policy(budgets=Budgets(process=Budget(usd=0.03)), benefit=None),
    )
    await show.run()
    await show.run()
    assert show.verdicts("guess") == ["run"] * 3 + ["over_budget"] * 5
    assert len(bodies.ran) == 3 + 2


async def test_seconds_of_abandoned_runs_are_counted() -> None:
    """A wrong guess that is cancelled after a second has used a second up."""
    bodies = Bodies()

    @speculatable
    @tool
    async def slow(q: str) -> str:
        """Take long."""
        await asyncio.sleep(100)
        return q

    guesses = [("slow", {"q": "a"})]
    show = rehearsal(
        bodies,
        guesses,
        turns=[text("done")],
        tools=[slow],
        policy=Policy(budgets=Budgets(process=Budget(tool_s=2.5)), benefit=None),
    )
    for _ in range(4):
        await show.run()
    # The usual second is reserved each time; one was used, for as long as the model wrote.
    assert show.verdicts("guess") == ["run", "run", "over_budget", "over_budget"]
    assert show.report.wasted_s == pytest.approx(2 * THINKS_S)


def drafted(usage: Any, **budgets: Budget) -> tuple[Rehearsal, ScriptedModel]:
    """Return an agent with a draft model that is always right."""
    draft = ScriptedModel(
        turns=ONE_CALL, generation_s=0.1, model_name="small", usage_metadata=usage
    )
    policy = Policy(budgets=Budgets(**budgets))
    options = {"speculators": [DraftModel(draft)], "policy": policy, "prices": PRICES}
    return rehearsal(Bodies(), **options), draft


@pytest.mark.parametrize(
    "budget", [Budget(tokens=2500), Budget(usd=0.00125), Budget(calls=3)], ids=str
)
async def test_a_draft_model_is_asked_while_it_can_be_paid(budget: Budget) -> None:
    """Two requests of a thousand tokens each; a third, or its call, would be over the budget."""
    show, draft = drafted(USAGE, process=budget)
    ours = await show.run()
    before = len(draft.seen)
    seconds, _ = await timed(show.agent)
    assert before == 2
    assert len(draft.seen) == 2
    assert seconds == STOCK_S
    assert ours.said == (await show.scene.stock()).said
    refused = [event for event in show.events("guess") if event.verdict == "over_budget"]
    assert [(event.source, event.tool) for event in refused] == [("draft_model", "")] * 2
    assert show.report.usage == {"draft_model": (1800, 200)}


async def test_unknown_usage_stays_charged() -> None:
    """A draft that does not report its tokens uses up what was reserved for it."""
    show, draft = drafted(None, process=Budget(tokens=3 * 1100))
    await show.run()
    await show.run()
    assert len(draft.seen) == 3
    assert show.report.verdicts["over_budget"] == 1


GROUPS: dict[str, Callable[[Any], Any]] = {
    "ensemble": lambda draft: Ensemble(draft, EarlyDispatch()),
    "chain": lambda draft: Chain(draft, depth=2),
    "chain of an ensemble": lambda draft: Chain(Ensemble(draft, EarlyDispatch()), depth=2),
    "ensemble of ensembles": lambda draft: Ensemble(Ensemble(Fickle("b"), draft), EarlyDispatch()),
    "all of them": lambda draft: Chain(Ensemble(Ensemble(Fickle("b"), draft)), depth=2),
}


def grouped(kind: str, usage: Any, budget: Budget) -> tuple[Rehearsal, ScriptedModel]:
    """Return an agent whose draft model is asked for by a group."""
    draft = ScriptedModel(
        turns=ONE_CALL, generation_s=0.1, model_name="small", usage_metadata=usage
    )
    options = {"speculators": [GROUPS[kind](DraftModel(draft))], "prices": PRICES}
    policy = Policy(budgets=Budgets(process=budget), benefit=None)
    return rehearsal(Bodies(), **options, policy=policy), draft


@pytest.mark.parametrize("empty", [Budget(calls=0), Budget(tokens=0), Budget(usd=0)], ids=str)
@pytest.mark.parametrize("kind", GROUPS)
async def test_an_empty_budget_asks_nobody_in_a_group(kind: str, empty: Budget) -> None:
    """Whoever asks a model pays for it, however deep it stands."""
    show, draft = grouped(kind, USAGE, empty)
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert draft.seen == []
    refused = [e.source for e in show.events("guess") if e.verdict == "over_budget" and not e.tool]
    assert refused[0] == "draft_model"
    assert set(refused) == {"draft_model"}


@pytest.mark.parametrize("kind", ["ensemble", "ensemble of ensembles"])
async def test_unknown_usage_in_a_group_stays_charged(kind: str) -> None:
    """What a member does not report is what was reserved for it; after three there is no more."""
    show, draft = grouped(kind, None, Budget(tokens=3 * 1100))
    for _ in range(3):
        await show.run()
    assert len(draft.seen) == 3


@pytest.mark.parametrize("kind", ["ensemble", "ensemble of ensembles"])
async def test_known_usage_in_a_group_is_charged_once(kind: str) -> None:
    """As for a draft model alone: two requests of a thousand tokens fit, a third does not."""
    show, draft = grouped(kind, USAGE, Budget(tokens=2500))
    for _ in range(3):
        await show.run()
    assert len(draft.seen) == 2
    assert show.report.usage == {"draft_model": (1800, 200)}


@pytest.mark.parametrize("dear_first", [True, False])
async def test_of_two_drafts_of_one_label_the_dear_one_is_charged(dear_first: bool) -> None:
    """Which of the two is asked cannot be told by the label, so the dearer price is reserved."""
    names = ["scripted", "small"] if dear_first else ["small", "scripted"]
    drafts = [
        ScriptedModel(turns=ONE_CALL, generation_s=0.1, model_name=name, usage_metadata=USAGE)
        for name in names
    ]
    # Both at a thousand tokens and a dollar a million: one turn of two requests, and no more.
    policy = Policy(budgets=Budgets(process=Budget(usd=2.05e-3)), benefit=None)
    options = {"speculators": [*map(DraftModel, drafts)], "prices": PRICES, "policy": policy}
    show = rehearsal(Bodies(), **options)
    assert show.spec.team.models == {"draft_model": "scripted"}
    await show.run()
    await show.run()
    assert sum(len(draft.seen) for draft in drafts) <= 2


async def test_a_draft_that_is_cut_off_has_its_price() -> None:
    """The model answers before the draft does: the request was sent, and is charged."""
    show, draft = drafted(USAGE, process=Budget(tokens=2500))
    draft.generation_s = 10 * THINKS_S
    await show.run()
    assert len(draft.seen) == 2
    await show.run()
    assert len(draft.seen) == 2


# --- rates


@ways
async def test_a_limited_guess_stops_guesses_on_its_tool_only(way: Way) -> None:
    """A 429 nobody asked for: `look` is left alone from then on, `find` is not, calls run on."""
    bodies = Bodies(way)
    bodies.limits.add("b")
    find = ("find", {"q": "a"})
    show = rehearsal(
        bodies,
        [B],
        [A, find],
        turns=[calls(find), calls(A, find), text("done")],
        tools=[bodies.read("look"), bodies.read("find")],
        policy=Policy(benefit=BenefitGate(usd_per_tool_s=0)),  # a thread's turn takes no time
    )

    def landed(messages: Any) -> None:
        show.oracle.wait(messages)
        settle()

    show.agent = show.scene.agent(show.spec, show.scene.model(landed))
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert show.verdicts("landed") == ["failed", "landed"]
    assert show.verdicts("guess") == ["run", "rate_limited", "run"]


async def test_guesses_come_back_when_the_service_does() -> None:
    """Sixty virtual seconds after the 429; the committed call meanwhile takes its usual time."""
    bodies = Bodies()
    bodies.limits.add("b")
    show = rehearsal(bodies, [B, A])
    first_s, first = await timed(show.agent)
    bodies.limits.clear()
    second_s, _ = await timed(show.agent)
    await asyncio.sleep(60)
    third_s, _ = await timed(show.agent)
    assert first["messages"][-2].content == "a"
    assert (first_s, second_s, third_s) == (STOCK_S - TAKES_S, STOCK_S, STOCK_S - TAKES_S)
    assert show.verdicts("guess") == ["run", "run", "rate_limited", "rate_limited", "run", "run"]


async def test_a_limited_committed_call_fails_as_in_stock() -> None:
    """A 429 of the model's own call is the agent's affair, whatever was guessed."""
    bodies = Bodies()
    bodies.limits.add("a")
    show = rehearsal(bodies, [A])
    ours, stock = await show.run(), await show.scene.stock()
    assert ours.said == stock.said
    assert ours.error == (Limited, "HTTP 429")


async def test_guesses_leave_room_for_calls() -> None:
    """Four calls a minute: committed calls use them up, and are never held back themselves."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        [B],
        turns=[calls(A, A, A, A, A), text("done")],
        tools=[bodies.read("look", calls_per_minute=4)],
    )
    times = [(await timed(show.agent))[0] for _ in range(2)]
    await asyncio.sleep(60)
    await show.run()
    assert times == [STOCK_S, STOCK_S]
    assert show.verdicts("guess") == ["run", "rate_limited", "run"]


# --- warming up


@pytest.mark.parametrize(("gate", "needed"), [(None, 3), (1, 1), (0, 0)])
async def test_a_source_is_scored_before_its_guesses_run(gate: int | None, needed: int) -> None:
    """As often as it asks for, or as the gate says; what is scored is in the report."""
    bodies = Bodies()
    source = Fickle("a", warm_up=3)
    policy = Policy(benefit=BenefitGate(warm_up=gate))
    show = rehearsal(bodies, speculators=[source], policy=policy)
    times = [(await timed(show.agent))[0] for _ in range(5)]
    assert times == [STOCK_S] * needed + [STOCK_S - TAKES_S] * (5 - needed)
    assert show.verdicts("guess") == ["warming_up"] * needed + ["run"] * (5 - needed)
    assert show.verdicts("scored") == ["right"] * 5
    assert show.report.sources["fickle"].precision == 1.0
    assert len(bodies.ran) == 5


# --- what is worth it


async def test_a_dear_tool_runs_early_only_for_a_good_source() -> None:
    """Five cents a call: a source that is often wrong costs nothing, one that is right helps."""
    hits: dict[str, list[int]] = {}
    for name, right in (("poor", {3, 9, 15}), ("good", set(range(20)))):
        bodies, source = Bodies(), Fickle("b", confidence=0.3)
        show = rehearsal(
            bodies,
            speculators=[source],
            tools=[bodies.read("look", cost_usd=0.05)],
        )
        for number in range(20):
            source.q = "a" if number in right else "b"
            seconds, _ = await timed(show.agent)
            if seconds < STOCK_S:
                hits.setdefault(name, []).append(number)
        assert show.report.sources["fickle"].right == len(right)
        assert show.report.wasted == 0
        assert len(bodies.ran) == 20
    assert "poor" not in hits
    assert hits["good"][-10:] == [*range(10, 20)]


async def test_without_a_gate_a_dear_guess_runs() -> None:
    """Who says that every guess is worth it has it so."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        speculators=[Fickle("b", confidence=0.01)],
        tools=[bodies.read("look", cost_usd=5)],
        policy=Policy(benefit=None),
    )
    await show.run()
    assert show.verdicts("guess") == ["run"]
    assert bodies.ran == ["look b", "look a"]


# --- backing off


async def test_a_source_that_is_always_wrong_is_asked_ever_more_seldom() -> None:
    """Probes come at doubled distances, and are only scored."""
    source = Fickle("b")
    policy = Policy(benefit=BenefitGate(patience=5))
    show = rehearsal(Bodies(), turns=[text("done")], speculators=[source], policy=policy)
    asked: list[int] = []
    for number in range(70):
        before = source.asked
        await show.run()
        asked += [number] if source.asked > before else []
    assert asked == [0, 1, 2, 3, 4, 9, 18, 35, 68]
    assert show.verdicts("guess") == ["run"] * 5 + ["backing_off"] * 4
    assert show.report.wasted == 5


async def test_a_source_that_recovers_is_used_again() -> None:
    """After some right guesses that were only scored."""
    source = Fickle("b")
    policy = Policy(benefit=BenefitGate(patience=5))
    show = rehearsal(Bodies(), speculators=[source], policy=policy)
    for _ in range(5):
        await show.run()
    source.q = "a"
    times = [(await timed(show.agent))[0] for _ in range(25)]
    slow = times.count(STOCK_S)
    assert times == [STOCK_S] * slow + [STOCK_S - TAKES_S] * (25 - slow)
    assert 0 < slow < 20
    assert show.report.wasted == 5
    assert show.report.hits == 25 - slow


@pytest.mark.parametrize(("least", "runs"), [(0.0, 30), (0.05, 20), (0.9, 20)])
async def test_a_low_hit_rate_switches_a_source_off_on_that_tool(least: float, runs: int) -> None:
    """After twenty guesses, unless the least rate is none; another source goes on."""
    source, other = Fickle("b"), Fickle("a", name="steady")
    gate = BenefitGate(min_hit_rate=least, usd_per_tool_s=0)
    show = rehearsal(Bodies(), speculators=[source, other], policy=Policy(benefit=gate))
    for _ in range(30):
        await show.run()
    verdicts = [event.verdict for event in show.events("guess") if event.source == "fickle"]
    assert verdicts.count("run") == runs
    assert show.report.hits == 30


async def test_never_slower_than_stock_whatever_a_source_says() -> None:
    """Wrong, dear, limited or refused: the run takes what stock takes, and says the same."""
    bodies = Bodies()
    bodies.limits.add("c")
    wrong = [("look", {"q": q}) for q in "bcdef"]
    show = rehearsal(
        bodies,
        wrong,
        wrong,
        tools=[bodies.read("look", cost_usd=0.01, calls_per_minute=3)],
        policy=Policy(budgets=Budgets(run=Budget(calls=2))),
    )
    stock_s, stock = await timed(show.scene.agent())
    for _ in range(3):
        seconds, ours = await timed(show.agent)
        assert seconds == stock_s == STOCK_S
        assert [m.content for m in ours["messages"]] == [m.content for m in stock["messages"]]


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


# --- holdout


def arms(seed: int, runs: int) -> list[bool]:
    """Return which of the first runs are held out, at a share of one half."""
    return [held_out(seed, number, 0.5) for number in range(1, runs + 1)]


async def test_runs_held_out_are_stock() -> None:
    """Nobody is asked, nothing runs early, and each takes what stock takes."""
    bodies, source = Bodies(), Fickle("a")
    policy = Policy(holdout=0.5, seed=3)
    show = rehearsal(bodies, speculators=[source], policy=policy, prices=PRICES)
    expected = arms(3, 12)
    for held in expected:
        asked, events = source.asked, len(show.events("guess"))
        seconds, _ = await timed(show.agent)
        assert seconds == (STOCK_S if held else STOCK_S - TAKES_S)
        assert (source.asked == asked) is held
        assert (len(show.events("guess")) == events) is held
        assert watched(show) == 0
    assert {True, False} == set(expected)
    assert show.report.idle["held_out"] == 2 * sum(expected)
    assert show.report.turns == 24
    assert show.report.hits == expected.count(False)


def priced(source: Any, policy: Policy, **contract: Any) -> Rehearsal:
    """Return an agent whose model and tool have a price."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        speculators=[source],
        tools=[bodies.read("look", **contract)],
        policy=policy,
        prices=PRICES,
    )
    model = show.scene.model()
    model.usage_metadata = USAGE
    show.agent = show.scene.agent(show.spec, model)
    return show


async def test_both_arms_are_compared() -> None:
    """Seconds end to end and per turn, and dollars per success, as they were."""
    show = priced(Fickle("a"), Policy(holdout=0.5, seed=3), cost_usd=0.004)
    expected = arms(3, 44)
    for _ in expected:
        await show.run()
    seen = show.spec.report().comparison
    assert (seen.holdout.n, seen.treated.n) == (sum(expected), 44 - sum(expected))
    assert (seen.holdout.p50_s, seen.treated.p50_s) == (STOCK_S, STOCK_S - TAKES_S)
    assert (seen.holdout.p95_s, seen.treated.p95_s) == (STOCK_S, STOCK_S - TAKES_S)
    assert (seen.holdout.turn_s, seen.treated.turn_s) == (STOCK_S / 2, (STOCK_S - TAKES_S) / 2)
    for arm in (seen.holdout, seen.treated):
        assert arm.cost_per_success_usd == pytest.approx(0.004 + 2 * 1000 / 1e6)


async def test_what_speculation_costs_is_part_of_a_treated_run() -> None:
    """Wrong early runs, and the tokens of drafts."""
    policy = Policy(holdout=1e-9, benefit=None)
    show = priced(Fickle("b"), policy, cost_usd=0.004)
    await show.run()
    assert show.spec.report().comparison.treated.cost_per_success_usd == pytest.approx(
        2 * 0.004 + 2 * 1000 / 1e6
    )
    draft = ScriptedModel(
        turns=ONE_CALL, generation_s=0.1, model_name="small", usage_metadata=USAGE
    )
    show = priced(DraftModel(draft), policy)
    await show.run()
    assert show.spec.report().comparison.treated.cost_per_success_usd == pytest.approx(
        2 * 1000 / 1e6 + 2 * 1000 / 2e6
    )


async def test_runs_of_unknown_price_have_no_cost() -> None:
    """Without prices there are seconds, and no dollars."""
    show = rehearsal(Bodies(), [A], policy=Policy(holdout=1.0))
    await show.run()
    seen = show.spec.report().comparison
    assert (seen.holdout.n, seen.holdout.cost_per_success_usd) == (1, None)


@ways
async def test_a_failing_run_costs_but_is_no_success(way: Way) -> None:
    """What was spent on it is spent on the successes of the others."""

    @tool
    def boom(q: str) -> str:
        """Fail."""
        raise ToolException(q)

    bodies = Bodies(way)
    fails = [False, True, False]
    scene = Scene(turns=ONE_CALL, tools=[boom, bodies.read("look")], way=way)
    show = Rehearsal(scene, speculators=[Fickle("a")], policy=Policy(holdout=1.0), prices=PRICES)
    for failing in fails:
        model = ScriptedModel(
            turns=[calls(("boom", {"q": "x"})) if failing else calls(A), text("done")],
            usage_metadata=USAGE,
        )
        agent = scene.agent(show.spec, model)
        ended = await _outcome(agent, way)
        assert (ended.error is not None) is failing
        assert watched(show) == 0
    seen = show.spec.report().comparison.holdout
    assert seen.n == 3
    assert seen.cost_per_success_usd == pytest.approx((2 + 1 + 2) * 0.001 / 2)


async def _outcome(agent: Any, way: Way, config: Any = None) -> Outcome:
    try:
        if way == "ainvoke":
            await agent.ainvoke(HELLO, config)
        else:
            await asyncio.to_thread(agent.invoke, HELLO, config)
    except ToolException as error:
        return Outcome(error=(type(error), str(error)))
    return Outcome()


@ways
async def test_a_run_that_waits_for_a_human_is_a_success_and_its_sequel_a_run(way: Way) -> None:
    """It raised nothing: it goes on later, as a run of its own."""

    @tool
    def ask(q: str) -> str:
        """Ask a human."""
        return str(interrupt(q))

    scene = Scene(
        turns=[calls(("ask", {"q": "x"})), text("done")],
        tools=[ask, Bodies(way).read("look")],
        way=way,
        options={"checkpointer": InMemorySaver()},
    )
    show = Rehearsal(scene, speculators=[Fickle("a")], policy=Policy(holdout=1.0), prices=PRICES)
    model = ScriptedModel(turns=scene.turns, usage_metadata=USAGE)
    agent = scene.agent(show.spec, model)
    await _outcome(agent, way, {"configurable": {"thread_id": "1"}})
    assert watched(show) == 0
    seen = show.spec.report().comparison.holdout
    assert (seen.n, seen.cost_per_success_usd) == (1, pytest.approx(0.001))


@pytest.mark.parametrize("mode", ["updates", "messages", "values"])
async def test_a_stream_that_is_closed_is_no_failure(mode: str) -> None:
    """Whoever has seen enough of an answer leaves: that says nothing against the run."""
    show = rehearsal(Bodies(), [A], policy=Policy(holdout=1e-9), prices=PRICES)
    async with aclosing(show.agent.astream(HELLO, stream_mode=mode)) as stream:
        async for _ in stream:
            if show.events("guess"):
                break
    (run,) = show.spec._tally.arms._kept["treated"]
    assert run.success
    assert watched(show) == 0


def test_a_blocking_stream_that_is_closed_is_no_failure() -> None:
    """The same in threads."""
    show = rehearsal(Bodies("invoke"), [A], policy=Policy(holdout=1e-9), prices=PRICES)
    stream = show.agent.stream(HELLO, stream_mode="updates")
    next(stream)
    stream.close()
    settle()
    (run,) = show.spec._tally.arms._kept["treated"]
    assert run.success


# --- nothing is left


async def cancelled(agent: Any) -> None:
    """Cancel a run while its model writes."""
    task = asyncio.ensure_future(agent.ainvoke(HELLO))
    await asyncio.sleep(THINKS_S / 2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def closed(agent: Any) -> None:
    """Leave a stream after its first step."""
    async with aclosing(agent.astream(HELLO, stream_mode="updates")) as steps:
        async for _ in steps:
            break


async def failed(agent: Any) -> None:
    """Let the tool fail for real."""
    with suppress(Limited):
        await agent.ainvoke(HELLO)


@pytest.mark.parametrize("leave", [cancelled, closed, failed])
async def test_nothing_is_left_of_a_run_whichever_way_it_ends(leave: Callable[..., Any]) -> None:
    """No run is followed, nothing stays reserved, and the next run has its whole budget."""
    bodies = Bodies()
    show = rehearsal(
        bodies,
        [A, B],
        policy=Policy(
            budgets=Budgets(run=Budget(calls=2), turn=Budget(calls=2), process=Budget(calls=50))
        ),
    )
    bodies.limits |= {"a"} if leave is failed else set()
    for _ in range(3):
        await leave(show.agent)
        await asyncio.sleep(TAKES_S)
        assert watched(show) == 0
    if leave is not failed:
        assert show.verdicts("guess") == ["run", "run"] * 3
        assert show.spec.report().comparison.treated.n == 3
    ledger = show.spec._economy._economy.ledger
    assert [len(each) for each in ledger._accounts.values()] == [0, 0, 1]
    ((account,),) = [[*ledger._accounts["process"].values()]]
    assert account.open == 0
    assert account.spent.calls == show.report.verdicts["run"]


# --- what else must not be forgotten


@pytest.mark.parametrize("nested", ["node", "call"])
async def test_agents_of_one_graph_share_its_run(nested: str) -> None:
    """One budget, and one decision about the holdout, for a whole graph with two agents."""
    show = rehearsal(
        Bodies(),
        [A],
        [],
        [A],
        turns=[*ONE_CALL, *ONE_CALL],
        policy=Policy(budgets=Budgets(run=Budget(calls=1))),
    )
    one, two = (show.scene.agent(show.spec, show.scene.model()) for _ in range(2))

    async def ask(state: Any) -> Any:
        return {"messages": (await two.ainvoke(HELLO))["messages"][-1:]}

    builder = StateGraph(MessagesState)
    builder.add_node("one", one)
    builder.add_node("two", two if nested == "node" else ask)
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    for _ in range(2):
        await builder.compile().ainvoke(HELLO)
        assert watched(show) == 0
    assert show.verdicts("guess") == ["run", "over_budget"] * 2
    assert show.spec.report().comparison.treated.n == 2


async def test_an_answered_call_is_one_call_of_its_minute() -> None:
    """What a guess has fetched, the committed call does not fetch again."""
    bodies = Bodies()
    show = rehearsal(bodies, [A], tools=[bodies.read("look", calls_per_minute=4)])
    for _ in range(3):
        await show.run()
    assert show.verdicts("guess") == ["run"] * 3
    assert len(bodies.ran) == 3


async def test_nobody_is_asked_for_a_tenant_that_is_switched_off() -> None:
    """No draft model sees its messages any more."""
    show, draft = drafted(USAGE)
    show.spec.switch_off(tenant="a")
    await show.run(tenant("a"))
    assert draft.seen == []
    await show.run(tenant("b"))
    assert len(draft.seen) == 2


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


async def test_an_answer_that_was_cut_off_says_nothing_of_guesses() -> None:
    """Nobody knows what the model would have called."""
    bodies = Bodies()
    cut = AIMessage(content="", response_metadata={"finish_reason": "length"})
    show = rehearsal(bodies, [A], turns=[cut])
    await show.run()
    assert show.verdicts("scored") == []


async def test_a_guess_that_fails_to_start_reserves_nothing(monkeypatch: Any) -> None:
    """An argument that cannot be copied, say."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("our own")

    monkeypatch.setattr(model_turn, "early_run", broken)
    show = rehearsal(Bodies(), [A], policy=Policy(budgets=Budgets(process=Budget(calls=2))))
    await show.run()
    ledger = show.spec._economy._economy.ledger
    (account,) = ledger._accounts["process"].values()
    assert (account.open, account.spent.calls) == (0, 0)


async def test_tools_are_measured_without_guesses_too() -> None:
    """A committed call of a declared tool tells how long it takes."""
    show = rehearsal(Bodies(), speculators=[Fickle("a", warm_up=99)])
    await show.run()
    assert show.spec._economy._economy.pace.tool_s("look") == pytest.approx(TAKES_S)


# --- events


async def test_every_guess_is_one_event_and_the_scores_add_up() -> None:
    """Whatever its verdict: as many events as guesses, and as many scores as different calls."""
    bodies = Bodies()
    guesses = [A, A, B, ("look", {"q": 1}), ("gone", {}), ("write", {"q": "a"})]

    @tool
    def write(q: str) -> str:
        """Write."""
        return q

    show = rehearsal(
        bodies,
        guesses,
        turns=[calls(A), text("done")],
        tools=[bodies.read("look"), write],
        policy=Policy(budgets=Budgets(turn=Budget(calls=1))),
    )
    await show.run()
    await show.run()
    assert show.verdicts("guess") == 2 * [
        "run",
        "over_budget",
        "over_budget",
        "invalid",
        "unknown_tool",
        "undeclared",
    ]
    scored = [(event.source, event.tool, event.verdict) for event in show.events("scored")]
    assert scored == 2 * [("oracle", "look", "right"), ("oracle", "look", "wrong")]
    oracle = show.report.sources["oracle"]
    assert (oracle.guesses, oracle.right, oracle.precision) == (4, 2, 0.5)
    assert sum(show.report.verdicts.values()) == 2 * len(guesses)


async def test_a_switch_for_an_unknown_tool_warns() -> None:
    """A misspelt name is told with the names there are, and the switch holds all the same."""
    show = rehearsal(Bodies(), [A])
    await show.run()
    with pytest.warns(RuntimeWarning, match="no tool 'lok' was seen so far; known are look"):
        show.spec.switch_off(tool="lok")
    show.spec.switch_off(tool="look")
    show.spec.switch_on(tool="look")


async def test_what_held_guesses_back_is_printed() -> None:
    """A report says why guesses did not run; in shadow none of them counts as wasted."""
    show = rehearsal(Bodies(), [A], policy=Policy(mode="shadow"))
    await show.run()
    assert (show.report.wasted, show.report.shadow_hits) == (0, 1)
    held = rehearsal(Bodies(), speculators=[Fickle("a", warm_up=99)])
    await held.run()
    assert "guesses that did not run: warming_up 1" in str(held.report)
