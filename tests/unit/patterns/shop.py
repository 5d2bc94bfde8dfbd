"""A small invented shop: tools without bodies, and the runs of an agent that uses them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_spectool._core.guess import Guess, TurnRequest
from langchain_spectool.speculators.patterns.speculator import Patterns


@dataclass(frozen=True)
class Tool:
    """What a predictor sees of a tool."""

    name: str
    args: dict[str, dict[str, Any]] = field(default_factory=dict)


FIND = Tool("find_member", {"email": {"type": "string"}})
MEMBER = Tool("get_member", {"member_id": {"type": "string"}})
LOAN = Tool("get_loan", {"loan_id": {"type": "string"}})
CLOSE = Tool("close_loan", {"loan_id": {"type": "string"}})
TOOLS = (FIND, MEMBER, LOAN, CLOSE)
READ_ONLY = frozenset({"find_member", "get_member", "get_loan"})


@dataclass(frozen=True)
class Run:
    """A recorded run."""

    messages: Sequence[BaseMessage]
    run: str
    tools: Sequence[Any] = TOOLS
    read_only: frozenset[str] = READ_ONLY
    tenant: str | None = None


def call(tool: str, number: int = 1, /, **args: Any) -> AIMessage:
    """Return a message with one call."""
    return AIMessage("", tool_calls=[{"name": tool, "args": args, "id": f"c{number}"}])


def output(content: Any, number: int = 1, **rest: Any) -> ToolMessage:
    """Return what call `number` brought back."""
    shown = content if isinstance(content, str) else json.dumps(content)
    return ToolMessage(shown, tool_call_id=f"c{number}", **rest)


def visit(n: int, loans: int = 3) -> list[BaseMessage]:
    """Return a run: the member is found by e-mail, then each of the loans is looked at."""
    member = f"mem_{n}{n + 3}"
    ids = [f"L-{7 * n + k:04}" for k in range(loans)]
    messages: list[BaseMessage] = [
        HumanMessage(f"Hi, I am anna{n}@example.org, what did I borrow?"),
        call("find_member", 1, email=f"anna{n}@example.org"),
        output(member, 1),
        call("get_member", 2, member_id=member),
        output({"member_id": member, "city": "Ulm", "loans": ids}, 2),
    ]
    for number, loan in enumerate(ids, 3):
        messages += [
            call("get_loan", number, loan_id=loan),
            output({"loan_id": loan, "title": f"Book {number}"}, number),
        ]
    return [*messages, AIMessage("That is all.")]


def visits(count: int, *, start: int = 1, tenant: str | None = None) -> list[Run]:
    """Return recorded visits of different members."""
    return [Run(visit(n), f"run {n}", tenant=tenant) for n in range(start, start + count)]


def request(
    messages: Sequence[BaseMessage],
    *,
    tools: Sequence[Any] = TOOLS,
    declared: Sequence[Any] | None = None,
    tenant: str | None = None,
) -> TurnRequest:
    """Return what the main model is asked after `messages`."""
    early = [tool for tool in tools if tool.name != "close_loan"] if declared is None else declared
    return TurnRequest(messages=messages, tools=tools, declared=early, tenant=tenant)


def taught(runs: Sequence[Run] | None = None, **settings: Any) -> Patterns:
    """Return patterns that have seen `runs`."""
    patterns = Patterns(**settings)
    patterns.fit(visits(8) if runs is None else runs)
    return patterns


def guesses(patterns: Patterns, messages: Sequence[BaseMessage], **rest: Any) -> list[Guess]:
    """Return the guesses after `messages`."""
    return list(patterns.guess(request(messages, **rest), 0))


def first(
    patterns: Patterns, messages: Sequence[BaseMessage], **rest: Any
) -> tuple[str, dict[str, Any]]:
    """Return the likeliest call after `messages`."""
    guess = guesses(patterns, messages, **rest)[0]
    return guess.tool, dict(guess.args)
