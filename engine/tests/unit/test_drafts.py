"""Drafts: what is offered agrees with what is written, and the book keeps to its bounds."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_spectool._core.draft_book import BookLimits, DraftBook
from vllm_spectool._core.drafts import LEAD, REACH, Draft, Renderings, draft_of, propose

STOP, TAIL = 90, 91
RENDERINGS = Renderings(
    opening=(1, 2, 3),
    # <tool_call> { name : get weather , arguments : { city : Paris } </tool_call> stop
    call=(1, 2, 3, 10, 11, 12, 20, 21, 30, 31, 32, 40, STOP, TAIL, 7, STOP),
    other_name=(1, 2, 3, 10, 11, 12, 25, 30, 31, 32, 40, STOP, TAIL, 7, STOP),
    other_params=(1, 2, 3, 10, 11, 12, 20, 21, 30, 33, STOP, TAIL, 7, STOP),
)
DRAFT = Draft(anchor=5, token_ids=(11, 12, 20, 21, 30, 31, 32, 40, STOP), keep_alive_s=60)


@dataclass(kw_only=True)
class Request:
    """A running request."""

    request_id: str = "r"
    output_token_ids: list[int] = field(default_factory=list[int])
    is_prefill_chunk: bool = False
    use_structured_output: bool = False


def written(*tokens: int, **fields: bool) -> Request:
    """Return a request that has written `tokens`."""
    return Request(output_token_ids=list(tokens), **fields)


def book(*drafts: Draft, limits: BookLimits | None = None) -> DraftBook:
    """Return a book with drafts for the key of request `r`."""
    made = DraftBook(limits)
    made.put("key", drafts, 0.0)
    made.begin("r", "key")
    return made


def offered(made: DraftBook, request: Request, *, most: int = 99, now_s: float = 0.0) -> list[int]:
    """Return what a request is offered."""
    return next((tokens for _, tokens in made.offers([request], most, now_s)), [])


def test_a_draft_begins_before_the_name_and_ends_with_the_turn() -> None:
    """What stands before a call is another matter each time."""
    assert draft_of(RENDERINGS, {STOP}, 60) == DRAFT
    assert DRAFT.token_ids[LEAD] == 20


def test_no_token_of_the_prompt_is_asked_for() -> None:
    """A name with which the turn begins is its own anchor."""
    opened = replace(RENDERINGS, opening=(1, 2, 3, 10, 11, 12))
    draft = draft_of(opened, {STOP}, 60)
    assert draft is not None
    assert (draft.token_ids[0], draft.anchor) == (20, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"other_params": RENDERINGS.call},
        {"other_name": RENDERINGS.call},
        {"other_params": (1, 2, 3, 10, 11, 12, 26)},
        {"call": RENDERINGS.call[:12]},
        {"call": ()},
        {"opening": RENDERINGS.call},
    ],
)
def test_a_template_that_writes_no_call_makes_no_draft(change: dict[str, tuple[int, ...]]) -> None:
    """It leaves out the name, the arguments or the stop token."""
    assert draft_of(replace(RENDERINGS, **change), {STOP}, 60) is None


def test_a_long_draft_is_cut() -> None:
    """And one that is all anchor is none."""
    cut = draft_of(RENDERINGS, {STOP}, 60, most_tokens=6)
    assert cut is not None
    assert cut.token_ids == DRAFT.token_ids[:6]
    assert draft_of(RENDERINGS, {STOP}, 60, most_tokens=5) is None


def test_nothing_is_offered_before_the_arguments_begin() -> None:
    """Then all the rest is, as far as it may be; behind a token that differs nothing is."""
    assert propose([11, 12, 20, 21], [DRAFT], 99) == []
    assert propose([8, 11, 12, 20, 21, 30], [DRAFT], 3) == [31, 32, 40]
    assert propose([8, 11, 12, 20, 21, 30, 31], [DRAFT], 99) == [32, 40, STOP]
    assert propose([8, 11, 12, 20, 21, 30, 32], [DRAFT], 99) == []
    assert propose(DRAFT.token_ids, [DRAFT], 99) == []


def test_the_second_call_of_a_turn_is_offered_as_well() -> None:
    """The last place counts."""
    assert propose([*DRAFT.token_ids[:-1], 7, *DRAFT.token_ids[:6]], [DRAFT], 1) == [32]


def test_a_beginning_that_repeats_itself_is_found() -> None:
    """Its first token stands at several places."""
    draft = Draft(anchor=2, token_ids=(5, 5, 5, 6))
    assert propose([5, 5, 5], [draft], 9) == [5, 6]
    assert propose([5, 5, 7, 5, 5], [draft], 9) == [5, 6]


def test_the_first_draft_that_agrees_wins() -> None:
    """And another takes over where it goes wrong."""
    other = replace(DRAFT, token_ids=(11, 12, 20, 21, 30, 50, STOP))
    assert propose([11, 12, 20, 21, 30], [other, DRAFT], 1) == [50]
    assert propose([11, 12, 20, 21, 30, 31], [other, DRAFT], 1) == [32]


TOKENS = st.integers(0, 3)
DRAFTS = st.builds(
    lambda ids, anchor: Draft(anchor=min(anchor, len(ids) - 1), token_ids=tuple(ids)),
    st.lists(TOKENS, min_size=2, max_size=12),
    st.integers(1, 6),
)


@given(st.lists(TOKENS, max_size=30), st.lists(DRAFTS, max_size=4), st.integers(0, 6))
def test_what_is_offered_agrees_with_what_is_written(
    output: list[int], drafts: list[Draft], most: int
) -> None:
    """It goes on a draft of which at least the anchor stands at the end, and the first such one."""
    told = propose(output, drafts, most)
    fitting = [
        (draft, stands)
        for draft in drafts
        for stands in range(draft.anchor, len(draft.token_ids))
        if tuple(output[-stands:]) == draft.token_ids[:stands]
    ]
    if fitting:
        draft, stands = fitting[0]
        assert told == list(draft.token_ids[stands : stands + most])
    else:
        assert told == []


def test_only_what_was_written_lately_is_looked_at() -> None:
    """A draft longer than that is dropped once it is behind."""
    long = Draft(anchor=1, token_ids=(1, *[2] * REACH, 3))
    assert propose([1, *[2] * (REACH - 1)], [long], 9) == [2, 3]
    assert propose([1, *[2] * REACH], [long], 9) == []


def test_a_request_is_offered_what_its_key_has() -> None:
    """Posted before it began or after; of two, the newer."""
    made = book(DRAFT)
    made.put("key", [replace(DRAFT, token_ids=(*DRAFT.token_ids[:5], 50, STOP))], 1.0)
    made.put("another", [DRAFT], 1.0)
    assert offered(made, written(*DRAFT.token_ids[:5]), most=1) == [50]
    made.put("key", [DRAFT], 2.0)
    assert offered(made, written(*DRAFT.token_ids[:5]), most=1) == [31]
    assert offered(made, Request(request_id="s", output_token_ids=[11, 12, 20, 21, 30])) == []


@pytest.mark.parametrize("what", ["is_prefill_chunk", "use_structured_output"])
def test_a_prompt_and_a_grammar_get_nothing(what: str) -> None:
    """Neither could use it."""
    assert offered(book(DRAFT), written(*DRAFT.token_ids[:5]))
    assert offered(book(DRAFT), written(*DRAFT.token_ids[:5], **{what: True})) == []


def test_drafts_are_forgotten() -> None:
    """At a word, with their time, and with the last request of their key."""
    request = written(*DRAFT.token_ids[:5])
    made = book(DRAFT)
    made.forget("key")
    made.forget("none")
    assert (offered(made, request), bool(made), len(made)) == ([], False, 1)
    made = book(replace(DRAFT, keep_alive_s=5))
    assert offered(made, request, now_s=4.9)
    assert (offered(made, request, now_s=5.0), bool(made)) == ([], False)
    made = book(DRAFT)
    made.begin("r", "key")
    made.begin("s", "key")
    made.end("s")
    assert offered(made, request)
    made.end("r")
    made.end("r")
    assert (len(made), made.tokens) == (0, 0)


def test_drafts_nobody_asks_for_are_swept() -> None:
    """With the next that is put long after them."""
    made = DraftBook()
    made.put("old", [replace(DRAFT, keep_alive_s=5)], 0.0)
    made.put("new", [DRAFT], 20.0)
    assert (len(made), made.tokens) == (1, len(DRAFT.token_ids))


def test_it_counts_what_it_offers() -> None:
    """Requests once, steps and tokens each time."""
    made, request = book(DRAFT), written(*DRAFT.token_ids[:5])
    offered(made, request, most=2)
    offered(made, request)
    offered(made, written(1))
    assert made.totals == {"requests": 1, "steps": 2, "tokens": 6}


def test_running_requests_keep_their_drafts() -> None:
    """Others make way, oldest first."""
    made = book(DRAFT, limits=BookLimits(keys=2, drafts=2, tokens=20))
    made.put("second", [DRAFT], 0.0)
    made.put("third", [DRAFT], 0.0)
    assert len(made) == 2
    assert offered(made, written(*DRAFT.token_ids[:5]))
    made.put("key", [Draft(anchor=1, token_ids=tuple(range(30)))], 0.0)
    assert (len(made), made.tokens) == (2, 18)


OTHER = replace(DRAFT, token_ids=(*DRAFT.token_ids[:-2], 41, STOP))
SMALL = BookLimits(keys=2, drafts=2, tokens=20)


def test_what_running_requests_leave_no_room_for_is_not_kept() -> None:
    """Neither of two drafts is: a key has all of a post or nothing."""
    made = book(DRAFT, limits=SMALL)
    made.put("second", [DRAFT, OTHER], 0.0)
    assert (len(made), made.tokens) == (1, len(DRAFT.token_ids))


def test_a_key_makes_room_among_the_others() -> None:
    """Its own drafts stay, though it was the first to have any."""
    made = DraftBook(SMALL)
    made.put("key", [DRAFT], 0.0)
    made.put("second", [DRAFT], 0.0)
    made.put("key", [OTHER], 0.0)
    assert (len(made), made.tokens) == (1, 2 * len(DRAFT.token_ids))
    made.begin("r", "key")
    assert offered(made, written(*DRAFT.token_ids[:5]))


LIMITS = BookLimits(keys=3, drafts=2, tokens=30)
EVENTS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abcd"), st.lists(DRAFTS, max_size=3)),
    st.tuples(st.just("forget"), st.sampled_from("abcd"), st.none()),
    st.tuples(st.just("begin"), st.sampled_from("abcd"), st.none()),
    st.tuples(st.just("end"), st.sampled_from("abcd"), st.none()),
)


@given(st.lists(EVENTS, max_size=30))
def test_the_book_keeps_to_its_bounds(events: list[tuple[str, str, list[Draft] | None]]) -> None:
    """Whatever happens; and at the end nothing is left."""
    made, live = DraftBook(LIMITS), set[str]()
    for now_s, (what, key, drafts) in enumerate(events):
        if what == "put":
            made.put(key, drafts or [], float(now_s))
        elif what == "forget":
            made.forget(key)
        elif what == "begin":
            made.begin(f"request of {key}", key)
            live.add(key)
        else:
            made.end(f"request of {key}")
            live.discard(key)
        assert len(made) <= max(LIMITS.keys, len(live))
        assert 0 <= made.tokens <= LIMITS.tokens
    for key in "abcd":
        made.end(f"request of {key}")
        made.forget(key)
    assert (len(made), made.tokens) == (0, 0)


def test_a_model_that_repeats_itself_costs_little() -> None:
    """It could have begun the call anywhere; after some of these nobody looks any further."""
    said = [11, *[20] * 3, *[11] * 400]
    far = Draft(anchor=2, token_ids=(*said, STOP))
    assert propose(said[:40], [far], 1) == [11]
    assert propose(said, [far], 1) == []
