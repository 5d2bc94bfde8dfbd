"""Cases of kind 1: arguments, names and keys."""

import unicodedata
from collections.abc import Mapping
from typing import Any

import pytest
from harness import Form, Rehearsal, Scene, Shape, streamed
from langchain_core.tools import BaseTool, tool

from langchain_spectool import EarlyDispatch, call_key, speculatable
from langchain_spectool.testing import calls, text


@speculatable
@tool
def lookup(order_id: int, unit: str = "c", note: str | None = None) -> str:
    """Look an order up."""
    return f"{type(order_id).__name__}:{order_id}|{unit}|{note}"


@speculatable
@tool
def anything(x: Any) -> str:
    """Show any value."""
    return f"{type(x).__name__}:{x!r}"


@speculatable
@tool
def union(x: int | float | str | bool) -> str:  # noqa: PYI041 - pydantic keeps int and float apart
    """Show a value of several types."""
    return f"{type(x).__name__}:{x!r}"


@speculatable
@tool
def zero_default(n: int, k: int | None = 0) -> str:
    """Show a falsy default."""
    return f"{n}:{k!r}"


@speculatable
@tool
def no_arguments() -> str:
    """List the tables."""
    return "orders, people"


WRITTEN = (1, 1.0, "1", "1.0", True)

SAME = [
    pytest.param(lookup, {"order_id": 1}, {"order_id": 1.0}, id="B01-whole-float"),
    pytest.param(lookup, {"order_id": 1}, {"order_id": "1"}, id="B01-numeric-string"),
    pytest.param(lookup, {"order_id": 5}, {"order_id": 5, "unit": "c"}, id="B03-default"),
    pytest.param(lookup, {"order_id": 5}, {"order_id": 5, "note": None}, id="B03-null"),
    pytest.param(lookup, {"order_id": 5}, {"order_id": 5, "bogus": 1}, id="B03-unknown-argument"),
    pytest.param(zero_default, {"n": 1}, {"n": 1, "k": 0}, id="B03-falsy-default"),
    pytest.param(
        lookup, {"order_id": 5, "unit": "f"}, {"unit": "f", "order_id": 5}, id="B04-argument-order"
    ),
    pytest.param(
        anything,
        {"x": {"a": 1, "b": [1, 2]}},
        {"x": {"b": [1, 2], "a": 1}},
        id="B04-order-inside",
    ),
    pytest.param(no_arguments, {}, {"bogus": 1}, id="B05-no-arguments"),
]

DIFFERENT = [
    pytest.param(anything, {"x": 1}, {"x": 1.0}, id="B01-int-float"),
    pytest.param(anything, {"x": 1}, {"x": True}, id="B01-one-true"),
    pytest.param(anything, {"x": 0}, {"x": False}, id="B01-zero-false"),
    pytest.param(anything, {"x": 1}, {"x": "1"}, id="B01-one-string"),
    pytest.param(lookup, {"order_id": 5}, {"order_id": 5, "note": "None"}, id="B03-string-none"),
    pytest.param(lookup, {"order_id": 5}, {"order_id": 5, "note": ""}, id="B03-empty-string"),
    pytest.param(zero_default, {"n": 1}, {"n": 1, "k": None}, id="B03-falsy-is-not-null"),
    pytest.param(anything, {"x": {"b": [1, 2]}}, {"x": {"b": [2, 1]}}, id="B04-list-order"),
    pytest.param(anything, {"x": {"a": 1}}, {"x": [["a", 1]]}, id="B04-mapping-or-pairs"),
    pytest.param(anything, {"x": {"1": 1}}, {"x": {1: 1}}, id="B04-key-types"),
    pytest.param(anything, {"x": "Z\u00fcrich"}, {"x": "Zu\u0308rich"}, id="B07-composed"),
    pytest.param(anything, {"x": "a"}, {"x": "a "}, id="B07-trailing-space"),
    pytest.param(anything, {"x": "\ud83d"}, {"x": "\ud83e"}, id="B07-lone-surrogates"),
    pytest.param(anything, {"x": "\u200bpay"}, {"x": "pay"}, id="B07-zero-width"),
]


@pytest.mark.parametrize(("subject", "one", "other"), SAME)
def test_equal_calls_have_one_key(
    subject: BaseTool, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """B01 B03 B04 B05: what the body receives decides, not how the model wrote it."""
    assert call_key(subject, one) is not None
    assert call_key(subject, one) == call_key(subject, other)


@pytest.mark.parametrize(("subject", "one", "other"), DIFFERENT)
def test_different_calls_have_different_keys(
    subject: BaseTool, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """B01 B03 B04 B07: types, nulls, list order and bytes all count, and no key raises."""
    keys = call_key(subject, one), call_key(subject, other)
    assert None not in keys
    assert keys[0] != keys[1]


@pytest.mark.parametrize("subject", [lookup, anything, union], ids=lambda it: it.name)
def test_b01_five_ways_to_write_one(subject: BaseTool) -> None:
    """B01: five spellings of 1 are one int, and five values where the schema keeps them apart."""
    parameter = "order_id" if subject is lookup else "x"
    keys = {call_key(subject, {parameter: value}) for value in WRITTEN}
    assert None not in keys
    assert len(keys) == (1 if subject is lookup else 5)


@pytest.mark.parametrize(
    "args", [{"order_id": 1.5}, {"order_id": 5, "unit": None}, {"unit": "c"}, {"order_id": "x"}]
)
def test_b03_invalid_arguments_have_no_key(args: dict[str, Any]) -> None:
    """B01 B03: arguments that the schema rejects are no call at all."""
    assert call_key(lookup, args) is None


ASKED: list[Any] = [
    pytest.param(lookup, {"order_id": 1}, {"order_id": "1"}, True, id="B01-int"),
    pytest.param(anything, {"x": 1}, {"x": True}, False, id="B01-any"),
    pytest.param(union, {"x": 1}, {"x": 1.0}, False, id="B01-union"),
    pytest.param(lookup, {"order_id": 5}, {"order_id": 5, "unit": "c"}, True, id="B03-default"),
    pytest.param(zero_default, {"n": 1}, {"n": 1, "k": None}, False, id="B03-null"),
    pytest.param(anything, {"x": "Zürich"}, {"x": "Zu\u0308rich"}, False, id="B07-composed"),
    pytest.param(anything, {"x": "\ud83d"}, {"x": "\ud83d"}, True, id="B07-surrogate"),
]


@pytest.mark.parametrize(("subject", "guessed", "committed", "hit"), ASKED)
async def test_guess_answers_only_the_call_it_is(
    subject: BaseTool,
    guessed: dict[str, Any],
    committed: dict[str, Any],
    hit: bool,
    shape: Shape,
) -> None:
    """B01 B03 B07: a guess answers the calls equal to it and no other, and nothing else differs."""
    turns = [calls((subject.name, committed)), text("done")]
    scene = Scene(turns=turns, tools=[subject], **shape)
    played = Rehearsal(scene, [(subject.name, guessed)])
    assert (await played.run()).said == (await scene.stock()).said
    assert (played.report.hits, played.report.wasted) == ((1, 0) if hit else (0, 1))


async def test_b03_invalid_call_is_never_run_early(shape: Shape) -> None:
    """B03: a null that the schema rejects runs nothing early and gets stock's error message."""
    args = {"order_id": 5, "unit": None}
    scene = Scene(turns=[calls(("lookup", args)), text("done")], tools=[lookup], **shape)
    played = Rehearsal(scene, [("lookup", args)])
    ours = await played.run()
    assert ours.said == (await scene.stock()).said
    assert ours.tools[0][1] == "error"
    assert played.verdicts("guess") == ["invalid"]


RAW = [
    pytest.param("lookup", '{ "unit" : "f", "order_id" : 5 }', True, id="B04-spaces"),
    pytest.param("lookup", '{"order_id":5,"order_id":6}', True, id="B04-duplicate-key"),
    pytest.param("no_arguments", "", True, id="B05-empty"),
    pytest.param("no_arguments", None, True, id="B05-absent"),
    pytest.param("no_arguments", "{}", True, id="B05-braces"),
    pytest.param("lookup", '"{\\"order_id\\": 5}"', False, id="B05-encoded-twice"),
    pytest.param("lookup", "[1,2]", False, id="B05-list"),
    pytest.param("lookup", "5", False, id="B05-number"),
    pytest.param("lookup", '"x"', False, id="B05-string"),
    pytest.param("lookup", "  ", False, id="B05-blank"),
    pytest.param("lookup", '{"order_id": 5,}', False, id="B05-trailing-comma"),
    pytest.param("lookup", "{'order_id': 5}", False, id="B05-single-quotes"),
    pytest.param("lookup", '{"order_id": 5', False, id="B05-no-end"),
    pytest.param("lookup", '{"order_id": 5} trailing', False, id="B05-trailing-words"),
    pytest.param("lookup", '{"order_id": 5}}', False, id="B05-extra-brace"),
    pytest.param("lookup", '{"order_id": tru', False, id="B05-half-a-word"),
    pytest.param("lookup", '{"order_id": -', False, id="B05-half-a-number"),
    pytest.param("lookup", '{"order_id": 1.', False, id="B05-half-a-float"),
    pytest.param("lookup", '{"order_id": 1e', False, id="B05-half-an-exponent"),
    pytest.param("anything", '{"x": "\\u00', False, id="B05-half-an-escape"),
    pytest.param("anything", '{"x": NaN}', False, id="B05-nan"),
    pytest.param("anything", '{"x": Infinity}', False, id="B05-infinity"),
    pytest.param("anything", '{"x": "a\n b"}', False, id="B05-raw-newline"),
]


@pytest.mark.parametrize(("name", "raw", "starts"), RAW)
async def test_streamed_arguments_run_early_only_as_strict_json(
    name: str, raw: str | None, starts: bool, form: Form
) -> None:
    """B04 B05: only a strict JSON object, or nothing at all, starts a call; the rest is stock's."""
    turns = [streamed([(0, "a", name, raw)], after="now"), text("done")]
    scene = Scene(turns=turns, tools=[lookup, anything, no_arguments], form=form)
    stock = await scene.stock()
    played = Rehearsal(scene, speculators=[EarlyDispatch(force=True)])
    ours = await played.run()
    assert ours.tools == stock.tools
    assert ours.error == stock.error
    assert (played.report.guesses, played.report.hits) == ((1, 1) if starts else (0, 0))
    assert played.report.errors == 0


@pytest.mark.parametrize(
    "raw", ['{"x": ' + "9" * 5000 + "}", '{"x": ' + "[" * 100_000 + "]" * 100_000]
)
async def test_b05_arguments_beyond_the_parser(raw: str) -> None:
    """B05: a number or a nesting that the parser cannot take starts nothing and raises nothing."""
    turns = [streamed([(0, "a", "anything", raw)], after="now"), text("done")]
    scene = Scene(turns=turns, tools=[anything])
    played = Rehearsal(scene, speculators=[EarlyDispatch(force=True)])
    ours, stock = await played.run(), await scene.stock()
    assert (ours.tools, ours.error) == (stock.tools, stock.error)
    assert (played.report.guesses, played.report.errors) == (0, 0)


async def test_b05_streamed_null(form: Form) -> None:
    """B05: LangChain cannot read a streamed `null`, so its early run is dropped, unseen."""
    turns = [streamed([(0, "a", "no_arguments", "null")], after="now"), text("done")]
    scene = Scene(turns=turns, tools=[no_arguments], form=form)
    played = Rehearsal(scene, speculators=[EarlyDispatch(force=True)])
    ours, stock = await played.run(), await scene.stock()
    assert (ours.tools, ours.error) == (stock.tools, stock.error) == ([], None)
    assert played.verdicts("discarded") == ["unclaimed"]


@pytest.mark.parametrize("args", ["", None, {}])
def test_b05_no_arguments_are_one_call(args: Any) -> None:
    """B05: nothing, null and an empty object are the same call."""
    key = call_key(no_arguments, {})
    assert key is not None
    assert call_key(no_arguments, args) == key


@pytest.mark.parametrize("args", ["[1]", [1], 5, '"x"', (), {1: 2}, True])
def test_b05_other_arguments_have_no_key(args: Any) -> None:
    """B05: what is no object of named arguments has no key, and asking does not raise."""
    assert call_key(lookup, args) is None


def test_b07_bytes_reach_the_body_unchanged() -> None:
    """B07: nothing is normalised on the way to the key."""
    composed = "Zürich"
    decomposed = unicodedata.normalize("NFD", composed)
    assert composed in str(call_key(anything, {"x": composed}))
    assert decomposed in str(call_key(anything, {"x": decomposed}))


NAMES = ("Lookup", "lookup ", "functions.lookup", "", "lookup<|channel|>commentary")


@pytest.mark.parametrize("name", NAMES)
async def test_b08_unknown_name_is_stocks_affair(name: str, shape: Shape) -> None:
    """B08: a name that is not registered runs nothing early and never becomes a label."""
    turns = [calls((name, {"order_id": 1})), text("done")]
    scene = Scene(turns=turns, tools=[lookup], **shape)
    played = Rehearsal(scene, [(name, {"order_id": 1})])
    assert (await played.run()).said == (await scene.stock()).said
    assert played.verdicts("guess") == ["unknown_tool"]
    assert played.report.hits == 0
    assert {event.tool for event in played.log.events} <= {"", "other"}


def _echo(ran: list[Any], **fields: Any) -> BaseTool:
    @speculatable(**fields)
    @tool
    def echo(x: str) -> str:
        """Echo."""
        ran.append(x)
        return f"echo:{x}"

    return echo


def _asked(*args: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [("echo", {"x": each}) for each in args]


async def test_b09_one_id_for_two_calls(shape: Shape, ran: list[Any]) -> None:
    """B09: two calls of one turn with one id get their own results, in order."""
    message = calls(*_asked("a", "b"))
    for call in message.tool_calls:
        call["id"] = "dup"
    scene = Scene(turns=[message, text("done")], tools=[_echo(ran)], **shape)
    played = Rehearsal(scene, _asked("b", "a"))
    ours = await played.run()
    assert ours.said == (await scene.stock()).said
    assert [content for _, _, content in ours.tools] == ["echo:a", "echo:b"]
    assert played.report.hits == 2


async def test_b09_id_comes_back_in_the_next_turn(shape: Shape, ran: list[Any]) -> None:
    """B09: an early run of one turn never answers a call of the next that reuses its id."""
    turns = [calls(*_asked("a")), calls(*_asked("b")), text("done")]
    scene = Scene(turns=turns, tools=[_echo(ran)], **shape)
    played = Rehearsal(scene, _asked("a", "b"))
    ours = await played.run()
    assert ours.said == (await scene.stock()).said
    assert [content for _, _, content in ours.tools] == ["echo:a", "echo:b"]
    assert (played.report.hits, played.report.misses, played.report.wasted) == (1, 0, 1)


@pytest.mark.parametrize("guessed", [0, 1, 2])
@pytest.mark.parametrize("shared", [True, False])
async def test_b11_identical_calls_of_one_turn(
    shape: Shape, shared: bool, guessed: int, ran: list[Any]
) -> None:
    """B11 S21: nine equal calls get nine messages; one run if deterministic, else nine."""
    scene = Scene(
        turns=[calls(*_asked(*["same"] * 9)), text("done")],
        tools=[_echo(ran, deterministic=shared)],
        **shape,
    )
    stock = await scene.stock()
    ran.clear()
    ours = await Rehearsal(scene, _asked(*["same"] * guessed)).run()
    assert ours.said == stock.said
    assert [call_id for call_id, _, _ in ours.tools] == [f"c{n}" for n in range(9)]
    assert len(ran) == (1 if shared else 9)


async def test_b12_only_invalid_calls(form: Form, ran: list[Any]) -> None:
    """B12: a turn of unreadable calls ends as in stock, and its guesses are wasted."""
    scene = Scene(
        turns=[streamed([(0, "a", "echo", '{"x": Oslo}')]), text("done")],
        tools=[_echo(ran)],
        form=form,
    )
    stock = await scene.stock()
    played = Rehearsal(scene, _asked("Oslo"))
    ours = await played.run()
    assert ours.said == stock.said
    assert ours.messages[-1][6]
    assert ran == ["Oslo"]
    assert played.verdicts("discarded") == ["unclaimed"]
