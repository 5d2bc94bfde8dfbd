"""Reads and checks the body of a chat request."""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from vllm_spectool._core.outcomes import Decline
from vllm_spectool._core.params import parse_json
from vllm_spectool._core.protocol import REQUEST_ID_HEADER, response_id
from vllm_spectool._core.store import Owner
from vllm_spectool._core.terms import KEY_ARGUMENT, Sampling, is_opted_in, key_digest
from vllm_spectool.errors import MalformedError, RenderingError
from vllm_spectool.reference.engine import Engine
from vllm_spectool.reference.request import ChatRequest
from vllm_spectool.reference.template import ChatTemplate

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


class _FieldError(MalformedError):
    """A field of the request is wrong."""

    def __init__(self, *, field: str, what: str) -> None:
        super().__init__(f"`{field}` {what}", field=field)


def read_chat(
    body: bytes, headers: Mapping[str, str], *, engine: Engine
) -> tuple[ChatRequest, bool]:
    """Return the request, and whether it names a key that is none.

    Raises:
        MalformedError: A field is wrong, or the prompt leaves no room for what is asked.
    """
    fields = _fields(body)
    tools = _tools(fields)
    template = ChatTemplate(engine.style, engine.tokenizer, tools)
    messages = _messages(fields)
    try:
        prompt_ids = template.prompt(messages)
    except RenderingError as error:
        raise MalformedError(str(error), field="messages") from error
    max_tokens = _max_tokens(fields)
    _check_room(engine, prompt_ids, max_tokens)
    served = response_id(headers.get(REQUEST_ID_HEADER.lower()) or uuid4().hex)
    owner, malformed_key = _owner(fields, served)
    request = ChatRequest(
        id=served,
        prompt_ids=tuple(prompt_ids),
        messages=messages,
        template=template,
        max_tokens=max_tokens,
        stop=_stop(fields),
        tools=() if fields.get("tool_choice") == "none" else tuple(tools),
        owner=owner,
        bar=_bar(fields),
        stream=fields.get("stream") is True,
        include_usage=_includes_usage(fields),
    )
    return request, malformed_key


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(body)
    except ValueError as error:
        raise _FieldError(field="body", what=f"must be JSON: {error}") from error
    if not isinstance(fields, dict):
        raise _FieldError(field="body", what="must be an object")
    read = cast("dict[str, Any]", fields)
    if read.get("n") not in (None, 1):
        raise _FieldError(
            field="n", what="must be 1: the reference engine says one thing at a time"
        )
    return read


def _messages(fields: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    messages = tuple(_objects(fields, "messages"))
    if not messages:
        raise _FieldError(field="messages", what="must have at least one message")
    for index, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise _FieldError(
                field=f"messages[{index}].role", what=f"must be one of {', '.join(sorted(_ROLES))}"
            )
    return messages


def _tools(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    tools = _objects(fields, "tools")
    for index, each in enumerate(tools):
        function = each.get("function")
        if not isinstance(function, dict) or not isinstance(
            cast("dict[str, Any]", function).get("name"), str
        ):
            raise _FieldError(field=f"tools[{index}].function", what="must have a name")
    return tools


def _objects(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value: object = fields.get(name) or []
    if not isinstance(value, list):
        raise _FieldError(field=name, what="must be a list of objects")
    items = cast("list[object]", value)
    if not all(isinstance(item, dict) for item in items):
        raise _FieldError(field=name, what="must be a list of objects")
    return cast("list[dict[str, Any]]", items)


def _max_tokens(fields: Mapping[str, Any]) -> int | None:
    name = "max_completion_tokens" if fields.get("max_completion_tokens") else "max_tokens"
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or value < 1):
        raise _FieldError(field=name, what="must be a whole number of 1 or more")
    return value


def _check_room(engine: Engine, prompt_ids: Sequence[int], max_tokens: int | None) -> None:
    if engine.granted(max_tokens, len(prompt_ids)) is None:
        asked = f"{max_tokens or 1} output tokens and {len(prompt_ids)} prompt tokens"
        what = f"and `messages` ask for {asked}; the context holds {engine.limits.context_tokens}"
        raise _FieldError(field="max_tokens", what=what)


def _owner(fields: Mapping[str, Any], served: str) -> tuple[Owner | None, bool]:
    arguments = fields.get("vllm_xargs")
    extra = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None
    if not is_opted_in(extra):
        return None, False
    digest = key_digest((extra or {})[KEY_ARGUMENT])
    return (None, True) if digest is None else ((served, digest), False)


def _includes_usage(fields: Mapping[str, Any]) -> bool:
    options: object = fields.get("stream_options") or {}
    if not isinstance(options, dict):
        raise _FieldError(field="stream_options", what="must be an object")
    return cast("dict[str, Any]", options).get("include_usage") is True


def _stop(fields: Mapping[str, Any]) -> tuple[str, ...]:
    stop: object = fields.get("stop") or []
    texts = cast("list[object]", stop if isinstance(stop, list) else [stop])
    read = tuple(each for each in texts if isinstance(each, str))
    if len(read) < len(texts):
        raise _FieldError(field="stop", what="must be a string or a list of strings")
    return read


def _bar(fields: Mapping[str, Any]) -> Decline | None:
    choice = fields.get("tool_choice")
    formatted = fields.get("response_format") or fields.get("structured_outputs")
    return Sampling(
        seed=fields.get("seed"),
        stop=_stop(fields),
        stop_token_ids=fields.get("stop_token_ids") or (),
        prompt_logprobs=fields.get("prompt_logprobs"),
        ignore_eos=bool(fields.get("ignore_eos")),
        beam_search=bool(fields.get("use_beam_search")),
        grammar=bool(formatted)
        or choice not in (None, "auto", "none")
        or fields.get("parallel_tool_calls") is False,
    ).bar
