"""One client for every server: the reference engine, or the one that SPECTOOL_CONTRACT_URL names.

- `SPECTOOL_CONTRACT_URL`: base URL without `/v1`; unset starts the reference engine, in two styles.
- `SPECTOOL_CONTRACT_MODEL`: name of the served model; `SPECTOOL_CONTRACT_API_KEY`: a key of it.
- `SPECTOOL_CONTRACT_PROMPTS`: a JSON file with, for each of `single`, `parallel` and `two_turns`,
  an object of `messages` and `tools` on which the model makes one call and then answers, makes two
  calls at once and then answers, or makes a call, another one, and then answers. Cases whose
  prompt is missing are skipped. Unset: the prompts below, on which such a model can be trained.
- `SPECTOOL_CONTRACT_SPECIAL`: a special token's text; unset: `<|im_end|>`.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool.reference import (
    CHATML,
    DRIFTING,
    LLAMA,
    Call,
    Prompt,
    Reference,
    ReferenceSettings,
    Style,
    Turn,
    serving,
)

API_KEY = "sk-contract"


def tool(name: str, argument: str) -> dict[str, Any]:
    """Return a tool with one required string, as a request names it."""
    properties = {argument: {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": [argument]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("weather", "city"), tool("capital", "country")]
PROMPTS: dict[str, dict[str, Any]] = {
    name: {"messages": [{"role": "user", "content": content}], "tools": TOOLS}
    for name, content in {
        "single": "What is the weather in Rome?",
        "parallel": "What is the weather in Rome and in Oslo?",
        "two_turns": "What is the weather in the capital of Norway?",
    }.items()
}


def contract_model(prompt: Prompt) -> Turn | str:
    """Say what the prompts ask for."""
    user = next(each.text for each in prompt.said if each.role == "user")
    outputs = [each.text for each in prompt.said if each.role == "tool"]
    if "capital" in user and not outputs:
        return Turn(
            content="First the capital.", calls=[Call(name="capital", params={"country": "Norway"})]
        )
    if "capital" in user and len(outputs) == 1:
        return Turn(calls=[Call(name="weather", params={"city": "Oslo"})])
    if not outputs:
        cities = ["Rome", "Oslo"] if "Oslo" in user else ["Rome"]
        return Turn(calls=[Call(name="weather", params={"city": city}) for city in cities])
    return f"I was told: {' / '.join(outputs)} (é, 😀)"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One turn, as a client understands it."""

    content: str
    calls: tuple[tuple[str, str], ...]
    finish_reason: str
    usage: tuple[int, int, int]
    call_ids: tuple[str, ...] = field(compare=False)
    id: str = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Said:
    """All that one request brought."""

    turns: tuple[Answer, ...]
    resolved: tuple[tuple[Mapping[str, Any], ...], ...]
    """What stood before each turn but the first."""
    raw: str


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server under test, and what the cases do to it."""

    http: httpx.Client
    model: str
    prompts: Mapping[str, Mapping[str, Any]]
    special: str
    has_key: bool
    key: str = "contract-key-0123456789abcdef"
    """What opts a request in."""

    def prompt(self, name: str) -> Mapping[str, Any]:
        if name not in self.prompts:
            pytest.skip(f"the server's model has no prompt for {name!r}")
        return self.prompts[name]

    def post(self, request_id: str, entries: Any, *, key: str | None = None) -> httpx.Response:
        path = f"/cache-tool-output/chatcmpl-{request_id}"
        return self.http.post(path, json=entries, headers={"X-Spectool-Key": key or self.key})

    def delete(self, request_id: str, *, key: str | None = None) -> httpx.Response:
        path = f"/v1/cache-tool-output/chatcmpl-{request_id}"
        return self.http.delete(path, headers={"X-Spectool-Key": key or self.key})

    def output_of(self, name: str, arguments: str) -> str:
        """Do what the tool does."""
        return output_of(name, arguments)

    def entries(self, turns: Sequence[Answer], **fields: Any) -> list[dict[str, Any]]:
        """Return an entry for each call of `turns`."""
        return [
            {"name": name, "params": json.loads(arguments), "output": output_of(name, arguments)}
            | fields
            for turn in turns
            for name, arguments in turn.calls
        ]

    def ask(
        self,
        prompt: Mapping[str, Any],
        *,
        stream: bool,
        request_id: str | None = None,
        opted_in: bool = False,
        **fields: Any,
    ) -> Said:
        """Send one request."""
        body = {"model": self.model, "temperature": 0, "max_tokens": 200, **prompt, **fields}
        body |= {"vllm_xargs": {"spectool_key": self.key}} if opted_in else {}
        body |= {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        headers = {"X-Request-Id": request_id} if request_id else {}
        response = self.http.post("/v1/chat/completions", json=body, headers=headers)
        assert response.status_code == 200, response.text
        return streamed(response.text) if stream else whole(response.text)

    def round_trip(
        self, prompt: Mapping[str, Any], *, stream: bool, **fields: Any
    ) -> tuple[Answer, ...]:
        """Answer each call as a client does, with one request for each turn."""
        messages = list(prompt["messages"])
        turns: list[Answer] = []
        while True:
            said = self.ask({**prompt, "messages": messages}, stream=stream, **fields)
            (turn,) = said.turns
            turns.append(turn)
            if not turn.calls:
                return tuple(turns)
            messages += as_messages(turn)


def as_messages(turn: Answer) -> list[dict[str, Any]]:
    """Return the messages that a client adds for a turn with calls."""
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, (name, arguments) in zip(turn.call_ids, turn.calls, strict=True)
    ]
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": output_of(*call)}
        for call_id, call in zip(turn.call_ids, turn.calls, strict=True)
    ]
    return [{"role": "assistant", "content": turn.content or None, "tool_calls": calls}, *results]


def output_of(name: str, arguments: str) -> str:
    """Do what the tool does."""
    return f"output of {name}: {'|'.join(map(str, json.loads(arguments).values()))}"


def streamed(text: str) -> Said:
    """Read a stream: turns that end with `[DONE]`, markers between them."""
    turns: list[Answer] = []
    resolved: list[tuple[Mapping[str, Any], ...]] = []
    chunks: list[Mapping[str, Any]] = []
    for line in filter(None, text.split("\n\n")):
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            turns.append(_joined(chunks))
            chunks = []
        elif json.loads(data)["object"] == "spectool.continuation":
            resolved.append(tuple(json.loads(data)["spectool"]["resolved"]))
        else:
            chunks.append(json.loads(data))
    assert not chunks, "the stream ends without [DONE]"
    return Said(turns=tuple(turns), resolved=tuple(resolved), raw=text)


def _joined(chunks: Sequence[Mapping[str, Any]]) -> Answer:
    content, reason = "", ""
    calls: dict[int, dict[str, str]] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        content += choice["delta"].get("content") or ""
        reason = choice["finish_reason"] or reason
        for delta in choice["delta"].get("tool_calls") or ():
            call = calls.setdefault(delta["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] += delta.get("id") or ""
            call["name"] += delta["function"].get("name") or ""
            call["arguments"] += delta["function"].get("arguments") or ""
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    return Answer(
        content=content,
        calls=tuple((calls[index]["name"], calls[index]["arguments"]) for index in sorted(calls)),
        finish_reason=reason,
        usage=_usage(chunks[-1]["usage"]),
        call_ids=tuple(calls[index]["id"] for index in sorted(calls)),
        id=chunks[0]["id"],
    )


def whole(text: str) -> Said:
    """Read a response that is not streamed, and the continuations in it."""
    first = json.loads(text)
    rest = first.get("spectool", {}).get("continuations", [])
    responses = [first, *rest]
    resolved = [each["spectool"]["resolved"] for each in responses if "spectool" in each]
    assert len(resolved) == len(rest)
    turns = tuple(_read(response) for response in responses)
    return Said(turns=turns, resolved=tuple(map(tuple, resolved)), raw=text)


def _read(response: Mapping[str, Any]) -> Answer:
    (choice,) = response["choices"]
    calls = choice["message"].get("tool_calls") or []
    return Answer(
        content=choice["message"]["content"] or "",
        calls=tuple((each["function"]["name"], each["function"]["arguments"]) for each in calls),
        finish_reason=choice["finish_reason"],
        usage=_usage(response["usage"]),
        call_ids=tuple(each["id"] for each in calls),
        id=response["id"],
    )


def _usage(usage: Mapping[str, Any]) -> tuple[int, int, int]:
    return usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


@pytest.fixture
def request_id() -> str:
    """A fresh id of a request."""
    return uuid4().hex


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the case streams."""
    return request.param


_URL = os.environ.get("SPECTOOL_CONTRACT_URL")


@pytest.fixture(
    scope="module",
    params=[None] if _URL else [CHATML, LLAMA],
    ids=lambda style: style.name if style else "server",
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server under test. Where it is the reference engine, nothing may be left in it."""
    if _URL:
        yield from _running(_URL)
        return
    style: Style = request.param
    yield from _reference(style, ContinuationLimits())


@pytest.fixture
def drifting_server() -> Callable[[bool], AbstractContextManager[Server]]:
    """Make a server whose template writes calls otherwise than its model: strict, or not."""
    if _URL:
        pytest.skip("it would need a server of its own")

    def made(allow_drift: bool) -> AbstractContextManager[Server]:
        limits = ContinuationLimits(allow_drift=allow_drift)
        return contextmanager(_reference)(DRIFTING, limits)

    return made


def _reference(style: Style, limits: ContinuationLimits) -> Iterator[Server]:
    settings = ReferenceSettings(api_keys=(API_KEY,), continuation_limits=limits)
    service = Reference(contract_model, style=style, settings=settings)
    with serving(service) as url, _client(url, API_KEY) as http:
        special = style.stop_token
        yield Server(http=http, model="reference", prompts=PROMPTS, special=special, has_key=True)
        left = service.left()
    entries = {"entries", "bytes", "responses"}  # posts without a request live until their time
    assert not any(count for name, count in left.items() if name not in entries), left


def _running(url: str) -> Iterator[Server]:
    key = os.environ.get("SPECTOOL_CONTRACT_API_KEY")
    path = os.environ.get("SPECTOOL_CONTRACT_PROMPTS")
    with _client(url, key) as http:
        yield Server(
            http=http,
            model=os.environ["SPECTOOL_CONTRACT_MODEL"],
            prompts=json.loads(Path(path).read_text()) if path else PROMPTS,
            special=os.environ.get("SPECTOOL_CONTRACT_SPECIAL", "<|im_end|>"),
            has_key=key is not None,
        )


def _client(url: str, key: str | None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False)
