"""`@speculatable`, and the answer to which tools can run early and why not."""

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar, Unpack, cast, overload

from langchain_core.tools import BaseTool

from langchain_spectool._core.contracts import (
    Contract,
    ContractFields,
    contract_from,
    declaration,
    declare,
)
from langchain_spectool.errors import ContractError
from langchain_spectool.graph.mcp_trust import mcp_contract, mcp_reason
from langchain_spectool.graph.structure import own_bodies, structural_reason

ToolT = TypeVar("ToolT", bound=BaseTool | type[BaseTool])

_TODO_MODULE = "langchain.agents.middleware.todo"
_NOT_EARLY = Contract(early=False)


@overload
def speculatable(target: ToolT, /, **fields: Unpack[ContractFields]) -> ToolT: ...
@overload
def speculatable(
    target: None = None, /, **fields: Unpack[ContractFields]
) -> Callable[[ToolT], ToolT]: ...
def speculatable(
    target: ToolT | None = None, /, **fields: Unpack[ContractFields]
) -> ToolT | Callable[[ToolT], ToolT]:
    """Declare a tool read-only, harmless to repeat and fine to run when nobody asked.

    Works as a decorator above `@tool` or on a `BaseTool` class, with or without arguments, and
    as a function on a tool one did not write. The declaration binds to the object: a copy with
    another body or name, and a subclass with a body of its own, are undeclared again.
    Declaring again replaces.

    Args:
        target: A tool, or a tool class whose instances all count as declared.
        **fields: The fields of `Contract`.

    Returns:
        The same tool or class.

    Raises:
        ContractError: Not a tool, or one that can never run early and is not `early=False`.
        ValueError: A field is out of its range, or contradicts another.
        NotAvailableYet: A field of later work.
    """
    contract = contract_from(fields)

    def decorate(tool: ToolT) -> ToolT:
        _check_target(tool, contract)
        declare(tool, contract)
        return tool

    return decorate if target is None else decorate(target)


def _check_target(target: object, contract: Contract) -> None:
    if isinstance(target, BaseTool):
        tool, name = target, target.name
    elif isinstance(target, type) and issubclass(target, BaseTool):
        tool, name = target, target.__name__
        if not own_bodies(target):
            msg = f"every {name} has another body: declare the tools one by one, not their class"
            raise ContractError(msg)
    elif inspect.isroutine(cast("object", target)):
        msg = f"{target!r} is not a tool yet: put `@speculatable` above `@tool`, not below it"
        raise ContractError(msg)
    else:
        msg = f"only a tool or a tool class can be speculatable, got {target!r}"
        raise ContractError(msg)
    reason = structural_reason(tool).reason
    if contract.early and reason is not None:
        msg = (
            f"{name!r} can never run early: {reason}. If it only reads, "
            "`speculatable(early=False)` keeps other results valid across it"
        )
        raise ContractError(msg)


def contract_of(tool: object, *, trust_mcp: Collection[str] = ()) -> Contract | None:
    """Return what is known about `tool`: declared, built in here, or said by a trusted server.

    Args:
        tool: Any object; what is no tool has no contract.
        trust_mcp: The operator's names of the MCP servers whose hints count.
    """
    trusted = _names("trust_mcp", trust_mcp)
    record = declaration(tool)
    if record is not None:  # one that no longer fits leaves nothing to others
        return record.contract if record.fits(tool) else None
    return _built_in(tool) or mcp_contract(tool, trusted)


def _built_in(tool: object) -> Contract | None:
    # LangChain's to-do list only writes the agent's own plan, which no other tool reads.
    body = getattr(tool, "func", None)
    return _NOT_EARLY if getattr(body, "__module__", None) == _TODO_MODULE else None


class AllowsExternal(Protocol):
    """The part of a policy that decides about a tool as such."""

    @property
    def allow_external(self) -> bool:
        """Whether tools whose arguments third parties see may run early."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Whether one tool can run early."""

    tool: str
    """The tool's name."""
    early: bool
    """Whether it can; its guesses still have to pass budgets and its own `gate`."""
    verdict: str
    """`run`, or the named reason why not, as in events and metrics."""
    reason: str
    """The same in words, with the fix."""

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.tool}: {self.reason}" if self.early else f"{self.tool}: no, {self.reason}"


def why_not(
    tool: object,
    *,
    policy: AllowsExternal | None = None,
    gated: Collection[str] = (),
    trust_mcp: Collection[str] = (),
) -> str | None:
    """Say in words why `tool` cannot run early; None if it can.

    Args:
        tool: A tool, or anything else an agent takes as one.
        policy: What the operator allows; None: nothing beyond the defaults.
        gated: Names of tools that need an approval.
        trust_mcp: The operator's names of the MCP servers whose hints count.

    Raises:
        ValueError: `gated` or `trust_mcp` is a single string.
    """
    given = explain([tool], policy=policy, gated=gated, trust_mcp=trust_mcp)[0]
    return None if given.early else given.reason


def explain(
    tools: Iterable[object],
    *,
    policy: AllowsExternal | None = None,
    gated: Collection[str] = (),
    trust_mcp: Collection[str] = (),
) -> list[Explanation]:
    """Say for each of an agent's tools, in order, whether it can run early, and why not.

    Args:
        tools: All tools of one agent: of two with one name, neither can.
        policy: What the operator allows; None: nothing beyond the defaults.
        gated: Names of tools that need an approval.
        trust_mcp: The operator's names of the MCP servers whose hints count.

    Raises:
        ValueError: `gated` or `trust_mcp` is a single string.
    """
    asked = list(tools)
    counts = Counter(_name(tool) for tool in asked)
    judge = Judge(
        external=policy is not None and policy.allow_external,
        gated=_names("gated", gated),
        trusted=_names("trust_mcp", trust_mcp),
        twice=frozenset(name for name, count in counts.items() if count > 1),
    )
    return [judge.explain(tool) for tool in asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What decides about one agent's tools as such, before any guess."""

    external: bool
    """Whether tools whose arguments third parties see may run early."""
    gated: frozenset[str]
    """Names of tools that need an approval."""
    trusted: frozenset[str]
    """MCP servers whose hints count."""
    twice: frozenset[str]
    """Names that more than one tool has."""

    def explain(self, tool: object) -> Explanation:
        """Judge one tool, in words."""
        verdict, reason = self.verdict(tool)
        return Explanation(tool=_name(tool), early=verdict == "run", verdict=verdict, reason=reason)

    def verdict(self, tool: object) -> tuple[str, str]:
        """Return the first reason against it, the most lasting first."""
        if not isinstance(tool, BaseTool):
            return "undeclared", _no_tool(tool)
        contract = contract_of(tool, trust_mcp=self.trusted)
        if contract is not None and not contract.early:
            return "not_early", "it is declared `early=False`: it runs when the model calls it"
        structure = structural_reason(tool)
        if structure.reason is not None:
            return structure.verdict, structure.reason
        if contract is None:
            return "undeclared", _undeclared(tool, self.trusted)
        where = "" if structure.synchronous else ", in async runs only: it has no synchronous body"
        return self._forbidden(tool, contract) or ("run", f"can run early{where}")

    def _forbidden(self, tool: BaseTool, contract: Contract) -> tuple[str, str] | None:
        """Return what the operator's settings say against it."""
        if tool.name in self.twice:
            return "duplicate", "another tool has the same name: rename one of them"
        if tool.name in self.gated:
            return "gated", "it needs an approval, which no guess may ask for or skip"
        if contract.audience == "external" and not self.external:
            return "external", "third parties see its arguments: allow it with `allow_external`"
        return None


def _undeclared(tool: BaseTool, trusted: frozenset[str]) -> str:
    if declaration(tool) is not None:
        return "its body or name is not the one that was declared: declare this very tool"
    hinted = mcp_reason(tool, trusted)
    return hinted or "nobody declared it: put `@speculatable` above `@tool` if it only reads"


def _no_tool(tool: object) -> str:
    if isinstance(tool, dict):
        return "its provider runs it: nothing of it runs here"
    return "it is not a tool object: make it one with `@tool`, then put `@speculatable` above"


def _name(tool: object) -> str:
    if isinstance(tool, dict):
        known = cast("dict[str, object]", tool)
        return str(known.get("name") or known.get("type") or known)
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", None) or tool)


def _names(field: str, value: Collection[str]) -> frozenset[str]:
    # A bare string would match every name that is part of it.
    if isinstance(value, str):
        msg = f"`{field}` must be a list of names, got {value!r}: write [{value!r}]"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, as in every other setting
    return frozenset(value)
