"""The tools of one request, and what each may do early."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_
from typing import Any, cast

from langchain_core.tools import BaseTool

from langchain_spectool._core.contracts import Arguments, Contract
from langchain_spectool._core.encoding import attempt
from langchain_spectool._core.guess import Candidate, Guess
from langchain_spectool._core.keys import PreparedTool, prepared
from langchain_spectool._core.turn import CommittedCall
from langchain_spectool._core.verdicts import GuessVerdict
from langchain_spectool.graph.declare import Judge, contract_of
from langchain_spectool.graph.early import tainted_before
from langchain_spectool.graph.provenance import blocked
from langchain_spectool.graph.structure import Structure, structural_reason

_NO_CONTRACT = Contract(early=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A guess with everything needed to judge and to run it."""

    candidate: Candidate
    tool: BaseTool | None = None
    structure: Structure = field(default_factory=Structure)


class ToolBook:
    """Looks up one request's tools by name."""

    def __init__(self, tools: Sequence[object], judge: Judge, *, blocking: bool) -> None:
        """Hold `tools` as `judge` sees them; `blocking` for a run without an event loop."""
        self._given = (*tools,)
        self._by_name = {tool.name: tool for tool in tools if isinstance(tool, BaseTool)}
        self._judge = judge
        self._blocking = blocking

    def fits(self, tools: Sequence[object], gated: Collection[str]) -> bool:
        """Say whether it is the book of these very tools, with the same ones held back."""
        return (
            len(tools) == len(self._given)
            and all(map(is_, tools, self._given))
            and gated == self._judge.gated
        )

    @cached_property
    def shares(self) -> bool:
        """Whether a call of one of the tools may be answered by what its run has kept."""
        contracts = (contract_of(tool, trust_mcp=self._judge.trusted) for tool in self.tools)
        return any(
            contract is not None and (contract.deterministic or contract.reuse != "turn")
            for contract in contracts
        )

    @property
    def tools(self) -> list[BaseTool]:
        """All tools, in the request's order."""
        return [*self._by_name.values()]

    @cached_property
    def vouched(self) -> frozenset[str]:
        """Names of the tools whose author vouches for what they return."""
        contracts = (
            (tool.name, contract_of(tool, trust_mcp=self._judge.trusted)) for tool in self.tools
        )
        return frozenset(
            name for name, contract in contracts if contract is not None and contract.trusted_output
        )

    @cached_property
    def declared(self) -> list[BaseTool]:
        """The tools that may run early, in the request's order."""
        return [tool for tool in self._by_name.values() if self._judge.verdict(tool)[0] == "run"]

    def resolve(
        self, guess: Guess, source: str, *, shadow: bool, messages: Sequence[Any]
    ) -> Resolved:
        """Find out what `guess` is: its key, its contract, and what stands against it."""
        tool = self._by_name.get(guess.tool)
        if tool is None:
            return _refused("unknown_tool", "other", guess, source)
        verdict, reason = self._judge.verdict(tool)
        if verdict != "run":
            return _refused(cast("GuessVerdict", verdict), tool.name, guess, source, reason)
        structure = structural_reason(tool)
        if self._blocking and not structure.synchronous:
            return _refused("not_sync", tool.name, guess, source)
        if (reason := tainted_before(tool)) is not None:
            return _refused("tainted_before", tool.name, guess, source, reason)
        contract = contract_of(tool, trust_mcp=self._judge.trusted) or _NO_CONTRACT
        if contract.audience == "external" and (
            reason := blocked(contract, guess, messages, self.vouched, tool=tool)
        ):
            return _refused("untrusted", tool.name, guess, source, reason)
        return self._admissible(tool, structure, contract, guess, source, shadow=shadow)

    def _admissible(  # noqa: PLR0913 - what `resolve` has found out
        self,
        tool: BaseTool,
        structure: Structure,
        contract: Contract,
        guess: Guess,
        source: str,
        *,
        shadow: bool,
    ) -> Resolved:
        ready = prepared(tool)
        values = ready.values(guess.args)
        if values is None:
            return _refused("invalid", tool.name, guess, source)
        allowed = _asked(contract, values)
        if allowed is not True:
            return _refused("gate", tool.name, guess, source, str(allowed or ""))
        candidate = Candidate(
            tool=tool.name,
            source=source,
            confidence=guess.confidence,
            contract=contract,
            key=_values_key(ready, contract, values),
            args=guess.args,
            refusal="shadow" if shadow else None,
        )
        return Resolved(candidate=candidate, tool=tool, structure=structure)

    def committed(self, calls: Iterable[Any], *, keyed: bool = True) -> list[CommittedCall]:
        """Read the calls of the model's answer; without keys if no flight can answer them."""
        return [self._committed(place, call, keyed=keyed) for place, call in enumerate(calls)]

    def _committed(self, place: int, call: Any, *, keyed: bool) -> CommittedCall:  # noqa: ANN401 - a tool call dict
        tool = self._by_name.get(call["name"])
        contract = None if tool is None else contract_of(tool, trust_mcp=self._judge.trusted)
        return CommittedCall(
            position=place,
            tool=call["name"],
            id=call.get("id"),
            args=call["args"],
            key=_key(tool, contract, call["args"]) if keyed else None,
            contract=contract,
            registered=tool is not None,
        )

    def names(self, calls: Iterable[Any]) -> tuple[str, ...]:
        """Return what events call the tools of `calls`: no name that a model made up."""
        return tuple(call["name"] if call["name"] in self._by_name else "other" for call in calls)


def _asked(contract: Contract, values: Arguments) -> bool | str:
    """Return what the contract's `gate` says of `values`; an error is a no."""
    if contract.gate is None:
        return True
    try:
        return contract.gate(values)
    except Exception as error:  # noqa: BLE001 - the author's function may fail on what a guess holds
        return repr(error)


def _key(tool: BaseTool | None, contract: Contract | None, args: Any) -> str | None:  # noqa: ANN401
    if tool is None or contract is None or not contract.early:
        return None
    ready = prepared(tool)
    values = ready.values(args)
    return None if values is None else _values_key(ready, contract, values)


def _values_key(ready: PreparedTool, contract: Contract, values: Arguments) -> str | None:
    """Return the key of what the author's `key` leaves of `values`; an error leaves no key."""
    own = values if contract.key is None else attempt(contract.key, values)
    return None if own is None else ready.values_key(own)


def _refused(
    verdict: GuessVerdict, tool: str, guess: Guess, source: str, detail: str = ""
) -> Resolved:
    return Resolved(
        candidate=Candidate(
            tool=tool,
            source=source,
            confidence=guess.confidence,
            contract=_NO_CONTRACT,
            key=None,
            refusal=verdict,
            detail=detail,
        )
    )


def judge_of(
    tools: Sequence[object], *, external: bool, gated: Collection[str], trusted: frozenset[str]
) -> Judge:
    """Return the judge of one request's tools: of two with one name, neither may run early."""
    counts = Counter(tool.name for tool in tools if isinstance(tool, BaseTool))
    return Judge(
        external=external,
        gated=frozenset(gated),
        trusted=trusted,
        twice=frozenset(name for name, count in counts.items() if count > 1),
    )
