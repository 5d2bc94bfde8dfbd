"""What every speculator needs that asks a chat model beside the main one."""

import asyncio
import threading
import warnings
from typing import cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding, RunnableConfig

from langchain_spectool._core.guess import Guess

Usage = tuple[int, int] | None

HEAD_START = 10
"""Passes of the event loop that a sample leaves to the main model.

Both requests are prepared on one loop, and the main model's goes out first: it takes eight passes
to get there. A main model that has answered by then needs no guess, and gets none.
"""

# No callbacks, so that its tokens reach nobody's stream; trackers that register by context
# variable still count them, once, under the model's own name.
ASIDE = RunnableConfig(
    callbacks=[], tags=["nostream"], metadata={"lc_source": "speculation"}, run_name="speculation"
)


async def head_start() -> None:
    """Let the main model's request go out first."""
    for _ in range(HEAD_START):
        await asyncio.sleep(0)


def check_settings(samples: int, timeout_s: float, confidence: float) -> None:
    """Check what all samples have in common.

    Raises:
        ValueError: A value is out of range.
    """
    if samples < 1:
        msg = f"`samples` must be 1 or more, got {samples!r}"
        raise ValueError(msg)
    if not timeout_s > 0:
        msg = f"`timeout_s` must be more than 0 seconds, got {timeout_s!r}"
        raise ValueError(msg)
    Guess(tool="", args={}, confidence=confidence)


def named_model(name: str) -> BaseChatModel:
    """Make the chat model of `"provider:name"`; its client repeats no request."""
    from langchain.chat_models import init_chat_model  # noqa: PLC0415 - a heavy import

    return init_chat_model(name, max_retries=0)


def name_of(model: object) -> str:
    """Return the name a price table knows `model` by; empty if it tells none."""
    if isinstance(model, str):
        return model.partition(":")[2] or model
    while isinstance(model, RunnableBinding):
        model = cast("object", model.bound)
    names = (getattr(model, field, None) for field in ("model_name", "model", "model_id"))
    return next((name for name in names if isinstance(name, str)), "")


def usage_of(answer: AIMessage) -> Usage:
    """Return the input and output tokens of an answer, or of a part of one; None if unknown."""
    usage = answer.usage_metadata
    return None if usage is None else (usage["input_tokens"], usage["output_tokens"])


class Complaints:
    """Warns of each kind of trouble once."""

    def __init__(self) -> None:
        """Start with nothing said."""
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def warn(self, kind: str, text: str) -> None:
        """Warn with `text`, unless something of this kind was said before."""
        with self._lock:
            said, self._said = kind in self._said, {*self._said, kind}
        if not said:
            warnings.warn(f"{text}; the agent goes on without", RuntimeWarning, stacklevel=3)
