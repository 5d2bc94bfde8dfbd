"""The engine: one step, one token for each running request. No clock of its own, no I/O."""

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from vllm_spectool._core.decide import Continuation, ContinuationLimits, Decider, TurnEnd
from vllm_spectool._core.messages import assistant_message, tool_messages
from vllm_spectool._core.outcomes import Decline
from vllm_spectool._core.params import Call
from vllm_spectool._core.store import Store
from vllm_spectool._core.terms import room
from vllm_spectool.errors import RenderingError
from vllm_spectool.reference.blocks import BlockPool
from vllm_spectool.reference.calls import Parsed
from vllm_spectool.reference.model import Model, Turn, read_prompt
from vllm_spectool.reference.request import ChatRequest, Output, Running, TurnStart, call_id
from vllm_spectool.reference.styles import Style
from vllm_spectool.reference.tokenizer import Tokenizer


@dataclass(slots=True, kw_only=True)
class Work:
    """What the engine has done so far."""

    steps: int = 0
    prefill_tokens: int = 0
    """Tokens computed otherwise than one at a time: prompts, and what was injected."""
    decoded_tokens: int = 0
    preemptions: int = 0


class Engine:
    """Continuous batching over blocks, first come first served, without a prefix cache.

    A request that finds no free block makes the newest one wait and start anew, as in vLLM.
    """

    def __init__(
        self,
        *,
        model: Model,
        style: Style,
        store: Store,
        pool: BlockPool,
        limits: ContinuationLimits,
    ) -> None:
        if pool.blocks * pool.size < limits.context_tokens:
            msg = (
                f"{pool.blocks} blocks of {pool.size} tokens hold no context of "
                f"{limits.context_tokens}: raise `blocks` or lower `context_tokens`"
            )
            raise ValueError(msg)
        self.style = style
        self.tokenizer = Tokenizer(style.special_tokens)
        self.stop_id = self.tokenizer.id_of(style.stop_token)
        self.limits = limits
        self.pool = pool
        self.work = Work()
        self.running: list[Running] = []
        self.waiting: deque[Running] = deque()
        self._model = model
        self._store = store
        self._decider = Decider(store, limits, style.special_tokens)

    @property
    def resident(self) -> int:
        """Requests that are past their first turn."""
        return sum(each.turn > 0 for each in (*self.running, *self.waiting))

    def add(self, request: ChatRequest) -> Running:
        """Take a request, whose prompt leaves room for an answer."""
        prompt_tokens = len(request.prompt_ids)
        running = Running(
            request=request,
            token_ids=list(request.prompt_ids),
            left=self.granted(request.max_tokens, prompt_tokens) or 0,
            messages=request.messages,
            turns=[TurnStart(at=prompt_tokens, prompt_tokens=prompt_tokens)],
        )
        if request.owner is not None:
            self._store.begin(request.owner)
        self.waiting.append(running)
        return running

    def granted(self, max_tokens: int | None, prompt_tokens: int) -> int | None:
        """Return the most tokens of a turn; None where it does not fit."""
        context = self.limits.context_tokens
        return room(max_tokens, prompt_tokens=prompt_tokens, context_tokens=context)

    def abort(self, running: Running, now_s: float) -> None:
        """Forget a request and free all it has; one that has ended stays so."""
        if running in self.running or running in self.waiting:
            self._remove(running, now_s)

    def step(self, now_s: float) -> list[Output]:
        """Compute one token for each request that has its blocks."""
        self._admit()
        self.work.steps += 1
        return [
            self._advance(running, now_s)
            for running in list(self.running)
            if running in self.running and self._make_room(running)
        ]

    def fail(self, error: Exception, now_s: float) -> list[Output]:
        """End all requests with an error, as after a step that raised."""
        ended = [*self.running, *self.waiting]
        for running in ended:
            self._remove(running, now_s)
        return [_failed(running, error) for running in ended]

    def _admit(self) -> None:
        while self.waiting and self.pool.fit(self.waiting[0], len(self.waiting[0].token_ids) + 1):
            self.running.append(self.waiting.popleft())

    def _make_room(self, running: Running) -> bool:
        """Have a block for the next token; the newest request makes way, be it this one."""
        while not self.pool.fit(running, len(running.token_ids) + 1):
            newest = self.running.pop()
            self.pool.free(newest)
            newest.computed = 0
            self.waiting.appendleft(newest)
            self.work.preemptions += 1
            if newest is running:
                return False
        return True

    def _advance(self, running: Running, now_s: float) -> Output:
        try:
            return self._advanced(running, now_s)
        except Exception as error:  # noqa: BLE001 - a model's fault is the request's end
            self._remove(running, now_s)
            return _failed(running, error)

    def _advanced(self, running: Running, now_s: float) -> Output:
        scheduled = len(running.token_ids) - running.computed
        self.work.prefill_tokens += scheduled if scheduled > 1 else 0
        running.computed = len(running.token_ids)
        token = self._sample(running)
        running.token_ids.append(token)
        running.left -= 1
        self.work.decoded_tokens += 1
        output = Output(running=running, turn=running.turn, token_ids=(token,))
        if token != self.stop_id and running.left > 0:
            return output
        return replace(output, **self._end_turn(running, token, now_s))

    def _sample(self, running: Running) -> int:
        if running.to_say is None:
            running.to_say = self._ask(running)[::-1]
        return running.to_say.pop()

    def _ask(self, running: Running) -> list[int]:
        request = running.request
        prompt = read_prompt(
            running.token_ids, tokenizer=self.tokenizer, style=self.style, tools=request.tools
        )
        said = self._model(prompt)
        text = self.style.write(said.content, said.calls) if isinstance(said, Turn) else said
        stops = [text.index(stop) for stop in request.stop if stop in text]
        text = text[: min(stops)] if stops else text
        return [*self.tokenizer.encode(text, special=False), self.stop_id]

    def _end_turn(self, running: Running, token: int, now_s: float) -> dict[str, Any]:
        stopped = token == self.stop_id
        verdict = self._verdict(running, now_s, stopped=stopped)
        if isinstance(verdict, Continuation):
            self._continue(running, verdict)
            return {"end": "continued"}
        self._remove(running, now_s)
        return {"end": "finished", "finish_reason": "stop" if stopped else "length"}

    def _verdict(
        self, running: Running, now_s: float, *, stopped: bool
    ) -> Continuation | Decline | None:
        request = running.request
        if request.owner is None:
            return None
        parsed = self.style.read(self._text(running)) if request.tools else Parsed(None, ())
        end = TurnEnd(
            owner=request.owner,
            turn=running.turn,
            stopped=stopped,
            calls=self._calls(running, parsed),
            max_tokens=request.max_tokens,
            bar=request.bar,
        )
        return self._settled(running, end, parsed.content, now_s)

    def _settled(
        self, running: Running, end: TurnEnd, content: str | None, now_s: float
    ) -> Continuation | Decline:
        hit = self._decider.look(end, now_s)
        if isinstance(hit, str):
            return hit
        said = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in hit.calls]
        running.messages += (
            assistant_message(content, said),
            *tool_messages(hit.calls, hit.outputs),
        )
        try:
            rendered = running.request.template.prompt(running.messages)
        except RenderingError:
            self._decider.count("unrenderable")
            return "unrenderable"
        running.rendered = len(rendered)
        resident = running.token_ids
        return self._decider.settle(hit, resident=resident, rendered=rendered, now_s=now_s)

    def _calls(self, running: Running, parsed: Parsed) -> tuple[Call, ...] | None:
        if parsed.calls is None:
            return None
        return tuple(
            replace(call, id=call_id(running.request.id, running.turn, index))
            for index, call in enumerate(parsed.calls)
        )

    def _text(self, running: Running) -> str:
        return self.tokenizer.decode(each for each in running.said if each != self.stop_id)

    def _continue(self, running: Running, continuation: Continuation) -> None:
        running.token_ids += continuation.token_ids
        running.left = continuation.max_tokens
        running.to_say = None
        running.turns.append(
            TurnStart(
                at=len(running.token_ids),
                prompt_tokens=running.rendered,
                continuation=continuation,
            )
        )

    def _remove(self, running: Running, now_s: float) -> None:
        self.running = [each for each in self.running if each is not running]
        self.waiting = deque(each for each in self.waiting if each is not running)
        self.pool.free(running)
        if running.request.owner is not None:
            self._store.end(running.request.owner, now_s)


def _failed(running: Running, error: Exception) -> Output:
    return Output(running=running, turn=running.turn, token_ids=(), error=error)
