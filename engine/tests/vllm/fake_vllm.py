"""As much of vLLM as the plugin asks for: a chat handler, and an engine that plays a script."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

STOP = 0


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a plain test of one that awaits."""

    @wraps(test)
    def run(*args: Any, **fields: Any) -> None:
        asyncio.run(test(*args, **fields))

    return run


class RequestOutputKind(Enum):
    """When outputs are told."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass
class StreamingInput:
    """One turn's input."""

    prompt: Any
    sampling_params: Any


@dataclass
class Completion:
    """What a step says."""

    token_ids: list[int]
    finish_reason: str | None = None
    text: str = ""


@dataclass
class RequestOutput:
    """What a step brings."""

    outputs: list[Completion]
    metrics: Any
    prompt: str | None = None
    prompt_token_ids: list[int] | None = None
    finished: bool = False

    def add(self, other: "RequestOutput", *, aggregate: bool) -> None:
        assert aggregate
        self.outputs[0].token_ids += other.outputs[0].token_ids
        self.outputs[0].text += other.outputs[0].text
        self.outputs[0].finish_reason = other.outputs[0].finish_reason
        self.finished = other.finished


class IncrementalDetokenizer:
    """Writes each token as its number."""

    def __init__(self) -> None:
        self.unread = ""

    @classmethod
    def from_new_request(cls, tokenizer: Any, request: Any) -> "IncrementalDetokenizer":
        return cls()

    def update(self, token_ids: Sequence[int], stop_terminated: bool) -> None:
        said = token_ids[:-1] if stop_terminated else token_ids
        self.unread += "".join(map(str, said))

    def get_next_output_text(self, finished: bool, *, delta: bool) -> str:
        text, self.unread = self.unread, ""
        return text


@dataclass
class Engine:
    """Says `turns` one after another in each session: a list of steps each, the last ends it."""

    turns: list[list[list[int]]]
    preempted: set[int] = field(default_factory=set[int])
    """Numbers of turns that lose their blocks."""
    stalled: set[int] = field(default_factory=set[int])
    """Numbers of turns after which nothing comes any more, not even an end."""
    dead: bool = False
    """Whether it fails as soon as anything is asked of it."""
    inputs: list[list[int]] = field(default_factory=list[list[int]])
    """What it was handed, over all sessions."""
    begun: int = 0
    aborted: int = 0
    ended: int = 0

    @property
    def open(self) -> int:
        """Sessions that it still has."""
        return self.begun - self.aborted - self.ended

    async def generate(
        self, chunks: AsyncGenerator[StreamingInput], params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[RequestOutput]:
        self.begun += 1
        turn = preemptions = 0
        try:
            async for chunk in chunks:
                self.inputs.append(list(chunk.prompt["prompt_token_ids"]))
                preemptions += turn in self.preempted
                for step in self.turns[turn]:
                    await self._work()
                    end = "stop" if step[-1] == STOP else None
                    metrics = SimpleNamespace(num_preemptions=preemptions)
                    yield RequestOutput([Completion(list(step), end)], metrics)
                if turn in self.stalled:
                    await asyncio.Event().wait()
                turn += 1
            await self._work()
            self.ended += 1
        except (asyncio.CancelledError, GeneratorExit, ConnectionError):
            await asyncio.sleep(0)
            self.aborted += 1
            raise

    async def _work(self) -> None:
        await asyncio.sleep(0)
        if self.dead:
            msg = "the engine is dead"
            raise ConnectionError(msg)


CALL = {"id": "call", "type": "function", "function": {"name": "look", "arguments": "{}"}}
WORDS = {"user": [1, 2], "tool": [5, 6], "call": [3, 4, STOP], "answer": [7, STOP]}
"""The chat template: what each kind of message is written as."""


def template(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Render a conversation."""
    kinds = ["call" if each.get("tool_calls") else each["role"] for each in messages]
    return [token for kind in kinds for token in WORDS[kind]]


def parsed(token_ids: Sequence[int]) -> dict[str, Any]:
    """Read a turn: a call, or an answer."""
    if list(token_ids) == WORDS["call"]:
        return {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return {"role": "assistant", "content": "".join(map(str, token_ids))}


def chat_request(**fields: Any) -> SimpleNamespace:
    """Return a request with vLLM's defaults."""
    names = "seed stop stop_token_ids n prompt_logprobs request_id kv_transfer_params vllm_xargs"
    flags = {"use_beam_search": False, "ignore_eos": False, "echo": False, "stream": False}
    nothing = dict.fromkeys(names.split())
    return SimpleNamespace(**{**nothing, **flags, "add_generation_prompt": True, **fields})


class ChatCompletionRequest:
    """Where requests are read."""

    @staticmethod
    def model_validate(body: Mapping[str, Any]) -> SimpleNamespace:
        return chat_request(**body)


class ChatCompletionResponse:
    """An answer in one piece."""

    spectool: Any = None

    def __init__(self, response_id: str, message: Mapping[str, Any]) -> None:
        self.id = response_id
        self.message = message

    def model_dump(self) -> dict[str, Any]:
        return {"id": self.id, "choices": [{"message": self.message}]}


class RawRequest:
    """What came over HTTP."""

    def __init__(self, request_id: str, body: Mapping[str, Any]) -> None:
        self.headers = {"X-Request-Id": request_id}
        self.body = body

    async def json(self) -> Mapping[str, Any]:
        return self.body


class OpenAIServingChat:
    """Renders, hands over, reads: each with steps of the loop between."""

    def __init__(self, engine_client: Any) -> None:
        self.engine_client = engine_client
        self.renderer = SimpleNamespace(tokenizer=None)

    @staticmethod
    def _base_request_id(raw_request: RawRequest, default: str | None = None) -> str:
        return raw_request.headers["X-Request-Id"]

    async def create_chat_completion(self, request: Any, raw_request: Any = None) -> Any:
        response_id = f"chatcmpl-{self._base_request_id(raw_request)}"
        for _ in range(3):
            await asyncio.sleep(0)
        prompt = {"type": "token", "prompt_token_ids": template(request.messages), "prompt": ""}
        kind = RequestOutputKind.DELTA if request.stream else RequestOutputKind.FINAL_ONLY
        params = SimpleNamespace(output_kind=kind, structured_outputs=None)
        outputs = self.engine_client.generate(prompt, params, response_id)
        if request.stream:
            return self._events(response_id, outputs)
        (output,) = [each async for each in outputs]
        return ChatCompletionResponse(response_id, parsed(output.outputs[0].token_ids))

    async def _events(
        self, response_id: str, outputs: AsyncGenerator[RequestOutput]
    ) -> AsyncGenerator[str]:
        token_ids: list[int] = []
        try:
            async for output in outputs:
                token_ids += output.outputs[0].token_ids
                yield event(response_id, {"role": "assistant"})
            message = parsed(token_ids)
            for index, call in enumerate(message.get("tool_calls", ())):
                call["index"] = index
            yield event(response_id, message)
        except ConnectionError as error:
            yield f"data: {json.dumps({'error': {'message': str(error)}})}\n\n"
        yield "data: [DONE]\n\n"


def event(response_id: str, delta: Mapping[str, Any]) -> str:
    """Write one chunk."""
    chunk = {"id": response_id, "object": "chunk", "choices": [{"index": 0, "delta": delta}]}
    return f"data: {json.dumps(chunk)}\n\n"


CHAT = "vllm.entrypoints.openai.chat_completion"
STAND_INS: dict[str, dict[str, Any]] = {
    "fastapi": {"Request": RawRequest},
    "vllm": {},
    "vllm.engine": {},
    "vllm.engine.protocol": {"EngineClient": Engine, "StreamingInput": StreamingInput},
    "vllm.entrypoints": {},
    "vllm.entrypoints.openai": {},
    CHAT: {},
    f"{CHAT}.protocol": {
        "ChatCompletionRequest": ChatCompletionRequest,
        "ChatCompletionResponse": ChatCompletionResponse,
    },
    f"{CHAT}.serving": {"OpenAIServingChat": OpenAIServingChat},
    "vllm.entrypoints.serve": {},
    "vllm.entrypoints.serve.engine": {},
    "vllm.entrypoints.serve.engine.protocol": {"ErrorResponse": LookupError},
    "vllm.outputs": {"RequestOutput": RequestOutput},
    "vllm.sampling_params": {"RequestOutputKind": RequestOutputKind, "SamplingParams": Any},
    "vllm.tokenizers": {"TokenizerLike": Any},
    "vllm.v1": {},
    "vllm.v1.engine": {},
    "vllm.v1.engine.detokenizer": {"IncrementalDetokenizer": IncrementalDetokenizer},
}


@contextmanager
def installed(module: str) -> Iterator[Any]:
    """Put the stand-ins where vLLM would be; yield a module of the plugin, imported with them."""
    before = set(sys.modules)
    for name, names in STAND_INS.items():
        stand_in = ModuleType(name)
        vars(stand_in).update(names)
        sys.modules[name] = stand_in
    try:
        yield import_module(module)
    finally:
        for name in set(sys.modules) - before:
            if name in STAND_INS or name.startswith("vllm_spectool.plugin."):
                del sys.modules[name]
