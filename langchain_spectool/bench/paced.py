"""A chat model and a tool that cost next to nothing and take exactly as long as they are told."""

import asyncio
import time
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool

from langchain_spectool.bench.naming import BindsByName
from langchain_spectool.testing import calls

_DONE = AIMessage("done")


class PacedModel(BindsByName):
    """Answers a question with `answer` after `generation_s`, and a tool's result at once.

    A scripted model would cost more than what is measured here.
    """

    answer: AIMessage
    generation_s: float = 0.0
    written_s: float = 0.0
    """Seconds that asynchronous calls of this model have spent writing so far."""

    @property
    def _llm_type(self) -> str:
        return "paced"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the interface
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 - the interface
        **_: Any,
    ) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            return _result(_DONE)
        time.sleep(self.generation_s)
        return _result(self.answer)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the interface
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 - the interface
        **_: Any,
    ) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            return _result(_DONE)
        if self.generation_s:
            clock = asyncio.get_running_loop().time
            began_s = clock()
            await asyncio.sleep(self.generation_s)
            self.written_s += clock() - began_s
        return _result(self.answer)


def _result(message: AIMessage) -> ChatResult:
    # LangChain writes an id into what it is given.
    return ChatResult(generations=[ChatGeneration(message=message.model_copy())])


def look_ups(*durations_s: float, word: str = "item") -> AIMessage:
    """Return a message that asks for one look-up per duration, all with different arguments."""
    return calls(
        *(
            ("look_up", {"what": f"{word} {place}", "seconds": seconds})
            for place, seconds in enumerate(durations_s)
        )
    )


def look_up_tool() -> BaseTool:
    """Return a new tool object, declared nowhere yet."""
    return StructuredTool.from_function(
        func=_look_up, coroutine=_alook_up, name="look_up", description="Look something up."
    )


def _look_up(what: str, seconds: float) -> str:
    time.sleep(seconds)
    return f"all about {what}"


async def _alook_up(what: str, seconds: float) -> str:
    if seconds:
        await asyncio.sleep(seconds)
    return f"all about {what}"
