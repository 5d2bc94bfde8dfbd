"""`SelfModel`: the main model guesses its own next call (arXiv 2607.25816)."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import Runnable, RunnableBinding

from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool.speculators.asking import (
    ASIDE,
    Complaints,
    check_settings,
    head_start,
    name_of,
    named_model,
)
from langchain_spectool.speculators.reading import Call, Reading

INSTRUCTION = (
    "Answer only with the tool call or calls you would make next, and write no text before or "
    "after them. If you would call no tool, answer only with: none."
)

FORK_AFTER = 160
"""Characters of the main model's text that are worth asking again for: about two sentences."""

_BLAMED = {"temperature": "temperature", "instruction": "role", "stream": "stream"}
"""What may be left out of a request, and the word of an error that blames it."""


class SelfModel:
    """Guesses what the main model will call by asking it for nothing but its next calls.

    It is asked beside its own turn for the very same messages, tools and settings, so that a
    server which caches prompts reads them once. What it is told besides comes last. Each guess
    starts as soon as its arguments are complete, and nothing is generated after the calls. Where
    the model cannot stream, or its provider does not take the temperature or a last message of
    that role, one warning says so, and it is asked without.

    Args:
        samples: How many samples a turn takes; they find more than one call only if the model's
            answers vary.
        model: The main model where the request does not name it, as in a node function of your
            own: a chat model, `"provider:name"`, or one with its tools already bound, which is
            then asked with just those.
        temperatures: One temperature per sample, cycled; None keeps the request's own.
        instruction: The last message: text for a human message, a message of any other role, or
            None to send the very same request. The default role is the one that most providers
            take after tool messages: a late system message is refused by Anthropic and Google.
        from_partial: Whether to ask once more, with its text so far, while the main model writes.
        confidence: Confidence, from 0 to 1, of each guess.
        timeout_s: Seconds a sample may take.

    Raises:
        ValueError: A value is outside the range above.
    """

    name = "self_model"

    def __init__(  # noqa: PLR0913 - every part has a default
        self,
        samples: int = 1,
        *,
        model: BaseChatModel | Runnable[Any, Any] | str | None = None,
        temperatures: Sequence[float] | None = None,
        instruction: str | BaseMessage | None = INSTRUCTION,
        from_partial: bool = False,
        confidence: float = 0.5,
        timeout_s: float = 30.0,
    ) -> None:
        """Check the settings; a named model is made at its first use."""
        check_settings(samples, timeout_s, confidence)
        if isinstance(instruction, str):
            instruction = HumanMessage(instruction)
        self.samples = samples
        self.timeout_s = timeout_s
        self.fork_after = FORK_AFTER if from_partial else 0
        self._model = model
        self._temperatures = [*temperatures] if temperatures else None
        self._instruction = instruction
        self._confidence = confidence
        self._left_out: frozenset[str] = frozenset()
        self._complaints = Complaints()

    @property
    def model_name(self) -> str:
        """The name of the main model as far as it was given, as in a table of prices."""
        return name_of(self._model) or self.name

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        """Ask the main model for its next calls, blocking."""
        return self._ask(request, request.messages, sample)

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        """Ask the main model for its next calls."""
        await head_start()
        async with aclosing(self._aask(request, request.messages, sample)) as guesses:
            async for guess in guesses:
                yield guess

    def fork(self, request: TurnRequest, partial: str, sample: int) -> Iterator[Guess]:
        """Ask for the calls of an answer that begins with `partial`, blocking."""
        if partial.strip():
            yield from self._ask(request, _begun(request, partial), sample)

    async def afork(self, request: TurnRequest, partial: str, sample: int) -> AsyncIterator[Guess]:
        """Ask for the calls of an answer that begins with `partial`."""
        if partial.strip():
            asked = self._aask(request, _begun(request, partial), sample)
            async with aclosing(asked) as guesses:
                async for guess in guesses:
                    yield guess

    def _ask(self, request: TurnRequest, messages: Sequence[Any], sample: int) -> Iterator[Guess]:
        for question in self._questions(request, messages, sample):
            if not question.has_room():
                return
            with self._answered(request, question) as reading:
                with closing(question.parts()) as parts:
                    for part in parts:
                        yield from map(self._guess, reading.feed(part))
                        if reading.over:
                            return
                yield from map(self._guess, reading.end())
                return

    async def _aask(
        self, request: TurnRequest, messages: Sequence[Any], sample: int
    ) -> AsyncGenerator[Guess]:
        for question in self._questions(request, messages, sample):
            if not await question.ahas_room():
                return
            with self._answered(request, question) as reading:
                async with aclosing(question.aparts()) as parts:
                    async for part in parts:
                        for call in reading.feed(part):
                            yield self._guess(call)
                        if reading.over:
                            return
                for call in reading.end():
                    yield self._guess(call)
                return

    def _guess(self, call: Call) -> Guess:
        return Guess(tool=call[0], args=call[1], confidence=self._confidence)

    @contextmanager
    def _answered(self, request: TurnRequest, question: "_Question") -> Generator[Reading]:
        """Take what becomes of a question: it may fail, or be cut short, and has its price."""
        reading = Reading()
        refused = False
        try:
            yield reading
        except Exception as error:  # noqa: BLE001 - told once; the agent never hears of it
            refused = not reading.begun
            self._failed(question, error, blame=refused)
        finally:
            if request.on_usage is not None and not refused:
                request.on_usage(self.name, reading.usage)

    def _failed(self, question: "_Question", error: Exception, *, blame: bool) -> None:
        text = str(error).lower()
        blamed = (what for what, word in _BLAMED.items() if what in question.uses and word in text)
        if blame and (what := next(blamed, None)) is not None:
            self._left_out |= {what}
            self._complaints.warn(what, f"the main model rejects `{what}` from SelfModel: {error}")
        else:
            self._complaints.warn("call", f"SelfModel failed ({error!r}); its guesses are missed")

    def _questions(
        self, request: TurnRequest, messages: Sequence[Any], sample: int
    ) -> Iterator["_Question"]:
        """Yield what to ask, and again as long as a failure shows what to leave out."""
        left_out = None
        while left_out != self._left_out:
            left_out = self._left_out
            try:
                question = self._question(request, messages, sample, left_out)
            except Exception as error:  # noqa: BLE001 - no provider, no key, no tool binding
                self._complaints.warn("bind", f"SelfModel cannot ask the main model: {error!r}")
                return
            if question is None:
                return
            yield question

    def _question(
        self, request: TurnRequest, messages: Sequence[Any], sample: int, left_out: frozenset[str]
    ) -> "_Question | None":
        model = self._main_model(request)
        if model is None:
            return None
        settings, asked, uses = dict(request.settings), [*messages], {"stream"}
        if self._temperatures and "temperature" not in left_out:
            settings["temperature"] = self._temperatures[sample % len(self._temperatures)]
            uses.add("temperature")
        if self._instruction is not None and "instruction" not in left_out:
            asked.append(self._instruction)
            uses.add("instruction")
        return _Question(
            model=_bound(model, request.tools, settings),
            messages=asked,
            uses=uses - left_out,
            limiter=getattr(_innermost(model), "rate_limiter", None),
        )

    def _main_model(self, request: TurnRequest) -> Any:  # noqa: ANN401 - whatever stands for a model
        if isinstance(self._model, str):
            self._model = named_model(self._model)
        model = request.model if self._model is None else self._model
        if model is None:
            self._complaints.warn(
                "model", "nobody told SelfModel which model is the main one (give it `model=`)"
            )
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    model: Runnable[Any, Any]
    messages: list[Any]
    uses: Collection[str]
    """What of `_BLAMED` it has in it."""
    limiter: BaseRateLimiter | None

    def has_room(self) -> bool:
        """Take a place in the model's rate limit, if the main model has left one."""
        return self.limiter is None or self.limiter.acquire(blocking=False)

    async def ahas_room(self) -> bool:
        return self.limiter is None or await self.limiter.aacquire(blocking=False)

    def parts(self) -> Generator[object]:
        if "stream" in self.uses:
            yield from self.model.stream(self.messages, ASIDE)
        else:
            yield self.model.invoke(self.messages, ASIDE)

    async def aparts(self) -> AsyncGenerator[object]:
        if "stream" not in self.uses:
            yield await self.model.ainvoke(self.messages, ASIDE)
            return
        stream = cast("AsyncGenerator[object]", self.model.astream(self.messages, ASIDE))
        async with aclosing(stream) as parts:
            async for part in parts:
                yield part


def _begun(request: TurnRequest, partial: str) -> list[Any]:
    # Anthropic takes no answer that is said to end in white space.
    return [*request.messages, AIMessage(partial.rstrip())]


def _innermost(model: Any) -> Any:  # noqa: ANN401 - whatever stands for a model
    return cast("Any", model).bound if isinstance(model, RunnableBinding) else model


def _bound(model: Any, tools: Sequence[Any], settings: Mapping[str, Any]) -> Runnable[Any, Any]:  # noqa: ANN401
    """Bind what the main model's own request binds, out of the hearing of its callbacks."""
    if not isinstance(model, RunnableBinding):
        return _unheard(model).bind_tools([*tools], **settings)
    ready = cast("RunnableBinding[Any, Any]", model)
    heard = {key: value for key, value in ready.config.items() if key != "callbacks"}
    changes: dict[str, Any] = {"bound": _unheard(ready.bound), "config": heard}
    return ready.model_copy(update=changes).bind(**settings)


def _unheard(model: Any) -> Any:  # noqa: ANN401 - whatever stands for a model
    if not isinstance(model, BaseChatModel):
        return model
    return model.model_copy(
        update={"callbacks": None, "verbose": False, "cache": False, "rate_limiter": None}
    )
