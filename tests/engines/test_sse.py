"""Events are cut where they end, however the chunks fall."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_spectool.engines import sse
from langchain_spectool.engines.sse import EventSplitter, data_of, is_done

ENDS = ["\n", "\r\n", "\r"]


def _cut(body: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


@given(
    st.lists(st.sampled_from(["data: a", "data: [DONE]", ": still here", "event: x\ndata: b"])),
    st.sampled_from(ENDS),
    st.lists(st.integers(0, 400)),
)
def test_events_do_not_depend_on_chunks(said: list[str], end: str, places: list[int]) -> None:
    """The events, and what they say, are the same wherever the network cuts them."""
    events = [(line.replace("\n", end) + end + end).encode() for line in said]
    body = b"".join(events)
    splitter = EventSplitter()
    found = [event for chunk in _cut(body, places) for event in splitter.feed(chunk)]
    left = splitter.rest()
    assert b"".join(found) + left == body
    whole = found if not left else [*found, left]
    assert [data_of(event) for event in whole] == [data_of(event) for event in events]


def test_a_lone_return_waits_for_what_follows() -> None:
    r"""Half of \r\n is no end: the other half would be taken for an event of its own."""
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r\n\r") == []
    assert splitter.feed(b"\ndata: b\r\n\r\n") == [b"data: a\r\n\r\n", b"data: b\r\n\r\n"]


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"data:a\n\n", b"a"),
        (b"data\n\n", b""),
        (b"database: a\n\n", None),
        (b": data: a\n\n", None),
        (b"\n\n", None),
    ],
)
def test_data(event: bytes, data: bytes | None) -> None:
    """Data is what the standard says it is."""
    assert data_of(event) == data


@pytest.mark.parametrize(
    ("event", "done"),
    [
        (b"data: [DONE]\n\n", True),
        (b"data:[DONE]\r\n\r\n", True),
        (b'data: {"content": "[DONE]"}\n\n', False),
        (b": [DONE]\n\n", False),
    ],
)
def test_done(event: bytes, done: bool) -> None:
    """A model that writes the word does not end its answer."""
    assert is_done(event) is done


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no events in it is not kept for ever."""
    monkeypatch.setattr(sse, "MOST_BYTES", 10)
    splitter = EventSplitter()
    with pytest.raises(ValueError, match="more than 10 bytes"):
        splitter.feed(b"x" * 11)
    assert splitter.rest() == b"x" * 11
