"""`DraftModel`: a cheap chat model guesses beside the main one (arXiv 2512.15834, Alg. 2)."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool.speculators.asking import (
    ASIDE,
    Complaints,
    check_settings,
    head_start,
    name_of,
    named_model,
    usage_of,
)

_CONFIG = ASIDE


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
        if tools not in ("declared", "all"):
            msg = f"`tools` must be 'declared' or 'all', got {tools!r}"
            raise ValueError(msg)
        check_settings(samples, timeout_s, confidence)
        self.samples = samples
        self.timeout_s = timeout_s
        self._model = model
        self._temperatures = [*temperatures] if temperatures else None
        self._tools = tools
        self._confidence = confidence
        self._broken = False
        self._complaints = Complaints()

    @property
    def model_name(self) -> str:
        """The name of the draft model, as in a table of prices."""
        return name_of(self._model) or self.name

    def guess(self, request: TurnRequest, sample: int) -> Iterator[Guess]:
        """Ask the draft model, blocking."""
        for settings in self._attempts(sample):
            if (bound := self._bound(request, settings)) is None:
                return
            try:
                answer = bound.invoke([*request.messages], _CONFIG)
            except Exception as error:  # noqa: BLE001 - told once; the agent never hears of it
                if not self._again(settings, error):
                    return
            else:
                yield from self._guesses(answer, request)
                return

    async def aguess(self, request: TurnRequest, sample: int) -> AsyncIterator[Guess]:
        """Ask the draft model, awaiting."""
        await head_start()
        for settings in self._attempts(sample):
            if (bound := self._bound(request, settings)) is None:
                return
            try:
                answer = await bound.ainvoke([*request.messages], _CONFIG)
            except Exception as error:  # noqa: BLE001 - told once; the agent never hears of it
                if not self._again(settings, error):
                    return
            else:
                for guess in self._guesses(answer, request):
                    yield guess
                return

    def _attempts(self, sample: int) -> Iterator[dict[str, Any]]:
        """Yield the settings to try: with the sample's temperature, then without."""
        if self._temperatures:
            yield {"temperature": self._temperatures[sample % len(self._temperatures)]}
        yield {}

    def _again(self, settings: dict[str, Any], error: Exception) -> bool:
        """Say whether `error` blames the temperature, so that a call without it may work."""
        if settings and "temperature" in str(error).lower():
            self._temperatures = None
            self._complaints.warn("temperature", f"the draft model rejects `temperature`: {error}")
            return True
        self._complaints.warn("call", f"the draft model failed ({error!r}); its guesses are missed")
        return False

    def _bound(self, request: TurnRequest, settings: dict[str, Any]) -> Runnable[Any, Any] | None:
        if self._broken:
            return None
        tools = request.declared if self._tools == "declared" else request.tools
        try:
            return self._loaded().bind_tools([*tools], **settings)
        except Exception as error:  # noqa: BLE001 - no provider, no key, no tool binding
            self._broken = True
            self._complaints.warn(
                "bind", f"the draft model {self._model!r} cannot guess: {error!r}"
            )
            return None

    def _loaded(self) -> BaseChatModel:
        if isinstance(self._model, str):
            self._model = named_model(self._model)
        return self._model

    def _guesses(self, answer: Any, request: TurnRequest) -> Iterator[Guess]:  # noqa: ANN401
        if not isinstance(answer, AIMessage):
            return
        if request.on_usage is not None:
            request.on_usage(self.name, usage_of(answer))
        for call in answer.tool_calls:
            yield Guess(tool=call["name"], args=call["args"], confidence=self._confidence)
