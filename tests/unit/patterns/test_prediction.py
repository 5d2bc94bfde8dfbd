"""What the model must hold, each on an agent small enough to see why."""

from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from shop import (
    CLOSE,
    LOAN,
    MEMBER,
    TOOLS,
    Run,
    Tool,
    call,
    first,
    guesses,
    output,
    request,
    taught,
    visit,
    visits,
)

from langchain_spectool import TurnRequest
from langchain_spectool.speculators.patterns.speculator import Patterns

NEW = visit(50)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (1, ("find_member", {"email": "anna50@example.org"})),
        (3, ("get_member", {"member_id": "mem_5053"})),
        (5, ("get_loan", {"loan_id": "L-0350"})),
        (7, ("get_loan", {"loan_id": "L-0351"})),
        (9, ("get_loan", {"loan_id": "L-0352"})),
    ],
)
def test_learned_run_is_predicted_step_by_step(
    seen: int, expected: tuple[str, dict[str, Any]]
) -> None:
    """Shapes in the user's text, scalar outputs, and the next unused element of a list."""
    assert first(taught(), NEW[:seen]) == expected


def test_no_call_is_an_outcome() -> None:
    """Once every loan was looked at, a further look is unlikely."""
    patterns = taught(visits(20))
    before = guesses(patterns, NEW[:9])[0].confidence
    after = guesses(patterns, NEW[:11])[0].confidence
    assert after < before / 2


def test_cold_start_fills_arguments_by_name() -> None:
    """Without any run, a JSON key that reads like an argument fills it."""
    messages = [*visit(3)[:3], call("get_member", 2, member_id="mem_36"), visit(3)[4]]
    assert ("get_loan", {"loan_id": "L-0021"}) in [
        (guess.tool, guess.args) for guess in guesses(Patterns(candidates=5), messages)
    ]


def test_cold_start_fills_arguments_by_shape() -> None:
    """Without any run, an e-mail address in the user's text fills `email`."""
    assert first(Patterns(), visit(4)[:1]) == ("find_member", {"email": "anna4@example.org"})


def test_instances_share_nothing() -> None:
    """What one instance worked out for an unknown argument is no other one's, nor another's."""
    sizes = SimpleNamespace(
        name="list_shirts",
        args={"size": {"type": "string", "enum": ["small", "large"]}},
    )
    asked = TurnRequest(messages=visit(4)[:1], tools=[sizes], declared=[sizes])
    assert {guess.args["size"] for guess in Patterns().guess(asked, 0)} == {"small", "large"}
    assert first(Patterns(), visit(4)[:1]) == ("find_member", {"email": "anna4@example.org"})


def test_made_call_is_not_expected_again() -> None:
    """The same call a second time ranks behind a new one."""
    repeated = [
        *NEW[:7],
        HumanMessage("Go on."),
    ]
    assert first(taught(), repeated) != ("get_loan", {"loan_id": "L-0350"})


def test_several_candidates_come_best_first() -> None:
    """A turn has several guesses, of falling confidence and all different."""
    found = guesses(taught(candidates=3), NEW[:5])
    confidences = [guess.confidence for guess in found]
    assert len(found) == 3
    assert confidences == sorted(confidences, reverse=True)
    assert len({(guess.tool, str(guess.args)) for guess in found}) == 3


def test_only_declared_tools_are_guessed() -> None:
    """A tool that may not run early is never guessed, however likely it is."""
    found = guesses(taught(), NEW[:5], declared=[MEMBER])
    assert {guess.tool for guess in found} <= {"get_member"}
    assert guesses(taught(), NEW[:5], declared=[]) == []


def test_confidence_of_the_usual_is_high_and_of_the_unknown_low() -> None:
    """A step seen in every run is nearly sure; a conversation of another kind is not."""
    patterns = taught(visits(30))
    sure = guesses(patterns, NEW[:3])[0].confidence
    lost = guesses(patterns, [HumanMessage("Tell me about the weather at sea.")])
    assert sure > 0.8
    assert all(guess.confidence < 0.3 for guess in lost)


def test_error_changes_what_comes_next() -> None:
    """A failed look-up is followed by another tool than one that succeeded."""
    by_name = Tool("find_by_name", {"last_name": {"type": "string"}})
    tools = (*TOOLS, by_name)

    def failed(n: int) -> list[BaseMessage]:
        return [
            HumanMessage(f"I am Anna Berg, anna{n}@example.org"),
            call("find_member", 1, email=f"anna{n}@example.org"),
            output("Error: no such member", 1, status="error"),
            call("find_by_name", 2, last_name="Berg"),
            output(f"mem_{n}0", 2),
        ]

    runs = [Run(failed(n), f"failed {n}", tools=tools) for n in range(1, 9)]
    patterns = taught(
        [*visits(8), *(Run(r.messages, r.run, tools, r.read_only | {"find_by_name"}) for r in runs)]
    )
    assert first(patterns, failed(70)[:3], tools=tools)[0] == "find_by_name"
    assert first(patterns, NEW[:3], tools=tools)[0] == "get_member"


def test_arguments_of_one_record_stay_together() -> None:
    """Two arguments come from the same element of a list, the next one each time."""
    route = Tool("get_fare", {"origin": {"type": "string"}, "goal": {"type": "string"}})
    trip = Tool("get_trip", {"trip_id": {"type": "string"}})

    def journey(n: int) -> list[BaseMessage]:
        ways = [(f"A{n}X", f"B{n}X"), (f"B{n}X", f"C{n}X"), (f"C{n}X", f"A{n}X")]
        messages: list[BaseMessage] = [
            HumanMessage(f"What does trip T-{n:03} cost?"),
            call("get_trip", 1, trip_id=f"T-{n:03}"),
            output({"legs": [{"origin": a, "goal": b} for a, b in ways]}, 1),
        ]
        for number, (a, b) in enumerate(ways, 2):
            messages += [call("get_fare", number, origin=a, goal=b), output("12", number)]
        return messages

    tools, early = (route, trip), frozenset({"get_fare", "get_trip"})
    patterns = taught([Run(journey(n), f"{n}", tools, early) for n in range(1, 8)])
    asked = journey(40)
    assert first(patterns, asked[:5], tools=tools) == (
        "get_fare",
        {"origin": "B40X", "goal": "C40X"},
    )
    assert first(patterns, asked[:7], tools=tools) == (
        "get_fare",
        {"origin": "C40X", "goal": "A40X"},
    )


def test_mentioned_name_picks_its_id() -> None:
    """What the user calls an entry by decides whose id is taken."""
    item = Tool("get_item", {"item_id": {"type": "string"}})
    shelf = Tool("list_items")
    names = ["Tea Kettle", "Desk Lamp", "Garden Hose", "Wool Blanket"]

    def search(n: int) -> list[BaseMessage]:
        return [
            HumanMessage(f"How much is the {names[n % 4].lower()}?"),
            call("list_items", 1),
            output({name: f"{n}{at}77{at}" for at, name in enumerate(names)}, 1),
            call("get_item", 2, item_id=f"{n}{n % 4}77{n % 4}"),
            output("12", 2),
        ]

    tools, early = (item, shelf), frozenset({"get_item", "list_items"})
    patterns = taught([Run(search(n), f"{n}", tools, early) for n in range(1, 13)])
    assert first(patterns, search(31)[:3], tools=tools) == ("get_item", {"item_id": "313773"})


def test_words_of_the_user_vote_for_constants() -> None:
    """A value that is in no message is told by the words of the request."""
    convert = Tool("get_rate", {"currency": {"type": "string"}})
    codes = {"dollars": "USD", "pounds": "GBP", "francs": "CHF"}

    def ask(n: int) -> list[BaseMessage]:
        word = list(codes)[n % 3]
        return [
            HumanMessage(f"How much is that in {word} today?"),
            call("get_rate", 1, currency=codes[word]),
            output("1.1", 1),
        ]

    runs = [Run(ask(n), f"{n}", (convert,), frozenset({"get_rate"})) for n in range(30)]
    patterns = taught(runs)
    for n in range(3):
        assert first(patterns, ask(n)[:1], tools=(convert,))[1] == ask(n)[1].tool_calls[0]["args"]  # type: ignore[attr-defined]


def test_online_learning_needs_no_fit() -> None:
    """Turns committed one after the other teach as recorded ones do."""
    patterns = Patterns()
    for n in range(1, 9):
        messages = visit(n)
        for at, message in enumerate(messages):
            if isinstance(message, AIMessage):
                patterns.learn(request(messages[:at]), message.tool_calls)
                list(patterns.guess(request(messages[: at + 1]), 0))
    assert first(patterns, NEW[:7]) == ("get_loan", {"loan_id": "L-0351"})


def test_learning_can_be_switched_off() -> None:
    """With `learn=False` the model stays as it was."""
    patterns = Patterns(learn=False)
    patterns.learn(request(NEW[:1]), NEW[1].tool_calls)  # type: ignore[attr-defined]
    list(patterns.guess(request(NEW[:1]), 0))
    assert patterns.models[None].turns == 0


def test_old_habits_are_forgotten() -> None:
    """After a change of habit, the new one wins though the old one was seen more often."""

    def habit(n: int, tool: str) -> Run:
        messages = [HumanMessage(f"Please check L-{n:04}."), call(tool, 1, loan_id=f"L-{n:04}")]
        return Run(messages, f"{tool} {n}", (LOAN, CLOSE), frozenset({"get_loan", "close_loan"}))

    patterns = taught([habit(n, "get_loan") for n in range(300)])
    patterns.fit([habit(n, "close_loan") for n in range(100)])
    asked = [HumanMessage("Please check L-9999.")]
    assert first(patterns, asked, tools=(LOAN, CLOSE), declared=(LOAN, CLOSE))[0] == "close_loan"


def test_tenants_do_not_learn_from_each_other() -> None:
    """What one tenant taught is not used for another, nor for requests without one."""
    patterns = taught(visits(8, tenant="a"))
    assert first(patterns, NEW[:7], tenant="a") == ("get_loan", {"loan_id": "L-0351"})
    assert patterns.models.keys() == {"a"}
    guesses(patterns, NEW[:7], tenant="b")
    assert patterns.models["b"].turns == 0


def test_tenant_unused_longest_is_forgotten() -> None:
    """The number of tenants is bounded."""
    patterns = Patterns(max_tenants=2)
    for tenant in "abca":
        guesses(patterns, NEW[:1], tenant=tenant)
    assert patterns.models.keys() == {"c", "a"}


def test_prediction_sees_only_what_came_before() -> None:
    """A guess is the same whether or not later messages exist elsewhere."""
    patterns = taught()
    alone = guesses(patterns, NEW[:5])
    guesses(patterns, NEW)
    assert guesses(patterns, NEW[:5]) == alone


def test_same_runs_give_the_same_guesses() -> None:
    """Two models of the same runs agree to the last digit."""
    assert guesses(taught(), NEW[:5]) == guesses(taught(), NEW[:5])


def test_warm_up_ends_with_evidence() -> None:
    """An empty model scores its guesses first; one that has learned need not."""
    assert Patterns().warm_up > 0
    assert taught().warm_up == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"candidates": 0},
        {"min_confidence": 1.5},
        {"shared_across": 0},
        {"max_tenants": 0},
        {"timeout_s": 0},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    """A setting outside its range is named with its value."""
    with pytest.raises(ValueError, match=rf"`{next(iter(wrong))}` must be"):
        Patterns(**wrong)


async def test_async_form_yields_the_same() -> None:
    """Both forms of a guess agree."""
    patterns = taught()
    asked = request(NEW[:5])
    assert [guess async for guess in patterns.aguess(asked, 0)] == list(patterns.guess(asked, 0))


def test_unsure_guesses_can_be_kept_back() -> None:
    """Nothing below `min_confidence` is yielded."""
    assert guesses(taught(min_confidence=1.0), NEW[:5]) == []


TOPICS = ("bees in winter", "tidal power", "old maps", "rye bread", "night trains", "moss walls")
VERBS = ("history of", "why", "cost of", "comparison for", "recent studies about", "law on")


def _search(n: int) -> list[BaseMessage]:
    """Return a run of a research agent: each query is of the model's own making."""
    topic = TOPICS[n % 6]
    messages: list[BaseMessage] = [HumanMessage(f"Write me a page about {topic}.")]
    for number in range(1, 5):
        query = (
            f"{VERBS[(n * 5 + number * n) % 6]} {topic.split()[0]} {1900 + 7 * n + number} review"
        )
        messages += [
            call("search", number, query=query),
            output(
                {"hits": [{"url": f"https://s{n}{number}.example/{k}"} for k in range(3)]}, number
            ),
        ]
    return [*messages, AIMessage("Here is your page.")]


def _code(n: int) -> list[BaseMessage]:
    """Return a run of a code agent: which files and lines it opens follows from reading them."""
    messages: list[BaseMessage] = [HumanMessage("Fix the failing test, please.")]
    for number in range(1, 6):
        odd = (n * 31 + number * 17) % 97
        args = {"path": f"src/part{odd}/mod{(odd * 7) % 13}.py", "line": odd * 11}
        messages += [
            call("open", number, **args),
            output(f"def f{odd}():\n    return g()\n", number),
        ]
    return [*messages, AIMessage("Fixed.")]


@pytest.mark.parametrize(
    ("agent", "tool"),
    [
        (_search, Tool("search", {"query": {"type": "string"}})),
        (_code, Tool("open", {"path": {"type": "string"}, "line": {"type": "integer"}})),
    ],
)
def test_free_text_and_code_navigation_stay_silent(agent: Any, tool: Tool) -> None:
    """Where arguments are the model's own invention, no guess is sure enough to run."""
    runs = [Run(agent(n), f"{n}", (tool,), frozenset({tool.name})) for n in range(40)]
    patterns = taught(runs)
    sure = [
        guess
        for n in range(60, 70)
        for at, message in enumerate(agent(n))
        if isinstance(message, AIMessage)
        for guess in guesses(patterns, agent(n)[:at], tools=(tool,))
        if guess.confidence >= 0.3
    ]
    assert sure == []


def test_runs_without_a_tools_file_teach_too() -> None:
    """Where nothing says which tools there are, those that are called are learned from."""
    runs = [Run(run.messages, run.run, (), frozenset()) for run in visits(8)]
    assert first(taught(runs), NEW[:7]) == ("get_loan", {"loan_id": "L-0351"})
