"""Which arguments a tool is given together, and whether two of them may be the same."""

from collections.abc import Mapping

from langchain_spectool.speculators.patterns.counts import TOTAL, Tally, fading_out, observe, share
from langchain_spectool.speculators.patterns.schema import ToolSchema
from langchain_spectool.speculators.patterns.values import text_of

NO_ARGS = "()"
TWINS = "=="
_MAX_TOOLS = 1_000
_COLD = 0.9
_LEAST = 0.05
_ENOUGH = 5
_RARE = 0.02

Names = tuple[str, ...]


class Signatures:
    """Faded counts of the argument names of each tool's calls."""

    def __init__(self) -> None:
        """Know no tool."""
        self.tallies: dict[str, Tally] = {}

    def learn(self, tool: str, args: Mapping[str, object]) -> None:
        """Count a call."""
        outcomes = [",".join(sorted(args)) or NO_ARGS]
        texts = [text_of(value) for value in args.values()]
        if len(set(texts)) < len(texts):
            outcomes.append(TWINS)
        observe(self.tallies.setdefault(tool, {}), outcomes)
        if len(self.tallies) > _MAX_TOOLS:
            fading_out(self.tallies, _MAX_TOOLS, lambda tally: tally[TOTAL])

    def likely(self, schema: ToolSchema) -> list[tuple[Names, float]]:
        """Return the likeliest sets of arguments and their chances, at most two."""
        tally = self.tallies.get(schema.name)
        if not tally:
            return [(schema.required, _COLD)]
        names = [name for name in tally if name not in {TOTAL, TWINS}]
        names.sort(key=lambda name: (-tally[name], name))
        return [
            (() if name == NO_ARGS else tuple(name.split(",")), share(tally, name))
            for name in names[:2]
            if share(tally, name) > _LEAST
        ]

    def coldness(self, tool: str) -> float:
        """Return 1 for a tool that was never seen called, less with every call."""
        return 1 / (1 + self.tallies.get(tool, {}).get(TOTAL, 0.0))

    def allows_twins(self, tool: str) -> bool:
        """Whether two arguments of a call may have the same value."""
        tally = self.tallies.get(tool, {})
        return tally.get(TOTAL, 0.0) < _ENOUGH or share(tally, TWINS) > _RARE
