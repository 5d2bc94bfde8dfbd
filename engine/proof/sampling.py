"""Samples with drafts, right and wrong ones, and without, and compares the distributions.

The model makes one call and throws dice for its argument. All arms are asked of one server, mixed
at random, eight requests at once, without seeds.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from random import Random
from typing import Any
from uuid import uuid4

import models
from conversations import DIE, THROWS, TOOLS, dice
from live_client import Client, whole
from serving import DRAFTING, serving
from verdict import Drawn, Sight, compared, sights

SAMPLES = 400
AT_ONCE = 8
TEMPERATURE = 0.8
SEED = 11
NONE, AGAIN = "none", "none_again"
TOP, LAST = next(iter(DIE)), [*DIE][-1]
DRAFTS = {
    NONE: None,
    AGAIN: None,
    "right": TOP * THROWS,
    "wrong": LAST * THROWS,
    "wrong_later": TOP * 2 + LAST * (THROWS - 2),
}
"""What is drafted in each arm: what is thrown most often, least often, or first the one."""
OPENING = '<tool_call>\n{"name": "look_up", "arguments": {"what": "'
DRAFTED = 0.95
"""Share of requests to be drafted for. Drafts are made after the post's answer: some are late."""
MOST = 2 * SAMPLES * len(DRAFTS)
"""Requests after which a model that does something else is given up."""
COUNTED = {
    "requests": ("vllm:spectool_drafted_total", {"what": "requests"}),
    "offered": ("vllm:spec_decode_num_draft_tokens_total", {}),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total", {}),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request."""

    arm: str
    digits: tuple[int, ...] | None
    """The tokens where dice are thrown; None where the model did something else."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Asks one server."""

    client: Client
    opening: tuple[int, ...]
    """Tokens from the turn's start to the first digit."""

    def ask(self, arm: str) -> Asked:
        """Have the dice thrown once."""
        request_id, key = uuid4().hex, uuid4().hex
        draft = DRAFTS[arm]
        if draft is not None:
            call = ("look_up", f'{{"what": "{draft}"}}')
            self.client.post(request_id, key, {call: "unread"})
        answer = self.client.http.post(
            "/v1/chat/completions",
            headers={"X-Request-Id": request_id},
            json={
                "model": "smollm2",
                "messages": dice(),
                "tools": TOOLS,
                "tool_choice": "none",  # nothing is parsed: the answer is cut within the call
                "temperature": TEMPERATURE,
                "max_tokens": len(self.opening) + THROWS,
                "return_token_ids": True,
                "vllm_xargs": {"spectool_key": key},
            },
        )
        answer.raise_for_status()
        (turn,) = whole(answer.json())
        opening, digits = turn.token_ids[: len(self.opening)], turn.token_ids[len(self.opening) :]
        good = opening == self.opening and len(digits) == THROWS
        return Asked(arm=arm, digits=digits if good else None)


def proof() -> dict[str, Any]:
    """Sample, and say whether any arm differs by more than chance."""
    training = models.trained(models.DICE)
    with serving(models.folder(models.DICE), *DRAFTING, tiny=True) as running:
        client = running.client
        table = Table(client=client, opening=tokens(client, OPENING))
        drafts = {arm: tokens(client, draft or "") for arm, draft in DRAFTS.items()}
        before = counted(client)
        found = played(table)
        work = {name: value - before[name] for name, value in counted(client).items()}
    drawn = {
        arm: Drawn(
            arm=arm,
            tokens=[each.digits for each in found if each.arm == arm and each.digits],
            draft=draft,
        )
        for arm, draft in drafts.items()
    }
    work["astray"] = sum(each.digits is None for each in found)
    return {"training": training, **judged(drawn, work)}


def played(table: Table) -> list[Asked]:
    """Ask until every arm has its samples; the order of the arms is drawn.

    Raises:
        RuntimeError: The model does not throw dice.
    """
    random, found = Random(SEED), list[Asked]()  # noqa: S311 - an order, no secret
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while missing := [arm for arm in DRAFTS for _ in range(lacking(found, arm))]:
            random.shuffle(missing)
            found += pool.map(table.ask, missing)
            if len(found) > MOST:
                msg = f"the model does not throw dice in {len(missing)} of {len(found)} answers"
                raise RuntimeError(msg)
    return found


def lacking(found: Sequence[Asked], arm: str) -> int:
    """Return how many samples an arm still needs."""
    return SAMPLES - sum(each.arm == arm and each.digits is not None for each in found)


def judged(drawn: Mapping[str, Drawn], work: Mapping[str, int]) -> dict[str, Any]:
    """Make of samples what goes into the result.

    Args:
        drawn: What each arm sampled, by its name.
        work: How much was drafted, and how many requests did not throw dice.
    """
    base, again = drawn[NONE], drawn[AGAIN]
    others = [each for name, each in drawn.items() if name not in {NONE, AGAIN}]
    random = Random(SEED)  # noqa: S311 - permutations, no secret
    by_itself, drafted = compared(base, [again], random), compared(base, others, random)
    seen = sights(base, others, random)
    amiss = [
        *(f"{each.arm} differs at {each.position}" for each in drafted if each.differs),
        *(f"{each.arm} at {each.position} says nothing" for each in seen if each.blind),
    ]
    if work["requests"] < DRAFTED * SAMPLES * len(others):
        amiss.append("too few requests were drafted for")
    if not 0 < work["accepted"] < work["offered"]:
        amiss.append("drafts were not both accepted and rejected")
    return {
        "samples_per_arm": SAMPLES,
        "at_once": AT_ONCE,
        "temperature": TEMPERATURE,
        "drafts": {name: DRAFTS[name] for name in drawn},
        "work": work,
        "aa": [asdict(each) for each in by_itself],
        "compared": [asdict(each) for each in drafted],
        "least_p_holm": min(each.p_holm for each in drafted),
        "detectable": [asdict(each) for each in seen],
        "smallest_detected": smallest_of(seen),
        "counts": {
            name: [dict(Counter(each.at(at)).most_common()) for at in range(THROWS)]
            for name, each in drawn.items()
        },
        "amiss": amiss,
        "proved": not amiss,
    }


def smallest_of(seen: Sequence[Sight]) -> float | None:
    """Return the difference that each comparison would have found; None if one finds none."""
    found = [least for each in seen for least in (each.toward_draft, each.spread)]
    return None if None in found else max(each for each in found if each is not None)


def tokens(client: Client, text: str) -> tuple[int, ...]:
    """Return the tokens of a text."""
    body = {"model": "smollm2", "prompt": text, "add_special_tokens": False}
    answer = client.http.post("/tokenize", json=body)
    answer.raise_for_status()
    return tuple(answer.json()["tokens"])


def counted(client: Client) -> dict[str, int]:
    """Return how much was drafted so far."""
    # The first look asks the engine for its count, and the second has the answer.
    for _ in range(2):
        found = {name: round(client.metric(metric, **of)) for name, (metric, of) in COUNTED.items()}
        time.sleep(0.5)
    return found
