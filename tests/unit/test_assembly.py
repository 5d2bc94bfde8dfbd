"""Assembly of streamed tool calls: what is reported, when, and what is taken back."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool._core.assembly import CallAssembler, CallDelta, ClosedCall, VoidedCall

Fragment = tuple[int | str | None, str | None, str | None, str | None]
Change = ClosedCall | VoidedCall

WEATHER: Fragment = (0, "call-A", "get_weather", '{"city":"Oslo"}')
ORDER: Fragment = (1, "call-B", "get_order", '{"order_id":7}')
WEATHER_CLOSED = ClosedCall(0, "get_weather", {"city": "Oslo"}, "call-A")
ORDER_CLOSED = ClosedCall(1, "get_order", {"order_id": 7}, "call-B")


def steps(assembler: CallAssembler, stream: Sequence[Sequence[Fragment]]) -> list[list[Change]]:
    """Feed `stream` step by step and return what each step settled."""
    return [assembler.feed([CallDelta(*fragment) for fragment in step]) for step in stream]


def settled(*stream: Sequence[Fragment], later_content: bool = True) -> list[Change]:
    """Return all that a stream settles, text following at its end."""
    assembler = CallAssembler()
    changes = [change for step in steps(assembler, stream) for change in step]
    return changes + assembler.feed([], later_content=later_content)


class Stream(NamedTuple):
    """A recorded stream, its right final calls, and when each call is complete at the earliest."""

    steps: list[list[Fragment]]
    calls: list[tuple[str, dict[str, object]]]
    earliest: list[int | None]
    """Number of the first step after which the call is complete; None before the message ends."""


STREAMS = {
    "S02_index_none_continuation": Stream(
        [
            [(None, "call-A", "get_weather", "")],
            [(None, "", None, '{"city":')],
            [(None, "", None, '"Oslo"}')],
        ],
        [("get_weather", {"city": "Oslo"})],
        [None],
    ),
    "S03_number_prefix": Stream(
        [
            [(0, "call-A", "get_order", '{"order_id": 1')],
            [(0, None, None, "0")],
            [(0, None, None, "00")],
            [(0, None, None, "}")],
        ],
        [("get_order", {"order_id": 1000})],
        [3],
    ),
    "S04_string_prefix": Stream(
        [
            [(0, "call-A", "read_file", '{"path": "/srv')],
            [(0, None, None, "/a")],
            [(0, None, None, 'bc.txt"')],
            [(0, None, None, ', "tail": true}')],
        ],
        [("read_file", {"path": "/srv/abc.txt", "tail": True})],
        [3],
    ),
    "S05_truncated_by_length": Stream([[(0, "call-A", "read_file", '{"path": "/srv/rep')]], [], []),
    "S06_name_repeated_every_chunk": Stream(
        [
            [(0, "call-A", "get_weather", '{"city":')],
            [(0, "call-A", "get_weather", '"Oslo"}')],
        ],
        [("get_weather", {"city": "Oslo"})],
        [1],
    ),
    "S08_interleaved": Stream(
        [
            [(0, "call-A", "get_weather", '{"city":')],
            [(1, "call-B", "get_order", '{"order_id":')],
            [(0, None, None, '"Oslo"}')],
            [(1, None, None, "7}")],
        ],
        [("get_weather", {"city": "Oslo"}), ("get_order", {"order_id": 7})],
        [2, 3],
    ),
    "S09_spec_decode_boundary_delta": Stream(
        [
            [(0, "call-A", "get_weather", '{"city":"Os')],
            [(0, None, None, 'lo"}'), ORDER],
        ],
        [("get_weather", {"city": "Oslo"}), ("get_order", {"order_id": 7})],
        [1, 1],
    ),
    "S11_extra_final_brace": Stream([[WEATHER], [(0, None, None, "}")]], [], []),
    "S12_no_arg_tool_empty_args": Stream(
        [[(0, "call-A", "list_tables", "")]], [("list_tables", {})], [None]
    ),
    "S15_index_int_then_str": Stream(
        [
            [(0, "call-A", "get_weather", '{"city":')],
            [("0", None, None, '"Oslo"}')],
        ],
        [("get_weather", {"city": "Oslo"})],
        [None],
    ),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_b13_b14_b33_streams_report_no_call_early_and_no_wrong_call(stream: Stream) -> None:
    """A call is reported as it ends up, and not before it is complete, also if text follows."""
    assembler = CallAssembler()
    for number, changes in enumerate(steps(assembler, stream.steps)):
        for change in changes:
            assert isinstance(change, ClosedCall)
            earliest = stream.earliest[change.position]
            assert earliest is not None
            assert earliest <= number
            assert (change.name, change.args) == stream.calls[change.position]
    for change in assembler.feed([], later_content=True):
        assert isinstance(change, ClosedCall)
        assert (change.name, change.args) in stream.calls


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("S02_index_none_continuation", []),
        ("S03_number_prefix", [0]),
        ("S04_string_prefix", [0]),
        ("S05_truncated_by_length", []),
        ("S06_name_repeated_every_chunk", []),
        ("S08_interleaved", [1]),
        ("S09_spec_decode_boundary_delta", [0, 1]),
        ("S11_extra_final_brace", []),
        ("S12_no_arg_tool_empty_args", [0]),
        ("S15_index_int_then_str", []),
    ],
)
def test_streams_report_every_call_they_may(name: str, positions: list[int]) -> None:
    """Once text follows, all but the doubtful and malformed calls are reported."""
    assert [change.position for change in settled(*STREAMS[name].steps)] == positions


def test_b13_finished_looking_arguments_close_nothing() -> None:
    """Complete JSON is not reported until something follows it."""
    assembler = CallAssembler()
    assert steps(assembler, [[WEATHER], []]) == [[], []]


def test_next_call_closes_the_one_before() -> None:
    """The start of a call closes its predecessor, and not itself."""
    assembler = CallAssembler()
    assert steps(assembler, [[WEATHER], [ORDER]]) == [[], [WEATHER_CLOSED]]


def test_later_content_closes_all_open_calls_once() -> None:
    """Text after two calls closes both in order; more text changes nothing."""
    assembler = CallAssembler()
    deltas = [CallDelta(*WEATHER), CallDelta(*ORDER)]
    assert assembler.feed(deltas, later_content=True) == [WEATHER_CLOSED, ORDER_CLOSED]
    assert assembler.feed([], later_content=True) == []


def test_block_end_closes_its_own_call_only() -> None:
    """The end of block 1 closes the call of index 1; ends of other blocks are ignored."""
    assembler = CallAssembler()
    assert assembler.feed([CallDelta(*ORDER)], ended=[0, "1"]) == []
    assert assembler.feed([], ended=[1]) == [ClosedCall(0, "get_order", {"order_id": 7}, "call-B")]
    assert assembler.feed([], ended=[1]) == []


def test_whole_calls_without_index_stand_alone() -> None:
    """Providers that send whole calls and no index have each closed by the next."""
    first: Fragment = (None, "a", "f", '{"x": 1}')
    second: Fragment = (None, "b", "f", '{"x": 1}')
    assembler = CallAssembler()
    assert steps(assembler, [[first, second]]) == [[ClosedCall(0, "f", {"x": 1}, "a")]]
    assert assembler.feed([], later_content=True) == [ClosedCall(1, "f", {"x": 1}, "b")]


def test_call_without_id_under_an_index_is_reported() -> None:
    """Servers that send no ids still number their calls; an id that comes late is taken."""
    late_id: Fragment = (1, None, "g", "")
    assert settled([(0, None, "f", "{}")], [late_id], [(1, "b", None, '{"x":2}')]) == [
        ClosedCall(0, "f", {}, None),
        ClosedCall(1, "g", {"x": 2}, "b"),
    ]


def test_repeated_id_and_empty_fragments_change_nothing() -> None:
    """Chunks that repeat the id or carry nothing void no call and start none."""
    empty: list[Fragment] = [(0, "call-A", None, ""), (0, "", "", ""), (5, None, None, "")]
    assert settled([WEATHER], [ORDER], empty, [(None, None, None, None)]) == [
        WEATHER_CLOSED,
        ORDER_CLOSED,
    ]


@pytest.mark.parametrize("raw", ["", None])
def test_b05_no_arguments_wait_for_proof(raw: str | None) -> None:
    """Neither a block's end nor the head of another call shows that no arguments will come."""
    assembler = CallAssembler()
    assert assembler.feed([CallDelta(0, "a", "list_tables", raw)], ended=[0]) == []
    assert assembler.feed([CallDelta(1, "b", "f", "")]) == []
    assert assembler.feed([CallDelta(1, None, None, "{")]) == [
        ClosedCall(0, "list_tables", {}, "a")
    ]


def test_b14_heads_first_then_arguments_reports_no_empty_call() -> None:
    """All heads, then the arguments in order: the first call is not taken for an empty one."""
    heads: list[Fragment] = [(0, "a", "f", ""), (1, "b", "g", "")]
    assert settled(heads, [(0, None, None, '{"x":1}')], [(1, None, None, '{"y":2}')]) == [
        ClosedCall(1, "g", {"y": 2}, "b")
    ]


@pytest.mark.parametrize(
    "raw", ["{}", "null", ' { "order_id" : 5 } ', '{"order_id":5,"a":"\\ud83d"}']
)
def test_b05_strict_objects_and_null_are_reported(raw: str) -> None:
    """`null` is a call without arguments; objects keep what strict JSON says."""
    assert settled([(0, "a", "f", raw)]) == [ClosedCall(0, "f", json.loads(raw) or {}, "a")]


def test_b04_last_of_two_equal_keys_wins() -> None:
    """A key sent twice has the value an executor would give it."""
    assert settled([(0, "a", "f", '{"n":1,"n":2}')]) == [ClosedCall(0, "f", {"n": 2}, "a")]


@pytest.mark.parametrize(
    "raw",
    [
        " ",
        "[1]",
        "7",
        '"{}"',
        "{'a': 1}",
        '{"a": 1,}',
        '{"a": 1}}',
        '{"a": tru',
        '{"a": 1.',
        '{"a": -',
        '{"a": "\\u00',
        '{"a": "x\n y"}',
        '{"city": Oslo}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=lambda raw: raw[:12],
)
def test_b05_b12_anything_but_a_strict_object_is_never_reported(raw: str) -> None:
    """Malformed arguments settle nothing, and the call after them is still reported."""
    assert settled([(0, "a", "f", raw)], [ORDER]) == [ORDER_CLOSED]


def test_floats_are_read_as_usual() -> None:
    """Refusing infinity leaves other numbers alone."""
    assert settled([(0, "a", "f", '{"x":1e3,"y":1.0}')]) == [
        ClosedCall(0, "f", {"x": 1000.0, "y": 1.0}, "a")
    ]


def test_b33_late_delta_voids_once_and_for_good() -> None:
    """A delta for a closed call takes the report back; nothing brings the call back."""
    assembler = CallAssembler()
    tail: list[Fragment] = [(0, None, None, "}")]
    assert steps(assembler, [[WEATHER], [ORDER], tail, tail]) == [
        [],
        [WEATHER_CLOSED],
        [VoidedCall(0)],
        [],
    ]
    assert assembler.feed([], later_content=True, ended=[0]) == [ORDER_CLOSED]


def test_late_delta_in_the_closing_step_reports_nothing() -> None:
    """A step is read to its end before a call counts as closed."""
    assert settled([WEATHER, ORDER, (0, None, None, "}")]) == [ORDER_CLOSED]


@pytest.mark.parametrize(
    "odd",
    [
        (0, "call-A", "get_weather", ""),
        (0, None, "_v2", None),
        (0, "call-Z", None, " "),
        (0, "call-Z", None, None),
        (0, "call-Z", "get_weather", '{"city":"Oslo"}'),
    ],
)
def test_b14_second_name_or_id_on_an_index_spoils_its_call(odd: Fragment) -> None:
    """A repeated name and a fresh id spoil the call, reported or not, and only that call."""
    assert settled([WEATHER], [odd]) == []
    assembler = CallAssembler()
    assert assembler.feed([CallDelta(*WEATHER)], later_content=True) == [WEATHER_CLOSED]
    assert steps(assembler, [[odd], [ORDER]]) == [[VoidedCall(0)], []]
    assert ORDER_CLOSED.args in [
        call.args for call in assembler.feed([], later_content=True) if isinstance(call, ClosedCall)
    ]


def test_b14_two_calls_on_index_zero_hold_two_positions() -> None:
    """A server that numbers every call 0 gets no early run, and later positions still fit."""
    twin: Fragment = (0, "call-Z", "get_weather", '{"city":"Rome"}')
    assert settled([WEATHER], [twin], [(0, None, None, " ")], [ORDER]) == [
        ClosedCall(2, "get_order", {"order_id": 7}, "call-B")
    ]


def test_b14_call_without_a_name_is_not_reported_and_proves_nothing() -> None:
    """A nameless call keeps its position; it does not close the call before it."""
    nameless: Fragment = (1, "call-B", "", '{"order_id":7}')
    assembler = CallAssembler()
    assert steps(assembler, [[WEATHER], [nameless]]) == [[], []]
    third: Fragment = (2, "call-C", "f", "{}")
    assert steps(assembler, [[third]]) == [[WEATHER_CLOSED]]
    assert assembler.feed([], later_content=True) == [ClosedCall(2, "f", {}, "call-C")]


@pytest.mark.parametrize(
    "stray",
    [
        (None, None, None, "}"),
        (None, None, "get_weather", "{}"),
        (None, "call-Z", None, "{}"),
        ("0", None, None, "}"),
        (7, "", "", "}"),
    ],
)
def test_b14_fragment_of_no_call_spoils_the_stream(stray: Fragment) -> None:
    """Nobody knows which call such a fragment belongs to: all are void, and no more come."""
    assembler = CallAssembler()
    assert steps(assembler, [[WEATHER], [ORDER], [stray]]) == [
        [],
        [WEATHER_CLOSED],
        [VoidedCall(0)],
    ]
    assert steps(assembler, [[(8, "c", "f", "{}")], [(9, "d", "f", "{}")]]) == [[], []]
    assert assembler.feed([], later_content=True) == []


def test_b14_continuation_without_index_spoils_its_call() -> None:
    """LangChain does not merge by id alone, so the final message will not hold this call."""
    head: Fragment = (None, "a", "f", '{"x":')
    assert settled([head], [(None, "a", None, "1}")]) == []


def test_b09_one_id_on_two_indexes_is_two_calls() -> None:
    """The index tells calls apart; an id used twice does not."""
    again: Fragment = (1, "call-A", "get_weather", '{"city":"Oslo"}')
    assert settled([WEATHER], [again]) == [
        WEATHER_CLOSED,
        ClosedCall(1, "get_weather", {"city": "Oslo"}, "call-A"),
    ]


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
json_values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
arguments = st.dictionaries(st.text(max_size=4), json_values, max_size=3)


@st.composite
def cut_calls(draw: st.DrawFn) -> tuple[Sequence[Mapping[str, object]], list[list[CallDelta]]]:
    """Draw the arguments of some calls, and for each call the deltas it is cut into."""
    drawn = draw(st.lists(arguments, min_size=1, max_size=5))
    cut: list[list[CallDelta]] = []
    for index, args in enumerate(drawn):
        raw = json.dumps(args) if args or draw(st.booleans()) else ""
        ends = sorted(draw(st.sets(st.integers(0, len(raw)), max_size=4)) | {len(raw)})
        pieces = [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        head = CallDelta(index, f"id{index}", f"tool{index}", pieces[0])
        cut.append([head, *(CallDelta(index, None, None, piece) for piece in pieces[1:])])
    return drawn, cut


def unvoided(changes: Sequence[Change]) -> dict[int, ClosedCall]:
    """Return the calls that stay reported; fail on a second report or a void of no report."""
    standing: dict[int, ClosedCall] = {}
    seen: set[int] = set()
    for change in changes:
        if isinstance(change, VoidedCall):
            del standing[change.position]
        else:
            assert change.position not in seen
            seen.add(change.position)
            standing[change.position] = change
    return standing


@given(cut_calls(), st.data())
def test_any_cut_reports_whole_calls_only(
    calls: tuple[Sequence[Mapping[str, object]], list[list[CallDelta]]], data: st.DataObject
) -> None:
    """However calls are cut and grouped, each is reported once, after its last delta, as it is."""
    final, cut = calls
    stream = [delta for deltas in cut for delta in deltas]
    last = {delta.index: number for number, delta in enumerate(stream)}
    assembler, fed = CallAssembler(), 0
    changes: list[Change] = []
    while fed < len(stream):
        size = data.draw(st.integers(1, len(stream) - fed), label="deltas in this step")
        step, fed = stream[fed : fed + size], fed + size
        # A provider ends a block or moves on to text only once the call is whole.
        index = step[-1].index
        whole = last[index] < fed and index is not None
        ended = [index] if whole and index is not None and data.draw(st.booleans()) else []
        text = whole and data.draw(st.booleans(), label="text follows")
        new = assembler.feed(step, later_content=text, ended=ended)
        assert all(last[change.position] < fed for change in new)
        changes += new
    changes += assembler.feed([], later_content=True)
    assert unvoided(changes) == {
        position: ClosedCall(position, f"tool{position}", dict(args), f"id{position}")
        for position, args in enumerate(final)
    }
    assert len(changes) == len(final)


@given(cut_calls(), st.data())
def test_interleaved_cuts_leave_only_right_calls(
    calls: tuple[Sequence[Mapping[str, object]], list[list[CallDelta]]], data: st.DataObject
) -> None:
    """Deltas of several calls in turn: a call that stays reported is equal to the final one."""
    final, cut = calls
    queues = [list(deltas) for deltas in cut]
    assembler = CallAssembler()
    changes: list[Change] = []
    order: list[int] = []
    while waiting := [index for index, deltas in enumerate(queues) if deltas]:
        index = data.draw(st.sampled_from(waiting), label="next call")
        order += [] if index in order else [index]
        changes += assembler.feed([queues[index].pop(0)], later_content=data.draw(st.booleans()))
    changes += assembler.feed([], later_content=True)
    for position, call in unvoided(changes).items():
        index = order[position]
        assert call == ClosedCall(position, f"tool{index}", dict(final[index]), f"id{index}")


fragments = st.builds(
    CallDelta,
    index=st.none() | st.integers(0, 2) | st.sampled_from(["0", "lc_1"]),
    id=st.none() | st.sampled_from(["", "a", "b"]),
    name=st.none() | st.sampled_from(["", "f"]),
    args=st.none() | st.sampled_from(["", "{", "}", "{}", '{"x":1}', "null", "]"]),
)


@given(
    st.lists(st.tuples(st.lists(fragments, max_size=3), st.booleans(), st.sets(st.integers(0, 2))))
)
def test_b14_no_stream_raises_or_reports_twice(
    stream: list[tuple[list[CallDelta], bool, set[int]]],
) -> None:
    """Any fragments at all: named calls only, one report each, and voids only of reports."""
    assembler = CallAssembler()
    changes: list[Change] = []
    for deltas, text, ended in stream:
        changes += assembler.feed(deltas, later_content=text, ended=ended)
    assert all(call.name == "f" for call in unvoided(changes).values())
