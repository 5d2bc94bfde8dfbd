"""`DraftModel`: a cheap chat model guesses beside the main one (arXiv 2512.15834, Alg. 2)."""

import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig

from langchain_spectool._core.guess import Guess, TurnRequest

Usage = tuple[int, int] | None


class DraftModel:
    """Guesses what the main model will call by asking a faster model the same question.

    `samples` of it run at once; every call of a sample starts as soon as that sample returns,
    and equal calls of several samples run once. A sample is one request without retries: an
    error or a missed deadline costs only its guesses, and a draft that can never work (no such
    provider, no key, no tool binding) warns once and stays silent.

    Args:
        model: A chat model, or `"provider:name"` for `init_chat_model`.
        samples: How many samples a turn takes; more find more calls and cost more tokens.
        temperatures: One temperature per sample, cycled; None keeps the model's own setting.
        tools: `"declared"` binds the tools that may run early; `"all"` binds the request's full
            list, in order, so that a server which caches prompts can share the prefix.
        confidence: Confidence, from 0 to 1, of each guess.
        timeout_s: Seconds a sample may take.

    Raises:
        ValueError: A value is outside the range above.
    """

    name = "draft_model"

    def __init__(  # noqa: PLR0913 - every part has a default
        self,
        model: BaseChatModel | str,
        samples: int = 1,
        *,
        temperatures: Sequence[float] | None = None,
        tools: Literal["declared", "all"] = "declared",
        confidence: float = 0.5,
        timeout_s: float = 30.0,
    ) -> None:
        """Check the settings; the model is made at its first use."""
        if samples < 1:
            msg = f"`samples` must be 1 or more, got {samples!r}"
            raise ValueError(msg)
        if tools not in ("declared", "all"):
            msg = f"`tools` must be 'declared' or 'all', got {tools!r}"
            raise ValueError(msg)
        if not timeout_s > 0:
            msg = f"`timeout_s` must be more than 0 seconds, got {timeout_s!r}"
            raise ValueError(msg)
        Guess(tool="", args={}, confidence=confidence)
        self.samples = samples
        self.timeout_s = timeout_s
        self._model = model
        self._temperatures = [*temperatures] if temperatures else None
        self._tools = tools
        self._confidence = confidence
        self._broken = False

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        """Ask the draft model, blocking."""
        bound = self._bound(request, sample)
        if bound is None:
            return
        try:
            answer = bound.invoke([*request.messages], _config(request))
        except Exception as error:  # noqa: BLE001 - see `_plainer`
            plainer = self._plainer(request, error)
            if plainer is None:
                raise
            answer = plainer.invoke([*request.messages], _config(request))
        yield from self._guesses(answer, request)

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        """Ask the draft model, awaiting."""
        bound = self._bound(request, sample)
        if bound is None:
            return
        try:
            answer = await bound.ainvoke([*request.messages], _config(request))
        except Exception as error:  # noqa: BLE001 - see `_plainer`
            plainer = self._plainer(request, error)
            if plainer is None:
                raise
            answer = await plainer.ainvoke([*request.messages], _config(request))
        for guess in self._guesses(answer, request):
            yield guess

    def _bound(self, request: TurnRequest, sample: int) -> Runnable[Any, Any] | None:
        if self._broken:
            return None
        settings: dict[str, Any] = {}
        if self._temperatures is not None:
            settings["temperature"] = self._temperatures[sample % len(self._temperatures)]
        return self._bind(request, settings)

    def _bind(self, request: TurnRequest, settings: dict[str, Any]) -> Runnable[Any, Any] | None:
        tools = request.declared if self._tools == "declared" else request.tools
        try:
            return self._loaded().bind_tools([*tools], **settings)
        except Exception as error:  # noqa: BLE001 - no provider, no key, no tool binding: no guesses
            self._broken = True
            warnings.warn(
                f"the draft model {self._model!r} cannot guess: {error!r}; "
                "the agent works without its guesses",
                RuntimeWarning,
                stacklevel=2,
            )
            return None

    def _plainer(self, request: TurnRequest, error: Exception) -> Runnable[Any, Any] | None:
        """Return the model without our temperature, if the provider seems to reject that."""
        if self._temperatures is None or "temperature" not in str(error).lower():
            return None
        self._temperatures = None
        warnings.warn(
            f"the draft model rejects `temperature` ({error}); its samples run without it",
            RuntimeWarning,
            stacklevel=2,
        )
        return self._bind(request, {})

    def _loaded(self) -> BaseChatModel:
        if isinstance(self._model, str):
            from langchain.chat_models import init_chat_model

            self._model = cast("BaseChatModel", init_chat_model(self._model, max_retries=0))
        return self._model

    def _guesses(self, answer: Any, request: TurnRequest) -> Iterator[Guess]:  # noqa: ANN401
        if not isinstance(answer, AIMessage):
            return
        if request.on_usage is not None:
            request.on_usage(self.name, _usage(answer))
        for call in answer.tool_calls:
            yield Guess(tool=call["name"], args=call["args"], confidence=self._confidence)


def _usage(answer: AIMessage) -> Usage:
    usage = answer.usage_metadata
    return None if usage is None else (usage["input_tokens"], usage["output_tokens"])


def _config(request: TurnRequest) -> RunnableConfig:
    return RunnableConfig(
        callbacks=[],
        tags=["nostream"],
        metadata={"lc_source": "speculation", **request.internal},
        run_name="speculation",
    )
