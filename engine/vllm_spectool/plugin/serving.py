"""Answers opted-in chat requests turn by turn, each turn by vLLM's own code.

A turn after the first is what the client's round trip would be: the request's own body, with the
turn's message and the tools' messages added, goes through `create_chat_completion` like any other.
Only the hand-over to the engine differs: it extends the session instead of starting a request.
"""

import copy
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from vllm.engine.protocol import EngineClient
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionRequest,
    ChatCompletionResponse,
)
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.sampling_params import SamplingParams

from vllm_spectool._core.decide import Continuation, Hit, TurnEnd
from vllm_spectool._core.messages import tool_messages
from vllm_spectool._core.outcomes import Decline
from vllm_spectool._core.protocol import marker, resolved, response_id, turn_id, with_continuations
from vllm_spectool._core.store import Owner
from vllm_spectool._core.terms import KEY_ARGUMENT, Sampling, is_opted_in, key_digest
from vllm_spectool.plugin.cache import PluginCache
from vllm_spectool.plugin.message import TurnReader, calls_of, message_of
from vllm_spectool.plugin.pace import unhurried
from vllm_spectool.plugin.session import DeclinedError, Session

logger = logging.getLogger("vllm.spectool")

Answer = AsyncGenerator[str] | ChatCompletionResponse | ErrorResponse
REASONING = ("reasoning_ended", "reasoning_parser_kwargs")
"""Arguments for grammars, which rule a session out; vLLM takes neither with one."""


@dataclass(slots=True, kw_only=True)
class Residence:
    """An opted-in request, from its first turn to its last."""

    owner: Owner
    body: dict[str, Any]
    """What the next turn's round trip would send."""
    raw_request: Request
    session: Session
    bar: Decline | None = None
    """Why the first turn is a request like any other."""
    turn: int = 0
    records: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])
    """What was resolved after each turn."""


_CURRENT: ContextVar[Residence | None] = ContextVar("spectool_residence", default=None)
"""Whose turn is being handed to the engine."""


class SessionClient:
    """vLLM's engine client, with the turns of opted-in requests led into their sessions."""

    def __init__(self, engine: EngineClient, cache: PluginCache) -> None:
        self.engine = engine
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, **options: Any
    ) -> AsyncGenerator[Any]:
        """Begin a turn of the current residence, or a request like any other.

        Raises:
            DeclinedError: The residence ends here.
        """
        residence = _CURRENT.get()
        # A turn is handed over once; tasks that vLLM starts from here on have no part in it.
        _CURRENT.set(None)
        bar = residence and _engine_bar(prompt, sampling_params, options)
        if residence is not None and bar is not None:
            if residence.session.opened:
                self._cache.count(bar)
                raise DeclinedError
            residence.bar = bar
        if residence is None or residence.bar is not None:
            return self.engine.generate(prompt, sampling_params, request_id, **options)
        for name in REASONING:
            options.pop(name, None)
        return residence.session.begin(prompt, sampling_params, request_id, options)


class ResidentServingChat(OpenAIServingChat):
    """vLLM's chat handler; opted-in responses go on in place."""

    engine_client: Any
    cache: PluginCache

    @classmethod
    def adopt(cls, stock: OpenAIServingChat, cache: PluginCache) -> "ResidentServingChat":
        """Take over what `stock` was set up with."""
        made = cls.__new__(cls)
        vars(made).update(vars(stock))
        made.engine_client = SessionClient(stock.engine_client, cache)
        made.cache = cache
        return made

    async def create_chat_completion(
        self, request: ChatCompletionRequest, raw_request: Request | None = None
    ) -> Answer:
        """Answer a request; an opted-in one as far as the cache goes."""
        residence = await self._opt_in(request, raw_request)
        if residence is None:
            return await super().create_chat_completion(request, raw_request)
        if request.stream:
            first = await self._answer(residence, request)
            if not isinstance(first, AsyncGenerator):
                return first
            # Between two turns a session holds its blocks, which must not wait for a slow reader.
            return unhurried(self._stream(residence, first))
        self.cache.begin(residence.owner)
        try:
            return await self._whole(residence, await self._answer(residence, request))
        finally:
            await self._leave(residence)

    @staticmethod
    def _base_request_id(raw_request: Request | None, default: str | None = None) -> str | None:
        residence = _CURRENT.get()
        if residence is None or not residence.turn:
            return OpenAIServingChat._base_request_id(raw_request, default)  # noqa: SLF001
        return turn_id(residence.owner[0], residence.turn).removeprefix(response_id(""))

    async def _opt_in(
        self, request: ChatCompletionRequest, raw_request: Request | None
    ) -> Residence | None:
        extra = request.vllm_xargs
        if raw_request is None or not is_opted_in(extra) or extra is None:
            return None
        digest = key_digest(extra[KEY_ARGUMENT])
        if digest is None:
            self.cache.count("malformed_key")
            return None
        base = OpenAIServingChat._base_request_id(raw_request, request.request_id)  # noqa: SLF001
        bar = _request_bar(request)
        if bar is not None:
            # Stays a request like any other; a session could not carry it.
            self.cache.count(bar)
            return None
        return Residence(
            owner=(response_id(base or ""), digest),
            body=copy.deepcopy(await raw_request.json()),
            raw_request=raw_request,
            session=Session(self.engine_client.engine, self.renderer.tokenizer, self.cache.room),
        )

    async def _answer(self, residence: Residence, request: ChatCompletionRequest) -> Answer:
        token = _CURRENT.set(residence)
        try:
            return await super().create_chat_completion(request, residence.raw_request)
        finally:
            _CURRENT.reset(token)

    async def _leave(self, residence: Residence) -> None:
        self.cache.end(residence.owner)
        await residence.session.close()

    async def _stream(
        self, residence: Residence, events: AsyncGenerator[str]
    ) -> AsyncGenerator[str]:
        # Only now: a stream that is never read has no end either.
        self.cache.begin(residence.owner)
        following: AsyncGenerator[str] | None = events
        try:
            while following is not None:
                reader, events = TurnReader(), following
                async for event in events:
                    reader.feed(event)
                    yield event
                answer = await self._next(residence, reader.message)
                following = answer if isinstance(answer, AsyncGenerator) else None
                if following is not None:
                    yield _marker(residence, reader)
        finally:
            await self._leave(residence)

    async def _whole(self, residence: Residence, first: Answer) -> Answer:
        if not isinstance(first, ChatCompletionResponse):
            return first
        turns: list[dict[str, Any]] = []
        answer: Answer | None = first
        while isinstance(answer, ChatCompletionResponse):
            turns.append(answer.model_dump())
            answer = await self._next(residence, message_of(turns[-1]))
        folded = with_continuations(turns, residence.records[: len(turns) - 1])
        if "spectool" in folded:
            first.spectool = folded["spectool"]  # pyright: ignore[reportAttributeAccessIssue]
        return first

    async def _next(self, residence: Residence, message: dict[str, Any] | None) -> Answer | None:
        """Begin the next turn; None where the response ends here."""
        if residence.bar is not None:
            self.cache.count(residence.bar)
            return None
        if message is None:
            return None
        hit = self.cache.look(_turn_end(residence, message))
        if hit is None:
            return None
        answer, handed_over = None, len(residence.records)
        try:
            answer = await self._go_on(residence, message, hit)
        except DeclinedError:
            return None
        except Exception as error:  # noqa: BLE001
            # The turns so far are a valid answer, and the client's own round trip is told why.
            logger.info("spectool: the next turn was refused or broke off: %r", error)
        if isinstance(answer, AsyncGenerator | ChatCompletionResponse):
            return answer
        if len(residence.records) == handed_over:
            self.cache.count("unrenderable")
        return None

    async def _go_on(self, residence: Residence, message: dict[str, Any], hit: Hit) -> Answer:
        residence.body["messages"] += [message, *tool_messages(hit.calls, hit.outputs)]
        residence.session.judge = lambda rendered: self._judge(residence, hit, rendered)
        residence.turn += 1
        request = ChatCompletionRequest.model_validate(copy.deepcopy(residence.body))
        return await self._answer(residence, request)

    def _judge(
        self, residence: Residence, hit: Hit, rendered: Sequence[int]
    ) -> Sequence[int] | Decline:
        session = residence.session
        most = self.cache.room.most(session)
        verdict = self.cache.settle(hit, session.resident, rendered, most)
        if isinstance(verdict, Continuation):
            residence.records.append(resolved(verdict.calls, verdict.outputs))
            return verdict.token_ids
        return verdict


def _turn_end(residence: Residence, message: dict[str, Any]) -> TurnEnd:
    session = residence.session
    most = residence.body.get("max_completion_tokens")
    return TurnEnd(
        owner=residence.owner,
        turn=residence.turn,
        stopped=session.stopped,
        calls=calls_of(message),
        max_tokens=residence.body.get("max_tokens") if most is None else most,
        bar="preempted" if session.preempted else None,
    )


def _marker(residence: Residence, turn: TurnReader) -> str:
    made = marker(
        residence.owner[0],
        created=turn.created,
        model=turn.model,
        turn=residence.turn,
        records=residence.records[-1],
    )
    return f"data: {json.dumps(made, ensure_ascii=False)}\n\n"


def _request_bar(request: ChatCompletionRequest) -> Decline | None:
    if request.use_beam_search:
        return "beam_search"
    sampling = Sampling(
        seed=request.seed,
        stop=[request.stop] if isinstance(request.stop, str) else request.stop or (),
        stop_token_ids=request.stop_token_ids or (),
        n=request.n or 1,
        prompt_logprobs=request.prompt_logprobs,
        ignore_eos=request.ignore_eos,
    )
    unsupported = request.echo or not request.add_generation_prompt or request.kv_transfer_params
    return sampling.bar or ("unsupported" if unsupported else None)


def _engine_bar(prompt: Any, params: SamplingParams, options: dict[str, Any]) -> Decline | None:
    if params.structured_outputs is not None:
        return "grammar"
    if prompt["type"] != "token":
        return "multimodal"
    return "unsupported" if options.get("lora_request") is not None else None
