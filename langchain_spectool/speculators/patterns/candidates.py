"""Whole calls that may come next."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from langchain_spectool.speculators.patterns.bindings import Bindings, Choice
from langchain_spectool.speculators.patterns.context import Contexts
from langchain_spectool.speculators.patterns.features import (
    Candidate,
    Facts,
    describe,
    describe_null,
)
from langchain_spectool.speculators.patterns.history import History
from langchain_spectool.speculators.patterns.joints import Joints
from langchain_spectool.speculators.patterns.ranker import Row
from langchain_spectool.speculators.patterns.schema import ToolSchema
from langchain_spectool.speculators.patterns.signatures import Signatures
from langchain_spectool.speculators.patterns.slots import Question
from langchain_spectool.speculators.patterns.values import key_of

MAX_CANDIDATES = 16
_MAX_TOOLS = 8
_SURE = 3
"""How many calls of each likely tool are always candidates."""
_BEAM = 8
_REPEATED = 0.3
_COLD_EMPTY = 0.05

Scored = tuple[Mapping[str, Choice], float]


@dataclass(frozen=True, slots=True)
class Proposer:
    """Makes a turn's candidates from what was counted, and changes none of it."""

    contexts: Contexts
    bindings: Bindings
    signatures: Signatures
    joints: Joints

    def facts(
        self,
        history: History,
        schemas: Sequence[ToolSchema],
        now: Collection[str],
        said: Sequence[str],
    ) -> Facts:
        """Return what is known of a turn; `now` and `said` are words of the user's."""
        chances = self.contexts.chances(history, [schema.name for schema in schemas])
        used = self.contexts.by_tools_used(history, chances)
        votes = self.contexts.by_words(now, chances) if now else dict.fromkeys(chances, 0.0)
        return Facts(history, chances, used, votes, said)

    def propose(
        self, facts: Facts, schemas: Sequence[ToolSchema], declared: Collection[str]
    ) -> tuple[list[Candidate], Row]:
        """Return the calls that may come next, and the row for none of them coming."""
        likely = sorted(
            (schema for schema in schemas if schema.name in declared),
            key=lambda schema: (
                -facts.chances[schema.name] - facts.used[schema.name],
                schema.name,
            ),
        )
        sure: list[Candidate] = []
        others: list[Candidate] = []
        for schema in likely[:_MAX_TOOLS]:
            calls = sorted(self._calls(schema, facts), key=lambda call: -call.score)
            sure += calls[:_SURE]
            others += calls[_SURE:]
        others.sort(key=lambda call: -call.score)
        found = [*sure, *others[: max(0, MAX_CANDIDATES - len(sure))]]
        found.sort(key=lambda call: -call.score)
        tools: set[str] = set()
        for call in found:
            call.row = describe(call, facts, best=call.tool not in tools)
            tools.add(call.tool)
        return found, describe_null(facts, declared, found[0].score if found else 0.0)

    def _calls(self, schema: ToolSchema, facts: Facts) -> list[Candidate]:
        tool = schema.name
        found: dict[str, Candidate] = {}
        cold = self.signatures.coldness(tool)
        for names, chance in self.signatures.likely(schema):
            for choices, args_chance in self._combinations(schema, names, facts):
                args = {name: choice.value for name, choice in choices.items()}
                key = key_of(tool, args)
                score = args_chance * chance * facts.chances[tool]
                if key in facts.history.called:
                    score *= _REPEATED
                if key not in found or found[key].score < score:
                    found[key] = Candidate(tool, args, choices, key, args_chance, score, cold)
        return list(found.values())

    def _combinations(self, schema: ToolSchema, names: Sequence[str], facts: Facts) -> list[Scored]:
        tool = schema.name
        wide = len(names) > 1
        options = {
            name: self.bindings.choices(
                Question(tool, name, schema.args.get(name), facts.history, facts.said, wide)
            )
            for name in names
        }
        if not names:
            # Nothing in the conversation speaks for a call that needs nothing of it.
            return [({}, _COLD_EMPTY if self.signatures.coldness(tool) == 1 else 1.0)]
        if len(names) == 1:
            (name,) = names
            return [({name: option}, option.chance) for option in options[name][:_BEAM]]
        twins = self.signatures.allows_twins(tool)
        joint = [
            (found.choices, chance)
            for found, chance in self.joints.likely(tool, options, facts.history)
            if twins or len(set(found.texts)) == len(found.texts)
        ]
        return [*joint[:_BEAM], *_beams(options, twins=twins)]


def _beams(options: Mapping[str, Sequence[Choice]], *, twins: bool) -> list[Scored]:
    """Return the likeliest combinations of values, as if they did not depend on each other."""
    beams: list[Scored] = [({}, 1.0)]
    for name, choices in options.items():
        beams = [
            ({**beam, name: choice}, score * choice.chance)
            for beam, score in beams
            for choice in choices[:_BEAM]
            if twins or all(choice.text != held.text for held in beam.values())
        ]
        beams.sort(key=lambda entry: -entry[1])
        del beams[_BEAM:]
    return beams
