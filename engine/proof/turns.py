"""Compares what a server says in place, or with drafts, with round trips, token by token.

Float32, greedy, one request at a time. Each question is asked by two round trips first (A/A); the
claim is that no arm differs more often than those do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import models
from arms import DRAFTS, PLAIN, Arm, round_trip
from langchain_spectool.bench.engine.bars import SIGNIFICANT, exceeds
from live_client import Client
from serving import DRAFTING, HERE, HOME, serving
from styles import Question, Style, smollm2_questions, tiny_questions

SMOLLM2_TEMPLATE = HERE.parent / "tests" / "vllm" / "smollm2_tools.jinja"
OFFERED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, how it is served, and what it is asked."""

    model: Path
    flags: Sequence[str]
    questions: Sequence[Question]
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """What came of one question in one arm."""

    kind: str
    name: str
    stream: bool
    arm: str
    turns: int
    """Of the round trip."""
    expected_turns: int
    continued: int
    """Turns that went on in place."""
    to_continue: int
    """How many had to."""
    may_stop: bool
    aa_differs: bool
    differs: bool
    """Whether any turn is not the round trip's."""

    @property
    def amiss(self) -> bool:
        """Whether the model did not know it, or the response stopped where it had to go on."""
        good = self.turns == self.expected_turns and self.continued == self.to_continue
        return not (self.may_stop or good)


def smollm2() -> dict[str, Any]:
    """Ask SmolLM2, 135 million parameters, with examples in the prompt."""
    flags = ["--max-model-len", "2048", "--chat-template", str(SMOLLM2_TEMPLATE)]
    return proof(Subject(model=HOME / "smollm2", flags=flags, questions=[*smollm2_questions()]))


def tiny(style: Style) -> dict[str, Any]:
    """Ask the tiny model of a style, which is trained if it is not there."""
    training = models.trained(style.model)
    subject = Subject(
        model=models.folder(style.model),
        flags=models.flags(style.name, style.parser),
        questions=[*tiny_questions(style)],
        tiny=True,
    )
    return {"training": training, **proof(subject)}


def proof(subject: Subject) -> dict[str, Any]:
    """Ask all questions of a server without drafts, then of one with them."""
    with serving(subject.model, *subject.flags, tiny=subject.tiny) as running:
        rows = asked(running.client, subject.questions, PLAIN)
    with serving(subject.model, *subject.flags, *DRAFTING, tiny=subject.tiny) as running:
        client = running.client
        before = [client.metric(name) for name in (OFFERED, ACCEPTED)]
        rows += asked(client, subject.questions, DRAFTS)
        offered, accepted = (
            round(client.metric(name) - was)
            for name, was in zip((OFFERED, ACCEPTED), before, strict=True)
        )
    found = verdict(rows)
    vain = [] if accepted else ["no draft was accepted"]
    return {
        "draft_tokens": {"offered": offered, "accepted": accepted},
        **found,
        "amiss": [*found["amiss"], *vain],
        "proved": found["proved"] and not vain,
    }


def asked(client: Client, questions: Sequence[Question], arms: Sequence[Arm]) -> list[Row]:
    """Ask questions in all arms, streamed and not."""
    return [
        row
        for question in questions
        for stream in (False, True)
        for row in compared(client, question, arms, stream=stream)
    ]


def compared(
    client: Client, question: Question, arms: Sequence[Arm], *, stream: bool
) -> Iterator[Row]:
    """Ask a question by two round trips, then in each arm."""
    first, again = (round_trip(client, question, stream) for _ in range(2))
    # What follows a stop is the client's; its prompt may hold ids that are drawn anew.
    most = 1 if question.may_stop else len(first)
    for arm in arms:
        turns = arm.ask(client, question, stream)
        # In place it may say less, and then says it as the round trip does.
        shown = len(turns) if arm.in_place else most
        short = not arm.in_place and len(turns) != len(first)
        yield Row(
            kind=question.kind,
            name=question.name,
            stream=stream,
            arm=arm.name,
            turns=len(first),
            expected_turns=question.turns,
            continued=len(turns) - 1 if arm.in_place else 0,
            to_continue=question.turns - 1 if arm.in_place else 0,
            may_stop=question.may_stop,
            aa_differs=first[:most] != again[:most],
            differs=short or turns[:shown] != first[:shown],
        )


def verdict(rows: Sequence[Row]) -> dict[str, Any]:
    """Sum up, and say whether the claim holds."""
    arms = [arm_of([row for row in rows if row.arm == arm]) for arm in _names(rows, "arm")]
    amiss = [asdict(row) for row in rows if row.amiss]
    return {
        "arms": arms,
        "kinds": [
            {"arm": arm, "kind": kind, **counts(group)}
            for arm in _names(rows, "arm")
            for kind in _names(rows, "kind")
            for group in [[row for row in rows if (row.arm, row.kind) == (arm, kind)]]
        ],
        "amiss": amiss,
        "proved": not amiss and all(arm["p"] >= SIGNIFICANT for arm in arms),
    }


def arm_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Say of one arm how often it differs, and whether that is more than by itself.

    `p` is that of Fisher's exact test, one-sided.
    """
    found = counts(rows)
    p = exceeds(found["differ"], found["aa_differ"], found["asked"])
    return {"arm": rows[0].arm, **found, "p": round(p, 4)}


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """Count questions, turns and what differs."""
    return {
        "asked": len(rows),
        "turns": sum(row.turns for row in rows),
        "continued": sum(row.continued for row in rows),
        "aa_differ": sum(row.aa_differs for row in rows),
        "differ": sum(row.differs for row in rows),
    }


def _names(rows: Sequence[Row], field: str) -> list[str]:
    return list(dict.fromkeys(getattr(row, field) for row in rows))
