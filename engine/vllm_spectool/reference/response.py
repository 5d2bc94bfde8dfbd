"""One response of the reference engine, as its client reads it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from vllm_spectool._core.protocol import marker, resolved, with_continuations
from vllm_spectool.errors import EngineError
from vllm_spectool.reference.engine import Engine
from vllm_spectool.reference.request import ChatRequest, Output, Running
from vllm_spectool.reference.wire import DONE, TurnText, TurnWriter, error_body, event


class ModelError(EngineError):
    """The model, or a step of the engine, raised; the request has ended."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """One response, whole or as a stream; `close` it in any case."""

    engine: Engine
    running: Running
    outputs: asyncio.Queue[Output]
    """What the engine's steps bring."""
    forget: Callable[[Running], None]
    """Ends the request, if it has not ended, and frees all it has."""
    model: str
    created: int
    """Seconds since 1970."""

    @property
    def request(self) -> ChatRequest:
        """What was asked for."""
        return self.running.request

    def close(self) -> None:
        """Abort the request if it has not ended."""
        self.forget(self.running)

    async def events(self) -> AsyncIterator[str]:
        """Yield the stream: turn by turn, with a marker between two."""
        try:
            writer = self._writer(0)
            yield writer.opening()
            async for output in self._read():
                for chunk in writer.stream(output):
                    yield chunk
                if output.end == "continued":
                    yield event(self._marker(output.turn + 1))
                    writer = self._writer(output.turn + 1)
                    yield writer.opening()
        except ModelError as error:
            yield event(error_body(str(error), kind="InternalServerError", code=500))
            yield DONE
        finally:
            self.close()

    async def whole(self) -> dict[str, Any]:
        """Return the response at once; its whole turns, if it fails after the first.

        Raises:
            ModelError: It failed in its first turn.
        """
        turns: list[dict[str, Any]] = []
        try:
            await self._write(turns)
        except ModelError:
            if not turns:
                raise
        finally:
            self.close()
        records = [self._records(turn) for turn in range(1, len(turns))]
        return with_continuations(turns, records)

    async def _write(self, turns: list[dict[str, Any]]) -> None:
        writer = self._writer(0)
        async for output in self._read():
            writer.feed(output)
            if output.end != "open":
                turns.append(writer.response(output.finish_reason))
            if output.end == "continued":
                writer = self._writer(output.turn + 1)

    async def _read(self) -> AsyncIterator[Output]:
        ended = False
        while not ended:
            output = await self.outputs.get()
            if output.error is not None:
                msg = f"the model raised {output.error!r}"
                raise ModelError(msg) from output.error
            ended = output.end == "finished"
            yield output

    def _writer(self, turn: int) -> TurnWriter:
        engine = self.engine
        return TurnWriter(
            request=self.request,
            turn=turn,
            prompt_tokens=self.running.turns[turn].prompt_tokens,
            created=self.created,
            model=self.model,
            text=TurnText(
                style=engine.style,
                tokenizer=engine.tokenizer,
                stop_id=engine.stop_id,
                reads_calls=bool(self.request.tools),
            ),
        )

    def _records(self, turn: int) -> list[dict[str, Any]]:
        continuation = self.running.turns[turn].continuation
        return resolved(continuation.calls, continuation.outputs) if continuation else []

    def _marker(self, turn: int) -> dict[str, Any]:
        return marker(
            self.request.id,
            created=self.created,
            model=self.model,
            turn=turn,
            records=self._records(turn),
        )
