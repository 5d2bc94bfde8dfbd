"""The ways a question is asked, beside the round trip."""

from collections.abc import Callable
from dataclasses import dataclass

from live_client import Client, Turn, results, said
from styles import Question

Ask = Callable[[Client, Question, bool], list[Turn]]
"""Asks a question, streamed or not; returns all turns."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way."""

    name: str
    ask: Ask
    in_place: bool
    """Whether turns go on in one response."""


def round_trip(client: Client, question: Question, stream: bool) -> list[Turn]:  # noqa: FBT001
    """Send a request for each turn, which the server knows nothing for."""
    return client.round_trip(
        question.messages, question.outputs, stream=stream, tools=question.tools
    )


def in_place(client: Client, question: Question, stream: bool) -> list[Turn]:  # noqa: FBT001
    """Post the outputs and send one request; where the server drafts, it does here too."""
    return client.ask(
        question.messages, outputs=question.outputs, stream=stream, tools=question.tools
    )


def drafted(client: Client, question: Question, stream: bool) -> list[Turn]:  # noqa: FBT001
    """Post the outputs and send a request for each turn.

    A seed, which greedy decoding has no use for, keeps responses from going on in place.
    """
    history, turns = [*question.messages], list[Turn]()
    while True:
        (turn,) = client.ask(
            history, outputs=question.outputs, stream=stream, tools=question.tools, seed=1
        )
        turns.append(turn)
        if not turn.calls or not all(each in question.outputs for each in turn.calls):
            return turns
        history += [said(turn), *results(turn, question.outputs)]


PLAIN = (Arm(name="in_place", ask=in_place, in_place=True),)
DRAFTS = (
    Arm(name="drafts", ask=drafted, in_place=False),
    Arm(name="drafts_in_place", ask=in_place, in_place=True),
)
