"""One tenant's model: what it counted, how it ranks, and how sure it may be."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_spectool.speculators.patterns.bindings import Binding, Bindings
from langchain_spectool.speculators.patterns.calibration import Calibration
from langchain_spectool.speculators.patterns.candidates import Proposer
from langchain_spectool.speculators.patterns.context import Contexts
from langchain_spectool.speculators.patterns.features import PRIOR, Candidate
from langchain_spectool.speculators.patterns.history import History
from langchain_spectool.speculators.patterns.joints import Joints
from langchain_spectool.speculators.patterns.ranker import Example, Ranker
from langchain_spectool.speculators.patterns.schema import ArgSchema, ToolSchema
from langchain_spectool.speculators.patterns.shared import Shared
from langchain_spectool.speculators.patterns.signatures import Signatures
from langchain_spectool.speculators.patterns.slots import Question
from langchain_spectool.speculators.patterns.sources import Source
from langchain_spectool.speculators.patterns.values import MAX_TEXT, key_of, text_of

_MAX_CALLS = 32
"""Most calls of one turn that are learned from."""
_MAX_ARGS = 24
_SCORED = 3
"""How many of a turn's best candidates calibrate the confidence."""

_UNDESCRIBED: Mapping[str, ArgSchema] = {}

Calls = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A turn's candidates, the likeliest first, and how the turn looks to the ranker."""

    ranked: Sequence[tuple[Candidate, float]]
    """Candidates with the ranker's chances, before calibration."""
    example: Example
    """The rows, the first of them for no candidate, and no outcome yet."""
    keys: Sequence[str]
    """The keys of the candidates, in the order of the rows after the first."""


class Model:
    """Learns from turns, and predicts them."""

    def __init__(self, shared_across: int = 3) -> None:
        """Know nothing; values and words are kept once `shared_across` runs have shown them."""
        self.contexts = Contexts()
        self.bindings = Bindings()
        self.signatures = Signatures()
        self.joints = Joints()
        self.shared = Shared(shared_across)
        self.ranker = Ranker(PRIOR)
        self.calibration = Calibration()
        self.turns = 0.0
        self._proposer = Proposer(self.contexts, self.bindings, self.signatures, self.joints)

    def predict(
        self, history: History, schemas: Sequence[ToolSchema], declared: Collection[str]
    ) -> Prediction:
        """Return what may come next, of the tools that are `declared`."""
        version = (self.bindings.version, declared, len(schemas))
        held = history.notes.get("prediction")
        if held is not None and held[0] == version:
            return held[1]
        now = self._public(history.latest_user.words) if history.latest_user else ()
        facts = self._proposer.facts(history, schemas, now, self._said(history))
        found, null = self._proposer.propose(facts, schemas, declared)
        rows = [null, *(candidate.row for candidate in found)]
        chances = self.ranker.chances(rows)[1:]
        ranked = sorted(zip(found, chances, strict=True), key=lambda item: -item[1])
        prediction = Prediction(ranked, (rows, ()), [candidate.key for candidate in found])
        history.notes["prediction"] = (version, prediction)
        return prediction

    def learn(
        self,
        history: History,
        schemas: Sequence[ToolSchema],
        declared: Collection[str],
        calls: Calls,
        run: int,
    ) -> Example:
        """Learn that the model answered with `calls`; return the turn as the ranker saw it."""
        calls = calls[:_MAX_CALLS]
        predicted = self.predict(history, schemas, declared)
        keys = {key_of(tool, args) for tool, args in calls}
        for candidate, chance in predicted.ranked[:_SCORED]:
            self.calibration.learn(candidate.tool, chance, candidate.key in keys)
        right = [index for index, key in enumerate(predicted.keys, 1) if key in keys] or [0]
        example = (predicted.example[0], right)
        if right != [0] or predicted.keys:  # a turn without candidates teaches no ranking
            self.ranker.learn(example)
        self._count(history, {schema.name: schema for schema in schemas}, calls, run)
        return example

    def recalibrate(self, examples: Sequence[Example]) -> None:
        """Measure anew, with the ranker as it is now, how often its chances come true."""
        self.calibration = Calibration()
        for rows, right in examples:
            chances = self.ranker.chances(rows)
            order = sorted(range(1, len(rows)), key=lambda index: -chances[index])
            for index in order[:_SCORED]:
                tool = rows[index][1][0]
                self.calibration.learn(tool, chances[index], index in right)

    def _count(
        self, history: History, schemas: Mapping[str, ToolSchema], calls: Calls, run: int
    ) -> None:
        self.turns += 1
        self._publish(schemas, calls, run)
        said = self._said(history)
        spoken = history.latest_user.words if history.latest_user else ()
        words = [word for word in sorted(spoken) if self.shared.seen(f"w:{word}", run)]
        self.contexts.learn(history, {tool for tool, _ in calls}, words)
        by_tool: dict[str, list[Mapping[str, Any]]] = {}
        for tool, args in calls:
            self.signatures.learn(tool, args)
            by_tool.setdefault(tool, []).append(args)
        for tool, given in by_tool.items():
            described = schemas[tool].args if tool in schemas else _UNDESCRIBED
            names = sorted({name for args in given for name in args})[:_MAX_ARGS]
            wide = len(names) > 1
            questions = [
                Question(tool, name, described.get(name), history, said, wide) for name in names
            ]
            self._count_args(questions, given, run)
        self.bindings.version += 1

    def _count_args(
        self, questions: Sequence[Question], given: Sequence[Mapping[str, Any]], run: int
    ) -> None:
        if len(questions) > 1:
            options = {asked.arg: self.bindings.choices(asked) for asked in questions}
            self.joints.learn(questions[0].tool, options, questions[0].history, given)
        for asked in questions:
            values = [args[asked.arg] for args in given if asked.arg in args]
            binding = self.bindings.learn(asked, values)
            if asked.schema is not None:
                binding.constants.named.update(map(text_of, asked.schema.constants))
            where = f"{asked.tool}.{asked.arg}"
            public = [
                text
                for text, sources in sorted(binding.newest.items())
                if self._is_public(where, text, binding, sources, run)
            ]
            binding.constants.learn(public, asked.said)

    def _is_public(
        self, where: str, text: str, binding: Binding, sources: Collection[Source], run: int
    ) -> bool:
        """Whether a value may be kept; one found in the conversation shows no constant."""
        for source in sources:
            self.shared.seen(f"s:{source[-1]}", run)
        if not 0 < len(text) <= MAX_TEXT:
            return False
        item = f"c:{where}={text}"
        if text in binding.constants.named or item in self.shared:
            return True
        return not sources and self.shared.seen(item, run)

    def _publish(self, schemas: Mapping[str, ToolSchema], calls: Calls, run: int) -> None:
        """Take note of names: those a schema declares are public, others need enough runs."""
        for name, schema in schemas.items():
            if schema.is_known:
                self.shared.declare([name, *schema.args])
        for tool, args in calls:
            for name in (tool, *list(args)[:_MAX_ARGS]):
                self.shared.seen(f"n:{name}", run)

    def _public(self, words: Collection[str]) -> list[str]:
        return [word for word in sorted(words) if f"w:{word}" in self.shared]

    def _said(self, history: History) -> list[str]:
        """Return the public words of the user's last messages."""
        note = ("said", len(self.shared.public))
        found = history.notes.get(note)
        if found is None:
            words = frozenset[str]().union(*(text.words for text, _ in history.users[-4:]))
            found = history.notes[note] = self._public(words)
        return found
