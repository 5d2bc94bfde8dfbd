"""What chunks and protocol events of a model stream are read as."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tracers._streaming import (
    _StreamingCallbackHandler,
    _V2StreamingCallbackHandler,
)

from langchain_spectool._core.assembly import CallAssembler, CallDelta, ClosedCall, VoidedCall
from langchain_spectool.graph.deltas import (
    StreamStep,
    step_of_chunk,
    step_of_event,
    truncated,
    truncated_message,
)

NOTHING = StreamStep()
HEAD = CallDelta(0, "a", "get_weather", '{"city":')
TAIL = CallDelta(0, None, None, '"Oslo"}')
CONTENT = StreamStep(later_content=True)


def chunk(content: Any = "", *deltas: CallDelta, **fields: Any) -> AIMessageChunk:
    """Build a chunk as a provider's package does."""
    parts = [tool_call_chunk(index=d.index, id=d.id, name=d.name, args=d.args) for d in deltas]
    return AIMessageChunk(content=content, tool_call_chunks=parts, **fields)


def test_chunk_gives_its_deltas_in_order() -> None:
    """Several fragments of one chunk stay apart and in order."""
    second = CallDelta(1, "b", "get_order", "{}")
    assert step_of_chunk(chunk("", HEAD, second)) == StreamStep(deltas=(HEAD, second))


def test_generation_chunk_is_read_like_its_message() -> None:
    """`on_llm_new_token` hands over the generation; its own finish reason counts too."""
    generation = ChatGenerationChunk(
        message=chunk("", TAIL), generation_info={"finish_reason": "tool_calls"}
    )
    assert step_of_chunk(generation) == StreamStep(deltas=(TAIL,), finish_reason="tool_calls")


def test_whole_call_of_a_message_built_from_tool_calls() -> None:
    """Packages that fill `tool_calls` instead of fragments give a whole call without index."""
    message = AIMessageChunk(
        content="", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "a", "type": "tool_call"}]
    )
    assert step_of_chunk(message).deltas == (CallDelta(None, "a", "f", '{"x": 1}'),)


def silent(step: StreamStep) -> StreamStep:
    """Return `step` without its text, which says nothing of calls."""
    return replace(step, text="")


@pytest.mark.parametrize(
    ("content", "later"),
    [
        ("", False),
        ("Done.", True),
        ([], False),
        (["", {"type": "text", "text": "", "index": 1}], False),
        ([{"type": "text", "text": "Done.", "index": 1}], True),
        (["Done."], True),
        ([{"type": "thinking", "thinking": "", "index": 1}], True),
        ([{"type": "reasoning", "summary": [], "index": 1}], True),
        ([{"type": "server_tool_use", "name": "web_search", "input": {}, "index": 1}], True),
        ([{"type": "tool_use", "id": "a", "name": "f", "input": {}, "index": 1}], False),
        ([{"type": "input_json_delta", "partial_json": "{", "index": 1}], False),
        ([{"type": "function_call", "arguments": "{", "index": 1}], False),
        ([{"type": "tool_call_chunk", "args": "{", "index": 1}], False),
        ([{"text": "a block without a type"}], False),
    ],
)
def test_content_of_a_chunk_without_deltas(content: Any, *, later: bool) -> None:
    """Text that is not empty and blocks that are no calls follow the calls before them."""
    assert silent(step_of_chunk(chunk(content))) == StreamStep(later_content=later)


@pytest.mark.parametrize(
    ("content", "later"),
    [
        ("Let me look.", False),
        ([{"type": "text", "text": "Let me look."}], False),
        ([{"type": "text", "text": "So:"}, {"type": "tool_use", "id": "a"}], False),
        ([{"type": "tool_use", "id": "a"}, {"type": "text", "text": "Meanwhile"}], True),
        ([{"type": "tool_use", "id": "a"}, {"type": "text", "text": ""}], False),
    ],
)
def test_content_beside_deltas_counts_only_when_it_shows_its_place(
    content: Any, *, later: bool
) -> None:
    """A chunk with both closes its calls only if a list puts content after the call blocks."""
    step = step_of_chunk(chunk(content, HEAD))
    assert silent(step) == StreamStep(deltas=(HEAD,), later_content=later)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, None),
        ({"finish_reason": "length"}, "length"),
        ({"finish_reason": None, "stop_reason": "max_tokens"}, "max_tokens"),
        ({"stopReason": "tool_use"}, "tool_use"),
        ({"done_reason": "stop"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "x"}}, "incomplete"),
        ({"finish_reason": 7}, None),
    ],
)
def test_finish_reason_under_every_provider_key(
    metadata: dict[str, Any], reason: str | None
) -> None:
    """The reason comes back in the provider's own words, from chunks and from events."""
    assert step_of_chunk(chunk(response_metadata=metadata)).finish_reason == reason
    finish = {"event": "message-finish", "metadata": metadata}
    assert step_of_event(finish) == StreamStep(finish_reason=reason)


@pytest.mark.parametrize(
    ("reason", "cut"),
    [
        (None, False),
        ("", False),
        ("stop", False),
        ("tool_calls", False),
        ("end_turn", False),
        ("completed", False),
        ("STOP", False),
        ("length", True),
        ("lengthlength", True),
        ("max_tokens", True),
        ("MAX_TOKENS", True),
        ("max_output_tokens", True),
        ("model_length", True),
        ("model_context_window_exceeded", True),
        ("incomplete", True),
        ("content_filter", True),
        ("abort", True),
    ],
)
def test_b13_truncation_in_every_spelling(reason: str | None, *, cut: bool) -> None:
    """Reasons that leave the last call half written are told from those that do not."""
    assert truncated(reason) is cut
    metadata = {} if reason is None else {"finish_reason": reason}
    assert truncated_message(AIMessage(content="", response_metadata=metadata)) is cut


def test_only_answers_of_a_model_can_be_truncated() -> None:
    """Other messages and other objects are not."""
    assert not truncated_message(HumanMessage("x", response_metadata={"finish_reason": "length"}))
    assert not truncated_message(None)


def odd_chunk(**fields: Any) -> AIMessageChunk:
    """Build a chunk that no validation has seen."""
    return AIMessageChunk.model_construct(**{"content": "", **fields})


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "text",
        {"content": "a dict is no chunk"},
        AIMessage("a finished message is no chunk"),
        HumanMessage("x"),
        odd_chunk(content=None),
        odd_chunk(content=[None, 7, {"type": ["text"]}]),
        odd_chunk(tool_call_chunks="{}"),
        odd_chunk(response_metadata=None),
        odd_chunk(response_metadata=["length"]),
    ],
    ids=lambda odd: type(odd).__name__,
)
def test_odd_chunks_are_empty_steps(odd: Any) -> None:
    """What cannot be read says nothing, and raises nothing."""
    assert step_of_chunk(odd) == NOTHING


def test_odd_fragments_spoil_the_stream() -> None:
    """A fragment that names no call stands for one nobody can place: no call is trusted."""
    odd = odd_chunk(tool_call_chunks=[None, {"index": [0], "id": 7, "name": 7, "args": "}"}])
    step = step_of_chunk(odd)
    assert step.deltas[1] == CallDelta(None, None, None, "}")
    assembler = CallAssembler()
    assembler.feed([HEAD, TAIL])
    assembler.feed(step.deltas)
    assert assembler.feed([], later_content=True) == []


def start(content: Any, index: Any = 0) -> dict[str, Any]:
    """Build the event that opens a block."""
    return {"event": "content-block-start", "index": index, "content": content}


def delta(content: Any, index: Any = 0) -> dict[str, Any]:
    """Build the event that adds to a block."""
    return {"event": "content-block-delta", "index": index, "delta": content}


def finish(content: Any, index: Any = 0) -> dict[str, Any]:
    """Build the event that closes a block."""
    return {"event": "content-block-finish", "index": index, "content": content}


@pytest.mark.parametrize(
    ("event", "step"),
    [
        (
            start({"type": "tool_call_chunk", "id": "a", "name": "f", "args": "", "index": 9}),
            StreamStep(deltas=(CallDelta(0, "a", "f", ""),)),
        ),
        (start({"type": "text", "text": ""}), NOTHING),
        (start({"type": "text", "text": "Done."}), CONTENT),
        (start({"type": "reasoning", "reasoning": ""}), CONTENT),
        (start({"type": "image", "url": "x"}), CONTENT),
        (
            start({"type": "server_tool_call_chunk", "name": "web_search", "args": ""}, 3),
            StreamStep(deltas=(CallDelta(3, "?", None, None),), later_content=True),
        ),
        (
            start({"type": "tool_call", "id": "a", "name": "f", "args": {}}, 3),
            StreamStep(deltas=(CallDelta(3, "a", None, None),), later_content=True),
        ),
        (
            delta({"type": "tool-call-delta", "args": '{"x"'}),
            StreamStep(deltas=(CallDelta(0, None, None, '{"x"'),)),
        ),
        (
            delta(
                {
                    "type": "block-delta",
                    "fields": {"type": "tool_call_chunk", "id": "a", "name": "f", "args": "{}"},
                }
            ),
            StreamStep(deltas=(CallDelta(0, "a", "f", "{}"),)),
        ),
        (delta({"type": "block-delta", "fields": {"type": "image"}}), NOTHING),
        (delta({"type": "block-delta", "fields": None}), NOTHING),
        (delta({"type": "text-delta", "text": "D"}), CONTENT),
        (delta({"type": "text-delta", "text": ""}), NOTHING),
        (delta({"type": "reasoning-delta", "reasoning": "D"}), CONTENT),
        (delta({"type": "reasoning-delta"}), NOTHING),
        (delta({"type": "data-delta", "data": "AAAA"}), NOTHING),
        (
            finish({"type": "tool_call", "id": "a", "name": "f", "args": {}}),
            StreamStep(deltas=(CallDelta(0, "a", None, None),), ended=(0,)),
        ),
        (finish({"type": "tool_call", "id": "a", "name": "f", "args": {}}, None), NOTHING),
        (finish({"type": "invalid_tool_call", "id": "a", "name": "f", "args": "{"}), NOTHING),
        (finish({"type": "text", "text": "Done."}), NOTHING),
        ({"event": "message-start", "role": "ai", "id": "m"}, NOTHING),
        ({"event": "message-finish"}, NOTHING),
        ({"event": "error", "message": "x"}, NOTHING),
        (start(None), NOTHING),
        (delta(None), NOTHING),
        (finish(7), NOTHING),
        ({"event": ["unhashable"]}, NOTHING),
        ({}, NOTHING),
        (None, NOTHING),
        ("message-finish", NOTHING),
    ],
)
def test_events(event: Any, step: StreamStep) -> None:
    """Each event of the protocol, and what is no event, is read as stated."""
    assert silent(step_of_event(event)) == step


@pytest.mark.parametrize(
    ("content", "plain"),
    [
        ("Let me look.", "Let me look."),
        ([{"type": "text", "text": "So"}, {"type": "text", "text": "."}], "So."),
        ([{"type": "reasoning", "reasoning": "hm"}, "loose"], ""),
        ("", ""),
    ],
)
def test_text_of_a_chunk(content: Any, plain: str) -> None:
    """What the user will read is told apart from thoughts and calls."""
    assert step_of_chunk(chunk(content)).text == plain


def test_text_of_an_event() -> None:
    """Text comes in deltas of its own; thoughts are no text."""
    deltas = [{"type": "text-delta", "text": "a"}, {"type": "reasoning-delta", "reasoning": "b"}]
    events = [{"event": "content-block-delta", "delta": delta, "index": 0} for delta in deltas]
    assert [step_of_event(event).text for event in events] == ["a", ""]


class Scripted(BaseChatModel):
    """A model that streams the chunks it was given."""

    script: list[AIMessageChunk]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for message in self.script:
            yield ChatGenerationChunk(message=message.model_copy(deep=True))

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for generation in self._stream(messages):
            yield generation


class ChunkTap(BaseCallbackHandler, _StreamingCallbackHandler):
    """Reads the chunks of a run."""

    run_inline = True

    def __init__(self) -> None:
        self.steps: list[StreamStep] = []

    def on_llm_new_token(self, token: str, *, chunk: Any = None, **kwargs: Any) -> None:
        self.steps.append(step_of_chunk(chunk))

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        return output


class EventTap(BaseCallbackHandler, _V2StreamingCallbackHandler):
    """Reads the protocol events of a run."""

    run_inline = True

    def __init__(self) -> None:
        self.steps: list[StreamStep] = []

    def on_stream_event(self, event: Any, **kwargs: Any) -> None:
        self.steps.append(step_of_event(event))


SCRIPT = [
    chunk("Let me look."),
    chunk("", CallDelta(0, "a", "get_weather", "")),
    chunk("", CallDelta(0, None, None, '{"city":')),
    chunk("", TAIL),
    chunk("", CallDelta(1, "b", "get_order", '{"order_id":7}')),
    chunk("And then"),
    chunk("", response_metadata={"finish_reason": "tool_calls"}),
]


@pytest.mark.parametrize("tap_type", [ChunkTap, EventTap])
@pytest.mark.parametrize("sync", [True, False], ids=["invoke", "ainvoke"])
def test_a_run_reports_its_calls_early(tap_type: type[ChunkTap | EventTap], *, sync: bool) -> None:
    """Fragments and events of a real run both report the very calls of the final message."""
    model, tap = Scripted(script=SCRIPT), tap_type()
    config: Any = {"callbacks": [tap]}
    final = model.invoke("hi", config) if sync else asyncio.run(model.ainvoke("hi", config))
    assembler = CallAssembler()
    changes: list[ClosedCall | VoidedCall] = []
    closed_before_text: int | None = None
    for step in tap.steps:
        changes += assembler.feed(step.deltas, later_content=step.later_content, ended=step.ended)
        if step.later_content:
            closed_before_text = len(changes)
    assert closed_before_text == 2
    assert changes == [
        ClosedCall(position, call["name"], call["args"], call["id"])
        for position, call in enumerate(final.tool_calls)
    ]
    assert "tool_calls" in [step.finish_reason for step in tap.steps]


def test_b14_an_id_that_changes_shows_at_the_block_end() -> None:
    """Events hide that a server sent two calls under one index; the block's end gives it away."""
    twin = [
        chunk("", CallDelta(0, "a", "f", "")),
        chunk("", CallDelta(0, "b", "g", '{"x":1}')),
        chunk("That was all."),
    ]
    tap = EventTap()
    Scripted(script=twin).invoke("hi", {"callbacks": [tap]})
    assembler = CallAssembler()
    changes = [
        change
        for step in tap.steps
        for change in assembler.feed(
            step.deltas, later_content=step.later_content, ended=step.ended
        )
    ]
    assert changes == [ClosedCall(0, "f", {"x": 1}, "a"), VoidedCall(0)]


def test_server_side_calls_are_nobodys_guess() -> None:
    """A call the provider runs itself closes the one before and is never reported."""
    events = [
        start({"type": "tool_call_chunk", "id": "a", "name": "f", "args": ""}, 0),
        delta({"type": "tool-call-delta", "args": "{}"}, 0),
        start({"type": "server_tool_call_chunk", "name": "web_search", "args": ""}, 1),
        delta({"type": "tool-call-delta", "args": '{"q":"x"}'}, 1),
        finish({"type": "server_tool_call", "id": "s", "name": "web_search", "args": {}}, 1),
        start({"type": "tool_call_chunk", "id": "b", "name": "g", "args": "{}"}, 2),
        delta({"type": "text-delta", "text": "Done."}, 3),
    ]
    assembler = CallAssembler()
    changes = [
        change
        for step in map(step_of_event, events)
        for change in assembler.feed(
            step.deltas, later_content=step.later_content, ended=step.ended
        )
    ]
    assert changes == [ClosedCall(0, "f", {}, "a"), ClosedCall(2, "g", {}, "b")]
