"""Small scripted agents that talk to a server over HTTP.

A task's prompt is the same in every arm; what the server has cached of it is not shared between
arms, nor between agents, by `cache_salt`.
"""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import httpx

from langchain_spectool.bench.engine.workload import (
    TOOL,
    TOOLS,
    Message,
    Tool,
    canonical,
    prompt,
)

MOST_TURNS: Final = 4
MAX_TOKENS: Final = 64
_UNDRAFTED: Final[Mapping[bool, Mapping[str, int]]] = {True: {"spectool_drafts": 0}, False: {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """How a tool's output gets to the model."""

    name: str
    early: bool = False
    """Whether the call was guessed, and its early run is over when the question is asked."""
    engine: bool = False
    """Whether the output is posted to the server and the response may go on in place."""
    undrafted: bool = False
    """Whether a server that drafts arguments is asked not to."""


ROUND_TRIP: Final = Arm(name="round_trip")
AGAIN: Final = Arm(name="round_trip_again")
ARMS: Final = (
    ROUND_TRIP,
    AGAIN,
    Arm(name="early", early=True),
    Arm(name="o3", early=True, engine=True),
)
DRAFTING: Final = (
    ROUND_TRIP,
    AGAIN,
    Arm(name="o3", early=True, engine=True, undrafted=True),
    Arm(name="o3_o2", early=True, engine=True),
)
"""On a server that drafts arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one task came to."""

    seconds: float
    said: Sequence[Any]
    """Every turn: content, calls, token ids where the server tells them, and token counts."""
    resolved: int
    """Calls that the server answered in place."""
    calls: int
    """Calls the model committed."""
    guessed: int
    """How many of those an early run had been made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Asks one question after another; a fresh conversation each."""

    client: httpx.AsyncClient
    model: str
    arm: Arm
    tool: Tool

    async def ask(self, city: str, notes: int, salt: str) -> Asked:
        """Work on one task, known to server and tool as `salt`; see `prompt` for `notes`.

        Raises:
            httpx.HTTPError: The server refused, or went away.
        """
        guess = json.dumps({"city": city})
        flights = {guess: await self.tool.run(salt, guess)} if self.arm.early else {}
        began_s = time.perf_counter()
        conversation = _Conversation(
            client=self.client, tool=self.tool, salt=salt, flights=flights, arm=self.arm
        )
        conversation.body |= {
            "model": self.model,
            "cache_salt": salt,
            "messages": prompt(city, notes),
        }
        await conversation.run()
        return Asked(
            seconds=time.perf_counter() - began_s,
            said=conversation.said,
            resolved=conversation.resolved,
            calls=conversation.calls,
            guessed=conversation.guessed,
        )


@dataclass(slots=True, kw_only=True)
class _Conversation:
    client: httpx.AsyncClient
    tool: Tool
    salt: str
    flights: dict[str, str]
    """Outputs of early runs nobody has taken yet, by the arguments' canonical text."""
    arm: Arm
    body: dict[str, Any] = field(
        default_factory=lambda: {
            "tools": TOOLS,
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
            "return_token_ids": True,
        }
    )
    said: list[Any] = field(default_factory=list[Any])
    resolved: int = 0
    calls: int = 0
    guessed: int = 0

    async def run(self) -> None:
        """Send requests until the model asks for no more calls."""
        for _ in range(MOST_TURNS):
            if not await self._round():
                return

    async def _round(self) -> bool:
        """Send one request and take in all its turns; say whether another has to follow."""
        headers, extra, posted = await self._post_flights()
        response = await self.client.post(
            "/v1/chat/completions", json={**self.body, **extra}, headers=headers
        )
        response.raise_for_status()
        first: Mapping[str, Any] = response.json()
        for turn in (first, *_noted(first, "continuations")):
            calls: Sequence[Mapping[str, Any]] = self._take_in(turn).get("tool_calls") or ()
            records = _noted(turn, "resolved")
            if records:
                self._believe(calls, records, posted)
            elif calls:
                await self._execute(calls)
                return True
        return False

    async def _post_flights(self) -> tuple[dict[str, str], dict[str, Any], dict[str, str]]:
        if not (self.arm.engine and self.flights):
            return {}, {}, {}
        name, key = secrets.token_hex(16), secrets.token_urlsafe(24)
        entries = [
            {"name": TOOL, "params": json.loads(arguments), "output": output, "uses": 1}
            for arguments, output in self.flights.items()
        ]
        response = await self.client.post(
            f"/v1/cache-tool-output/chatcmpl-{name}", json=entries, headers={"X-Spectool-Key": key}
        )
        response.raise_for_status()
        return (
            {"X-Request-Id": name},
            {"vllm_xargs": {"spectool_key": key, **_UNDRAFTED[self.arm.undrafted]}},
            dict(self.flights),
        )

    def _take_in(self, turn: Mapping[str, Any]) -> Message:
        choice, usage = turn["choices"][0], turn["usage"]
        message: Mapping[str, Any] = choice["message"]
        calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
        self.said.append(
            [
                message.get("content") or "",
                [[call["function"]["name"], call["function"]["arguments"]] for call in calls],
                choice.get("token_ids"),
                choice["finish_reason"],
                [usage["prompt_tokens"], usage["completion_tokens"]],
            ]
        )
        kept: Message = {"role": "assistant", "content": message.get("content")}
        if calls:
            kept["tool_calls"] = calls
        self._messages.append(kept)
        return kept

    @property
    def _messages(self) -> list[Message]:
        return self.body["messages"]

    def _believe(
        self,
        calls: Sequence[Mapping[str, Any]],
        records: Sequence[Mapping[str, Any]],
        posted: Mapping[str, str],
    ) -> None:
        """Take the server's word for a turn, as far as it is what was posted.

        Raises:
            RuntimeError: The server answered with something else.
        """
        if [call["id"] for call in calls] != [record["tool_call_id"] for record in records]:
            msg = f"the server resolved {records!r}, which are not the turn's calls {calls!r}"
            raise RuntimeError(msg)
        for record in records:
            arguments = json.dumps(record["params"])
            output = posted.get(arguments)
            if output is None or sha256(output.encode()).hexdigest() != record["output_sha256"]:
                msg = f"the server resolved {record!r}, which was never posted"
                raise RuntimeError(msg)
            self.flights.pop(arguments, None)
            self.resolved += 1
            self._answer(record["tool_call_id"], arguments, output, guessed=True)

    async def _execute(self, calls: Sequence[Mapping[str, Any]]) -> None:
        for call in calls:
            arguments = canonical(call["function"]["arguments"])
            output = self.flights.pop(arguments, None)
            guessed = output is not None
            if output is None:
                output = await self.tool.run(self.salt, arguments)
            self._answer(call["id"], arguments, output, guessed=guessed)

    def _answer(self, call_id: str, arguments: str, output: str, *, guessed: bool) -> None:
        self.calls += 1
        self.guessed += guessed
        self.tool.commits[self.salt, arguments] += 1
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": output})


def _noted(turn: Mapping[str, Any], what: str) -> Sequence[Mapping[str, Any]]:
    """Return what the tool cache says of a turn; nothing where it had no part in it."""
    notes: Mapping[str, Any] = turn.get("spectool") or {}
    return notes.get(what) or ()
