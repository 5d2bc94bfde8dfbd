"""What a drawn agent is, as plain values that print well, and the world its tools act on."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

UNIT_S = {"async": 0.1, "sync": 0.001}
"""Seconds of one unit of time: virtual ones under a loop, real ones in threads."""
LATE = 100
"""Units a call takes that ends its turn: every sibling, in every arm, is done before."""
SOON = 1
"""Units such a call takes in a hurry: siblings are cut off."""


_AHEAD = frozenset(f"spectool_{number}" for number in range(8))
"""The ids of calls that a chain takes for made."""


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """One tool; its kind is also its name."""

    kind: str
    body: Literal["sync", "async", "both"] = "async"
    latency: int = 1
    contract: tuple[str, ...] | None = None
    """Names of contract fields (see `tools.FIELDS`); None for an undeclared tool."""
    watched: bool = False
    """Whether the tool has a callback of its own, which writes to the log."""


@dataclass(frozen=True, kw_only=True)
class CallSpec:
    """A call that a model makes or a speculator guesses."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TurnSpec:
    """One answer of the main model, and what is guessed meanwhile."""

    calls: tuple[CallSpec, ...]
    guesses: tuple[CallSpec, ...] = ()
    content: str = ""
    generation: int = 3
    failures: int = 0
    """How many attempts of the main model fail before it answers."""
    truncated: bool = False
    """Whether the model ran out of tokens."""


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """A whole agent and the way it is run."""

    form: Literal["create_agent", "state_graph", "react"] = "create_agent"
    clock: Literal["async", "sync"] = "async"
    entry: Literal["invoke", "stream", "events"] = "invoke"
    tools: tuple[ToolSpec, ...]
    turns: tuple[TurnSpec, ...]
    sources: tuple[str, ...] = ("rules",)
    checkpointer: bool = True
    repeat_ids: bool = False
    """Whether the model numbers the calls of each turn from 0, as some do."""
    pause: bool = False
    """Whether the graph stops before its tools and is resumed."""
    hurry: bool = False
    """Whether a call that ends its turn does so soon, while other calls are cut off; declared
    tools then take no time, so that hits come no sooner than stock's answers."""
    around: Literal["none", "parallel", "nested", "batch"] = "none"
    """Whether two of the agent run: as subgraphs at once, one after the other inside a node, or
    as a batch. They share their tools and their Speculation."""

    middleware: tuple[str, ...] = ()
    """Of `create_agent`, in order; ours stands before number `place`."""
    place: int = 0
    structured: bool = False
    """Whether the agent answers in a schema."""

    handling: str = "default"
    """Of the tool node: a key of `build.HANDLING`."""
    wrapper: str | None = None
    """The user's `wrap_tool_call` of the tool node."""
    state: Literal["typed", "pydantic", "dataclass"] = "typed"
    messages_key: str = "messages"
    node: Literal["function", "chain"] = "function"
    version: Literal["v1", "v2"] = "v2"
    retries: bool = False
    """Whether the nodes of a graph built by hand are retried once."""

    @property
    def live(self) -> bool:
        """Whether reads and writes of one turn may see each other: each body runs once."""
        once = "twice" not in self.middleware and self.around == "none"
        return self.clock == "async" and once

    @property
    def unit_s(self) -> float:
        """Seconds of one unit of time."""
        return UNIT_S[self.clock]


@dataclass
class World:
    """What the tools of one arm read and write.

    Reads see what was written before their turn began, so that no result depends on how the
    threads of one turn interleave; but `live` reads and writes, which run on the loop in the
    order of their calls, see each other at once.
    """

    counted: bool = True
    """Whether turns are counted as they begin; else they are told by the messages, which may
    then be those of several agents, or of a node that is retried."""
    version: int = 0
    live: int = 0
    pending: int = 0
    turn: int = -1
    attempts: Counter[int] = field(default_factory=Counter[int])
    log: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def turn_of(self, messages: Sequence[Any]) -> int:
        """Return which turn a model that was given `messages` is asked for."""
        answers = [message for message in messages if message.type == "ai"]
        if not self.counted:
            return len(answers)
        # A chain asks for the turns after this one.
        ahead = [call for each in answers for call in each.tool_calls if call["id"] in _AHEAD]
        return self.turn + len(ahead)

    def begin_turn(self) -> None:
        """Let the next turn see everything written so far."""
        self.live += self.pending
        self.pending = 0
        self.version = self.live
        self.turn += 1

    def change(self, *, live: bool) -> None:
        """Change the world, for live reads at once and for all at the next turn."""
        with self.lock:
            self.live += live
            self.pending += not live

    def write(self, entry: str) -> None:
        """Note a side effect."""
        with self.lock:
            self.log.append(entry)
