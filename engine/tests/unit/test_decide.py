"""What happens where a turn ends."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_spectool._core.counters import INJECTED, RESOLVED, TURNS
from vllm_spectool._core.decide import (
    Continuation,
    ContinuationLimits,
    Decider,
    Hit,
    TurnEnd,
    extension,
)
from vllm_spectool._core.entries import Entry
from vllm_spectool._core.params import Call, call_key
from vllm_spectool._core.store import Store

OWNER = ("id", "key")
CALL = Call(name="look", params={"x": 1})
END = TurnEnd(owner=OWNER, turn=0, stopped=True, calls=(CALL,))
LIMITS = ContinuationLimits(turns=3, context_tokens=100)
RESIDENT = tuple(range(10))
RENDERED = (*RESIDENT, 7, 8)


def entry(content: Any = "x", call: Call = CALL) -> Entry:
    """Return an output of `call` that may be used once."""
    return Entry(
        name=call.name,
        params=call.params,
        key=call_key(call.name, call.params),
        content=str(content),
        message_content=content,
        keep_alive_s=10,
        uses=1,
    )


def holding(*entries: Entry) -> Store:
    """Return a store that holds `entries`."""
    store = Store()
    store.put(OWNER, entries, 0)
    return store


def looked(store: Store, end: TurnEnd = END, now_s: float = 0) -> Any:
    """Look with `<end>` as the only special token."""
    return Decider(store, LIMITS, ["<end>"]).look(end, now_s)


def settled(store: Store, hit: Hit, rendered: Any = RENDERED) -> Any:
    """Settle with what is rendered; what it says is what is counted."""
    before = store.tally.snapshot()
    verdict = Decider(store, LIMITS, []).settle(hit, resident=RESIDENT, rendered=rendered, now_s=0)
    counted = store.tally.snapshot().items() - before.items()
    outcome = verdict if isinstance(verdict, str) else "continued"
    assert {name for name, _ in counted if name.startswith("turns")} == {f"turns.{outcome}"}
    return verdict


def test_a_look_takes_nothing_and_a_hit_takes_its_outputs() -> None:
    """Once it is certain that the response goes on."""
    store = holding(entry())
    hit = looked(store)
    assert hit == Hit(end=END, calls=(CALL,), outputs=(entry(),)) == looked(store)
    assert settled(store, hit) == Continuation(
        token_ids=(7, 8), calls=(CALL,), outputs=(entry(),), max_tokens=88
    )
    assert store.entries == 0
    assert (store.tally.of(RESOLVED), store.tally.of(INJECTED)) == (1, 2)


def test_each_turn_has_what_the_request_asked_for() -> None:
    """Whatever the turn before has used."""
    store = holding(entry())
    assert settled(store, looked(store, replace(END, max_tokens=89))) == "context_full"
    assert settled(store, looked(store, replace(END, max_tokens=88))).max_tokens == 88


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"stopped": False}, "unfinished"),
        ({"calls": None}, "malformed_call"),
        ({"calls": (Call(name="look", params={"x": float("nan")}),)}, "malformed_call"),
        ({"calls": ()}, "answered"),
        ({"bar": "seed"}, "seed"),
        ({"calls": (), "bar": "seed"}, "answered"),
        ({"turn": 2}, "max_turns"),
        ({"calls": (Call(name="look", params={"x": 1.0}),)}, "no_entry"),
        ({"calls": (CALL, Call(name="other"))}, "partial"),
        ({"calls": (CALL, CALL)}, "no_entry"),
        ({"owner": ("id", "other")}, "no_entry"),
    ],
)
def test_a_decline_has_a_name(fields: dict[str, Any], verdict: str) -> None:
    """The first thing that stands against it."""
    store = holding(entry())
    assert looked(store, replace(END, **fields)) == verdict
    assert store.tally.of(TURNS, verdict) == 1
    assert store.entries == 1


TEXT, IMAGE = {"type": "text", "text": "a"}, {"type": "image"}


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        ([IMAGE], "not_text"),
        ([TEXT, IMAGE], "not_text"),
        ("a<end>b", "special_tokens"),
        ([TEXT, {"type": "text", "text": "<end>"}], "special_tokens"),
        ("a<end", None),
        ([TEXT], None),
        ([], None),
        ("", None),
    ],
)
def test_some_outputs_are_left_to_the_client(output: Any, verdict: str | None) -> None:
    """What is no text, and text that could end its message."""
    found = looked(holding(entry(output)))
    assert isinstance(found, Hit) if verdict is None else found == verdict


def test_old_outputs_answer_nothing() -> None:
    """Time is what the caller says."""
    assert isinstance(looked(holding(entry()), now_s=9), Hit)
    assert looked(holding(entry()), now_s=10) == "no_entry"


@pytest.mark.parametrize(
    "rendered", [RESIDENT, RESIDENT[:-1], (), (*RESIDENT[:-1], 0, 7), (0, *RENDERED)]
)
def test_what_does_not_extend_drifts_and_takes_nothing(rendered: Any) -> None:
    """The output may still answer a later turn."""
    store = holding(entry())
    assert settled(store, looked(store), rendered) == "template_drift"
    assert store.entries == 1


def replaced(store: Store) -> None:
    """Post another output of the same call."""
    store.put(OWNER, [entry("y")], 0)


@pytest.mark.parametrize(
    "happens", [replaced, lambda store: store.delete(OWNER, 0), lambda store: store.expire(10)]
)
def test_what_happens_while_the_prompt_is_rendered_counts(
    happens: Callable[[Store], object],
) -> None:
    """What was rendered may not be what would be served now."""
    store = holding(entry())
    hit = looked(store)
    happens(store)
    assert settled(store, hit) == "no_entry"


TOKENS = st.lists(st.integers(0, 2), max_size=5)


@given(TOKENS, TOKENS)
def test_only_an_exact_continuation_extends(resident: list[int], rendered: list[int]) -> None:
    """By one token or more; together they are what was rendered."""
    ids = extension(resident, rendered)
    extends = len(rendered) > len(resident) and rendered[: len(resident)] == resident
    assert ids == (tuple(rendered[len(resident) :]) if extends else "template_drift")
