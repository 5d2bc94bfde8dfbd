"""Drafts: how a call would be written whose output is known, and what of it may be offered.

The model verifies what it is offered, token by token, so a draft can cost time and never changes
what is written.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

LEAD = 2
"""Tokens before a tool's name that have to stand as well, so that prose is not taken for a call."""
REACH = 512
"""How far back, in tokens, the beginning of a call is looked for."""
EFFORT = 4 * REACH
"""Most tokens of one draft that are compared in a step: a model that repeats itself could have
begun it everywhere, and all other requests wait meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A call as the chat template writes it, from a little before its name to the stop token."""

    anchor: int
    """Tokens that have to be written before the rest may be offered; at least 1."""
    token_ids: tuple[int, ...]
    keep_alive_s: float = 60.0
    """Seconds for which it may be offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderings:
    """Conversations that differ in one thing from the one with the call, as token ids."""

    opening: Sequence[int]
    """It ends where the assistant begins."""
    call: Sequence[int]
    """The call, and the tool's message after it."""
    other_name: Sequence[int]
    """The same with another tool."""
    other_params: Sequence[int]
    """The same with other arguments."""


def draft_of(
    written: Renderings, stops: Collection[int], keep_alive_s: float, *, most_tokens: int = 1024
) -> Draft | None:
    """Return the draft of a call; None where it cannot be told what the model would write.

    Args:
        written: How the chat template writes it.
        stops: Tokens that end the model's turn.
        keep_alive_s: Seconds for which it may be offered.
        most_tokens: Longer ones are cut.
    """
    name_at = _common(written.call, written.other_name)
    # What stands before a call differs from turn to turn, so little of it is asked for.
    begin = max(_common(written.opening, written.call), name_at - LEAD)
    anchor = _common(written.call, written.other_params) - begin
    body = written.call[begin:]
    end = next((at for at, token in enumerate(body, start=1) if token in stops), 0)
    if begin > name_at or not 0 < anchor < end or name_at - begin >= anchor:
        return None
    ids = tuple(body[: min(end, most_tokens)])
    return (
        Draft(anchor=anchor, token_ids=ids, keep_alive_s=keep_alive_s)
        if anchor < len(ids)
        else None
    )


def propose(output_ids: Sequence[int], drafts: Iterable[Draft], most: int) -> list[int]:
    """Return what the model is likely to write next; nothing where no draft agrees.

    Args:
        output_ids: What the turn has written so far.
        drafts: The newest first; the first that agrees wins.
        most: Most tokens to return.
    """
    backwards = list(output_ids[-REACH:])[::-1]
    for draft in drafts:
        stands = _stands(backwards, draft)
        if stands:
            return list(draft.token_ids[stands : stands + most])
    return []


def _stands(backwards: Sequence[int], draft: Draft) -> int:
    """Return how much of a draft stands at the end, its anchor included; 0 for none.

    Where it could have begun at several places, it is the last.
    """
    ids = draft.token_ids
    at, last = draft.anchor - 1, min(len(ids) - 1, len(backwards))
    left = EFFORT
    while at < last and left > 0:
        try:
            at = backwards.index(ids[0], at, last)
        except ValueError:
            return 0
        at += 1
        if ids[at - 1] == backwards[0]:
            left -= at
            if tuple(backwards[at - 1 :: -1]) == ids[:at]:
                return at
    return 0


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two begin with alike."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
