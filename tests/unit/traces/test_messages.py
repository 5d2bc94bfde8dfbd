"""One message from each form that recordings hold, and the reason where there is none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
)
from langchain_core.messages.tool import tool_call

from langchain_spectool.traces.messages import is_message, message_from, messages_from
from langchain_spectool.traces.trajectory import UnreadableError

MESSAGES: list[BaseMessage] = [
    SystemMessage("be kind", id="s1"),
    HumanMessage([{"type": "text", "text": "hi"}], id="h1"),
    AIMessage("", id="a1", tool_calls=[tool_call(name="look", args={"q": ["ä", 1.0]}, id="c1")]),
    ToolMessage("found", id="t1", tool_call_id="c1", name="look", status="error"),
    AIMessage("done", id="a2"),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "type",
                    "content",
                    "data",
                    "kwargs",
                    "id",
                    "tool_calls",
                    "function",
                    "name",
                ]
            )
            | st.text(max_size=4),
            inner | st.sampled_from(["assistant", "tool", "constructor", "ai"]),
            max_size=6,
        )
    ),
    max_leaves=20,
)
"""Any JSON, and more of what nearly is a message."""


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.id)
@pytest.mark.parametrize(
    "write", [message_to_dict, dumpd, BaseMessage.model_dump, lambda message: message]
)
def test_every_form_of_langchain_is_the_same_message(message: BaseMessage, write: Any) -> None:
    """`messages_to_dict`, serialized constructors, `model_dump` and the message itself agree."""
    assert message_from(write(message)) == message


def test_a_chunk_is_a_message() -> None:
    """Recorded streams end in chunks, which say what a message says."""
    chunk = AIMessageChunk("yes", id="a")
    assert message_from(message_to_dict(chunk)) == AIMessage("yes", id="a")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"role": "system", "content": "s"}, SystemMessage("s")),
        ({"role": "developer", "content": "s"}, SystemMessage("s")),
        ({"role": "user", "content": "u"}, HumanMessage("u")),
        ({"role": "assistant", "content": None}, AIMessage("")),
        ({"role": "tool", "tool_call_id": "1", "content": "t"}, ToolMessage("t", tool_call_id="1")),
        ({"role": "tool", "content": "t"}, ToolMessage("t", tool_call_id="")),
    ],
    ids=str,
)
def test_openai_roles(value: dict[str, Any], message: BaseMessage) -> None:
    """Each role of OpenAI's form is one kind of message."""
    assert message_from(value) == message


@pytest.mark.parametrize(
    ("arguments", "args"),
    [('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("", {}), (None, {}), ("{}", {})],
    ids=str,
)
def test_arguments_are_read_as_json(arguments: object, args: dict[str, Any]) -> None:
    """Arguments come as JSON text, as an object, or not at all."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = message_from({"role": "assistant", "tool_calls": [call]})
    assert message == AIMessage("", tool_calls=[tool_call(name="f", args=args, id="c")])


@pytest.mark.parametrize(
    "arguments", ['{"a": ', "[1]", "[" * 100_000, 7, [1]], ids=lambda a: str(a)[:9]
)
def test_what_a_model_wrote_in_vain_is_no_call(arguments: object) -> None:
    """Arguments that are no object are kept as an invalid call, as LangChain keeps them."""
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    message = message_from({"role": "assistant", "tool_calls": [call]})
    assert isinstance(message, AIMessage)
    assert message.tool_calls == []
    assert [broken["name"] for broken in message.invalid_tool_calls] == ["f"]


def test_calls_in_the_additional_kwargs_count() -> None:
    """Old recordings of LangChain hold calls only as the provider wrote them."""
    raw = [{"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    data = {"content": "", "tool_calls": [], "additional_kwargs": {"tool_calls": raw}}
    message = message_from({"type": "ai", "data": data})
    assert isinstance(message, AIMessage)
    assert [call["args"] for call in message.tool_calls] == [{"a": 1}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "a message is a JSON object, got NoneType"),
        ({}, "None is no kind of message"),
        ({"role": "pirate", "content": "arr"}, "'pirate' is no kind of message"),
        ({"role": ["user"]}, "is no kind of message"),
        ({"type": "constructor", "id": [], "kwargs": {}}, "None is no kind"),
        ({"type": "constructor", "id": ["os", "popen"], "kwargs": {}}, "'popen' is no kind"),
        ({"role": "user", "content": 7}, "`content` is text or a list of blocks, got int"),
        ({"role": "user", "content": [7]}, "`content` is text or a list of blocks, got list"),
        ({"role": "assistant", "tool_calls": 7}, "`tool_calls` is a list, got int"),
        ({"role": "assistant", "tool_calls": [7]}, "a tool call is a JSON object, got int"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "a tool call has no name"),
        ({"type": "ai", "tool_calls": [{"name": "f", "args": {1: 2}}]}, "no message of kind 'ai'"),
        (RemoveMessage(id="r"), "'remove' is no kind of message"),
        (AIMessage.model_construct(content=7), "`content` is text"),
    ],
    ids=str,
)
def test_what_is_no_message_has_a_reason(value: object, reason: str) -> None:
    """Each kind of damage is named."""
    with pytest.raises(UnreadableError, match=reason):
        message_from(value)


def test_the_place_of_a_bad_message_is_named() -> None:
    """The reason says which message of a list it is."""
    with pytest.raises(UnreadableError, match="message 2: 'x' is no kind"):
        messages_from([{"role": "user"}, {"role": "x"}])


def test_no_messages_is_a_reason() -> None:
    """An empty conversation teaches nothing."""
    with pytest.raises(UnreadableError, match="no messages"):
        messages_from([])


@given(JSON)
def test_any_json_is_a_message_or_has_a_reason(value: object) -> None:
    """Nothing but `UnreadableError` is raised, and `is_message` never."""
    looks = is_message(value)
    try:
        message = message_from(value)
    except UnreadableError:
        return
    assert looks
    assert isinstance(message, BaseMessage)
