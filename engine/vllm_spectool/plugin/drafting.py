"""Has the calls of posted entries written as drafts, and sends them to the engine core.

In the background and in order: no post waits for it, and none fails with it.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from vllm_spectool._core.counters import DRAFTED, DRAFTS, Tally
from vllm_spectool._core.drafts import Draft, Renderings, draft_of
from vllm_spectool._core.entries import Entry
from vllm_spectool._core.messages import assistant_message
from vllm_spectool.errors import RenderingError
from vllm_spectool.plugin.support import UTILITY

logger = logging.getLogger("vllm.spectool")

Render = Callable[[Sequence[Mapping[str, Any]], bool], Awaitable[Sequence[int]]]
"""Writes a conversation as the server does; whether the assistant's turn is opened."""
Send = Callable[[list[Any]], Awaitable[Mapping[str, int]]]
"""Hands orders to the engine core; returns what it has offered so far."""
Order = tuple[str, Sequence[Entry] | None]
"""A key's digest, and what was posted; None to forget what it has."""

MOST_ORDERS = 256
"""Most that may wait."""
MOST_ENTRIES = 16
"""Most of one post whose calls are written: the last ones."""
MOST_CHARACTERS = 4096
"""Longest call that is written, as JSON."""
QUESTION: Mapping[str, Any] = {"role": "user", "content": "?"}
CALL_ID = "spectool0"
"""Mistral's templates want nine letters and digits."""


class Drafting:
    """Turns posts into drafts."""

    def __init__(
        self, render: Render, send: Send, stop_token_ids: Collection[int], tally: Tally
    ) -> None:
        self._render = render
        self._send = send
        self._stops = frozenset(stop_token_ids)
        self._tally = tally
        self._opening: Sequence[int] | None = None
        self._orders: deque[Order] = deque()
        self._work: asyncio.Task[None] | None = None
        self._told: Mapping[str, int] = {}

    def post(self, key_digest: str, entries: Sequence[Entry]) -> None:
        """Draft the calls of entries."""
        self._take((key_digest, entries))

    def forget(self, key_digest: str) -> None:
        """Drop the drafts of a key."""
        self._take((key_digest, None))

    def refresh(self) -> None:
        """Ask how much was offered."""
        self._take(None)

    async def settle(self) -> None:
        """Wait until nothing is left to do."""
        while self._work is not None and not self._work.done():
            await self._work

    def _take(self, order: Order | None) -> None:
        if len(self._orders) >= MOST_ORDERS:
            self._tally.add(DRAFTS, "lost")
            return
        if order is not None:
            self._orders.append(order)
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(
                self._send_on(), name="spectool:drafts"
            )

    async def _send_on(self) -> None:
        while True:
            orders = [self._orders.popleft() for _ in range(len(self._orders))]
            try:
                told = await self._send([await self._written(order) for order in orders])
            except Exception as error:  # noqa: BLE001
                self._tally.add(DRAFTS, "lost", by=max(1, len(orders)))
                logger.debug("spectool: drafts were not taken: %r", error)
            else:
                self._note(told)
            if not self._orders:
                return

    def _note(self, told: Mapping[str, int]) -> None:
        for what in DRAFTED.values:
            self._tally.add(DRAFTED, what, by=told.get(what, 0) - self._told.get(what, 0))
        self._told = told

    async def _written(self, order: Order) -> list[Any]:
        key_digest, entries = order
        if entries is None:
            return [key_digest, None]
        drafts = [await self._draft(entry) for entry in entries[-MOST_ENTRIES:]]
        made = [draft for draft in drafts if draft is not None]
        self._tally.add(DRAFTS, "made", by=len(made))
        self._tally.add(DRAFTS, "undraftable", by=len(entries) - len(made))
        return [key_digest, [[each.anchor, each.token_ids, each.keep_alive_s] for each in made]]

    async def _draft(self, entry: Entry) -> Draft | None:
        if len(entry.key) > MOST_CHARACTERS:
            return None
        try:
            if self._opening is None:
                self._opening = await self._render([QUESTION], True)  # noqa: FBT003
            written = Renderings(
                opening=self._opening,
                call=await self._call(entry.name, entry.params),
                other_name=await self._call(_another(entry.name), entry.params),
                other_params=await self._call(entry.name, {} if entry.params else {"a": 0}),
            )
        except Exception as error:  # noqa: BLE001
            logger.debug("spectool: the template does not write %s: %r", entry.name, error)
            return None
        return draft_of(written, self._stops, entry.keep_alive_s)

    async def _call(self, name: str, params: Mapping[str, Any]) -> Sequence[int]:
        return await self._render([QUESTION, *called(name, params)], False)  # noqa: FBT003


def called(name: str, params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a turn that makes a call, and the tool's answer: some templates want one."""
    arguments = json.dumps(params, ensure_ascii=False)
    said = assistant_message(None, [{"id": CALL_ID, "name": name, "arguments": arguments}])
    return [said, {"role": "tool", "tool_call_id": CALL_ID, "content": "."}]


def drafting(engine_client: Any, chat: Any, tally: Tally) -> Drafting:
    """Return what drafts for vLLM's chat handler `chat`."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

    async def render(messages: Sequence[Mapping[str, Any]], opened: bool) -> Sequence[int]:  # noqa: FBT001
        body = {"messages": [*messages], "add_generation_prompt": opened}
        request = ChatCompletionRequest.model_validate(body)
        answer = await chat.online_renderer.render_chat(request)
        if isinstance(answer, ErrorResponse):
            raise RenderingError(answer.error.message)
        _, (prompt,) = answer
        return prompt["prompt_token_ids"]

    async def send(orders: list[Any]) -> Mapping[str, int]:
        return await engine_client.engine_core.call_utility_async(UTILITY, orders)

    return Drafting(render, send, _stop_token_ids(engine_client), tally)


def _stop_token_ids(engine_client: Any) -> set[int]:
    """Return what ends a turn where a request asks for nothing more."""
    settings = engine_client.vllm_config.model_config.try_get_generation_config()
    named: int | list[int] | None = settings.get("eos_token_id")
    several = named if isinstance(named, list) else [named]
    own: int | None = engine_client.renderer.get_eos_token_id()
    return {each for each in (own, *several) if each is not None}


def _another(name: str) -> str:
    return "y" if name.startswith("x") else "x"
