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
    extension_by_stops,
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


def settled(
    store: Store,
    hit: Hit,
    rendered: Any = RENDERED,
    *,
    resident: Any = RESIDENT,
    limits: ContinuationLimits = LIMITS,
    **fields: float,
) -> Any:
    """Settle with what is rendered; what it says is what is counted."""
    before = store.tally.snapshot()
    decider = Decider(store, limits, [])
    verdict = decider.settle(hit, resident=resident, rendered=rendered, now_s=0, **fields)
    counted = store.tally.snapshot().items() - before.items()
    went_on = "continued_drifted" if getattr(verdict, "drifted", False) else "continued"
    outcome = verdict if isinstance(verdict, str) else went_on
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


def test_the_kv_cache_may_have_no_room() -> None:
    """The outputs are left for the round trip."""
    store = holding(entry())
    assert settled(store, looked(store), most_tokens=len(RENDERED) - 1) == "kv_full"
    assert store.entries == 1
    assert settled(store, looked(store), most_tokens=len(RENDERED)).token_ids == (7, 8)


TOKENS = st.lists(st.integers(0, 2), max_size=5)


@given(TOKENS, TOKENS)
def test_only_an_exact_continuation_extends(resident: list[int], rendered: list[int]) -> None:
    """By one token or more; together they are what was rendered."""
    ids = extension(resident, rendered)
    extends = len(rendered) > len(resident) and rendered[: len(resident)] == resident
    assert ids == (tuple(rendered[len(resident) :]) if extends else None)


DRIFTING = replace(LIMITS, allow_drift=True)
STOP = 0
WORDS = st.lists(st.integers(1, 2), max_size=3)
MESSAGES = st.lists(WORDS, min_size=1, max_size=3)


def closed(messages: list[list[int]]) -> list[int]:
    """Write messages, each with a stop token at its end."""
    return [token for message in messages for token in (*message, STOP)]


@given(TOKENS.filter(bool), TOKENS)
def test_drift_makes_no_difference_where_there_is_none(
    resident: list[int], rendered: list[int]
) -> None:
    """What is strict goes on as ever, and only what is not is counted apart."""
    strict, loose = holding(entry()), holding(entry())
    verdict = settled(strict, looked(strict), rendered, resident=resident)
    allowed = settled(loose, looked(loose), rendered, resident=resident, limits=DRIFTING)
    if verdict == "template_drift":
        assert allowed == verdict or allowed.drifted
    else:
        assert allowed == verdict
        assert not allowed.drifted


@given(MESSAGES, st.data(), WORDS.filter(bool), WORDS)
def test_a_drifted_response_goes_on_with_what_follows_its_turn(
    stands: list[list[int]], data: st.DataObject, output: list[int], prompt: list[int]
) -> None:
    """As many messages are as were, in whatever words: then come the outputs."""
    count = len(stands)
    written = data.draw(st.lists(WORDS, min_size=count, max_size=count))
    after = (*closed([output]), *prompt)
    store = holding(entry())
    verdict = settled(
        store,
        looked(store),
        (*closed(written), *after),
        resident=closed(stands),
        limits=DRIFTING,
    )
    assert verdict.token_ids == after
    assert verdict.drifted == (written != stands)
    assert store.entries == 0


@pytest.mark.parametrize(
    "rendered", [(), (1, 1, 1), (1, 0, 2, 2), (1, 0, 2, 0), (2, 2, 0)], ids=str
)
def test_what_does_not_close_the_turn_drifts(rendered: Any) -> None:
    """Fewer stop tokens than stand, or nothing after them."""
    assert extension_by_stops((1, 0, 1, 0), rendered) is None
    store = holding(entry())
    assert (
        settled(store, looked(store), rendered, resident=(1, 0, 1, 0), limits=DRIFTING)
        == "template_drift"
    )
    assert store.entries == 1


def test_a_drifted_response_has_to_fit_as_it_stands() -> None:
    """It may be longer than what was rendered: the model's context, and the KV cache."""
    resident, rendered = (*range(1, 90), 0), (1, 0, 5, 6)
    store = holding(entry())
    limits = replace(DRIFTING, context_tokens=93)
    asked: dict[str, Any] = {"resident": resident, "limits": limits}
    full = looked(store, replace(END, max_tokens=2))
    assert settled(store, full, rendered, **asked) == "context_full"
    hit = looked(store, replace(END, max_tokens=1))
    assert settled(store, hit, rendered, **asked, most_tokens=91) == "kv_full"
    assert settled(store, hit, rendered, **asked, most_tokens=92).token_ids == (5, 6)
