"""A response that stays resident: one streaming-input session of vLLM, turn after turn.

vLLM keeps the blocks of such a session between its inputs, drops the last sampled token, which was
never computed, and goes on from there (`Scheduler._update_request_as_session`). A turn's first
input token is therefore the stop token that ended the one before.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

from vllm.engine.protocol import EngineClient, StreamingInput
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.tokenizers import TokenizerLike
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from vllm_spectool._core.outcomes import Decline
from vllm_spectool.plugin.kv_room import KvRoom

Judge = Callable[[Sequence[int]], Sequence[int] | Decline]
"""Given what the next turn's prompt would be: the tokens to append, or why there are none."""


class DeclinedError(Exception):
    """The next turn does not go on in place, and was counted; leaves vLLM's own code this way."""


class Session:
    """One opted-in request in the engine, from its first turn to its last."""

    def __init__(self, engine: EngineClient, tokenizer: TokenizerLike | None, room: KvRoom) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._room = room
        self._inputs: asyncio.Queue[StreamingInput | None] = asyncio.Queue()
        self._outputs: AsyncGenerator[RequestOutput] | None = None
        self._preemptions = 0
        self._idle = True
        self.judge: Judge | None = None
        """Decides on the next turn; set while one is asked for."""
        self.resident: list[int] = []
        """What the engine has of the response: the prompt, all turns, what was appended."""
        self.stopped = False
        """Whether the last turn ended with a stop token of the model's."""
        self.preempted = False
        """Whether the last turn lost its blocks on the way."""

    @property
    def opened(self) -> bool:
        """Whether a turn has begun."""
        return self._outputs is not None

    def begin(
        self, prompt: Any, params: SamplingParams, request_id: str, options: dict[str, Any]
    ) -> AsyncGenerator[RequestOutput]:
        """Hand the next turn to the engine; its outputs are those of a request of its own.

        Raises:
            DeclinedError: The turn does not go on in place. Nothing was handed on.
        """
        rendered: list[int] = list(prompt["prompt_token_ids"])
        whole = params.output_kind is RequestOutputKind.FINAL_ONLY
        params.output_kind = RequestOutputKind.DELTA
        text = None
        if self._outputs is None:
            self._outputs = self._engine.generate(self._chunks(), params, request_id, **options)
            self.resident += rendered
        else:
            appended = self._appended(rendered)
            prompt = {**prompt, "prompt_token_ids": [self.resident[-1], *appended]}
            text = self._detokenizer(rendered, params)
            self.resident += appended
            self._room.hold(self, len(self.resident))
        self._idle = False
        self._inputs.put_nowait(StreamingInput(prompt=prompt, sampling_params=params))
        turn = self._turn(self._outputs, rendered, prompt.get("prompt"), text)
        return _merged(turn) if whole else turn

    async def close(self) -> None:
        """End the session; the engine frees what it holds. An unfinished turn is aborted."""
        if self._outputs is None:
            return
        try:
            if self._idle:
                self._inputs.put_nowait(None)
                with contextlib.suppress(Exception):
                    async for _ in self._outputs:
                        pass
        finally:
            self._room.free(self)
            await self._outputs.aclose()

    async def _chunks(self) -> AsyncGenerator[StreamingInput]:
        while (chunk := await self._inputs.get()) is not None:
            yield chunk

    def _appended(self, rendered: list[int]) -> Sequence[int]:
        verdict = "unsupported" if self.judge is None else self.judge(rendered)
        if isinstance(verdict, str):
            raise DeclinedError
        return verdict

    def _detokenizer(self, rendered: list[int], params: SamplingParams) -> IncrementalDetokenizer:
        # The session's own would read the turn's first token as the neighbour of the last turn's.
        request: Any = SimpleNamespace(
            request_id="", prompt_token_ids=rendered, prompt_embeds=None, sampling_params=params
        )
        return IncrementalDetokenizer.from_new_request(self._tokenizer, request)

    async def _turn(
        self,
        outputs: AsyncGenerator[RequestOutput],
        rendered: list[int],
        prompt_text: str | None,
        text: IncrementalDetokenizer | None,
    ) -> AsyncGenerator[RequestOutput]:
        self.stopped = False
        async for output in outputs:
            (completion,) = output.outputs
            ended = completion.finish_reason is not None
            token_ids = list(completion.token_ids)
            self.resident += token_ids
            self._room.hold(self, len(self.resident))
            if text is not None:
                text.update(token_ids, completion.finish_reason == "stop")
                completion.text = text.get_next_output_text(ended, delta=True)
            if ended:
                self._note_end(output, completion.finish_reason)
            output.prompt, output.prompt_token_ids = prompt_text, rendered
            output.finished = ended
            yield output
            if ended:
                return

    def _note_end(self, output: RequestOutput, finish_reason: str | None) -> None:
        self._idle = True
        self.stopped = finish_reason == "stop"
        preemptions = output.metrics.num_preemptions if output.metrics else 0
        self.preempted = output.metrics is None or preemptions > self._preemptions
        self._preemptions = preemptions


async def _merged(turn: AsyncGenerator[RequestOutput]) -> AsyncGenerator[RequestOutput]:
    """Yield a turn at its end and in one piece, as a request that does not stream has it."""
    merged: RequestOutput | None = None
    async for output in turn:
        if merged is None:
            merged = output
        else:
            merged.add(output, aggregate=True)
    if merged is not None:
        yield merged
