"""A desk to ask a reference engine from, without HTTP."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from vllm_spectool._core.entries import EntryLimits, parse_entries
from vllm_spectool._core.terms import key_digest
from vllm_spectool.reference import Reference

KEY = "k" * 22
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("look", "find")]


class Desk:
    """Asks as a client does, on one event loop."""

    key = KEY

    def body(self, *, opted_in: bool = True, **fields: Any) -> dict[str, Any]:
        """Return a request's body."""
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
        return asked | ({"vllm_xargs": {"spectool_key": KEY}} if opted_in else {}) | fields

    def begin(self, service: Reference, request_id: str = "1", **fields: Any) -> Any:
        """Send a request; return the response, of which nothing was read."""
        body = json.dumps(self.body(**fields)).encode()
        return service.chat(body, {"x-request-id": request_id})

    async def ask(self, service: Reference, request_id: str = "1", **fields: Any) -> Any:
        """Send a request; return all it brings."""
        return await self.begin(service, request_id, **fields).whole()

    async def post(
        self, service: Reference, *entries: Mapping[str, Any], request_id: str = "1"
    ) -> int:
        """Post outputs; return how many were kept."""
        parsed = parse_entries(json.dumps(entries).encode(), EntryLimits())
        return await service.put(self.owner(request_id), parsed)

    def owner(self, request_id: str = "1") -> tuple[str, str]:
        """Return what entries are found by."""
        return f"chatcmpl-{request_id}", key_digest(KEY) or ""

    def counts(self, service: Reference) -> dict[str, int]:
        """Return the turns counted so far, by outcome."""
        counted = service.store.tally.snapshot()
        return {
            name.removeprefix("turns."): count for name, count in counted.items() if "turns" in name
        }

    def turns(self, response: Mapping[str, Any]) -> list[Any]:
        """Return message, finish reason and usage of each turn, without ids."""
        rest = response.get("spectool", {}).get("continuations", [])
        return [self._turn(each) for each in (response, *rest)]

    async def round_trip(
        self, service: Reference, outputs: Sequence[str], **fields: Any
    ) -> list[Any]:
        """Answer each call with the next output, with one request for each turn."""
        messages: list[Any] = [{"role": "user", "content": "hi"}]
        turns: list[Any] = []
        left = list(outputs)
        while True:
            response = await self.ask(service, opted_in=False, messages=messages, **fields)
            turns += self.turns(response)
            said = response["choices"][0]["message"]
            calls = said.get("tool_calls", [])
            if len(calls) > len(left) or not calls:
                return turns
            messages += [{"role": "assistant", "content": said["content"], "tool_calls": calls}]
            messages += [
                {"role": "tool", "tool_call_id": each["id"], "content": left.pop(0)}
                for each in calls
            ]

    def _turn(self, response: Mapping[str, Any]) -> Any:
        (choice,) = response["choices"]
        calls = [each["function"] for each in choice["message"].get("tool_calls", [])]
        return choice["message"]["content"], calls, choice["finish_reason"], response["usage"]


class Gate:
    """A sleep that lasts until it is told otherwise: one step of the engine for each `step`."""

    def __init__(self) -> None:
        self._open = asyncio.Semaphore(0)

    async def sleep(self, _: float) -> None:
        await self._open.acquire()

    async def step(self, steps: int = 1) -> None:
        for _ in range(steps):
            self._open.release()
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@pytest.fixture
def desk() -> Desk:
    """Where a case asks from."""
    return Desk()


@pytest.fixture
def gate() -> Gate:
    """What holds an engine back."""
    return Gate()


@pytest.fixture
def nothing_left() -> dict[str, int]:
    """What an engine has when every client has gone."""
    names = ("running", "waiting", "resident", "unread", "blocks", "entries", "bytes", "responses")
    return dict.fromkeys(names, 0)
